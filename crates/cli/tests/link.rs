//! A path to an address that can be cut: bytes on it then wait, and neither end is told.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// How often a way that is cut, or silent, is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

struct State {
    cut: AtomicBool,
    ended: AtomicBool,
    /// So many bytes of a connection get back; then it hangs.
    most_back: u64,
    hung: AtomicBool,
}

/// Listens on an address of its own, and leads to the target.
pub struct Link {
    pub address: String,
    pub target: String,
    state: Arc<State>,
}

impl Link {
    pub fn to(target: String) -> Self {
        Self::that_hangs_after(target, u64::MAX)
    }

    /// On each connection only so many bytes get back from the target.
    pub fn that_hangs_after(target: String, most_back: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        listener.set_nonblocking(true).unwrap();
        let (cut, ended, hung) = Default::default();
        let state = Arc::new(State { cut, ended, most_back, hung });
        let (of_thread, to) = (Arc::clone(&state), target.clone());
        std::thread::spawn(move || accept(&listener, &to, &of_thread));
        Self { address, target, state }
    }

    /// Whether a connection has hung.
    pub fn has_hung(&self) -> bool {
        self.state.hung.load(SeqCst)
    }

    /// From now on nothing gets through, or all of it again.
    pub fn cut(&self, cut: bool) {
        self.state.cut.store(cut, SeqCst);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.ended.store(true, SeqCst);
    }
}

fn accept(listener: &TcpListener, to: &str, state: &Arc<State>) {
    while !state.ended.load(SeqCst) {
        let near = match listener.accept() {
            Ok((near, _)) => near,
            Err(_) => {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
        };
        near.set_nonblocking(false).unwrap();
        let (state, to) = (Arc::clone(state), to.to_owned());
        std::thread::spawn(move || {
            while state.cut.load(SeqCst) && !state.ended.load(SeqCst) {
                std::thread::sleep(LOOK_EVERY);
            }
            // Nothing listens there: the caller sees the end of its connection.
            let Ok(far) = TcpStream::connect(&to) else { return };
            let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            let state_too = Arc::clone(&state);
            std::thread::spawn(move || carry(far_too, near_too, &state_too, state_too.most_back));
            carry(near, far, &state, u64::MAX);
        });
    }
}

/// Carries bytes one way until an end is closed, at most so many.
fn carry(mut from: TcpStream, mut to: TcpStream, state: &State, mut most: u64) {
    from.set_read_timeout(Some(LOOK_EVERY)).unwrap();
    let _ = to.set_nodelay(true);
    let mut buffer = [0; 64 << 10];
    while !state.ended.load(SeqCst) {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        while state.cut.load(SeqCst) && !state.ended.load(SeqCst) {
            std::thread::sleep(LOOK_EVERY);
        }
        let some = read.min(usize::try_from(most).unwrap_or(usize::MAX));
        most -= some as u64;
        if to.write_all(&buffer[..some]).is_err() {
            break;
        }
        if some < read {
            state.hung.store(true, SeqCst);
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
