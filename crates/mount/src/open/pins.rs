//! Keeps found files in existence until they are used.
//!
//! To open a path, or to ask for its attributes, the kernel looks the name up and then uses the
//! found file. If that was removed in between it gets `ESTALE`, and tries exactly once more. (On a
//! local disk a found file is held.) So a thread that got `ESTALE` finds a file that this mount has
//! open for a while: an open file stays. That costs other clients nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_client::File;

/// Time from the reply to a lookup to the last use of the found file, and from `ESTALE` to the next
/// attempt.
const HELD_FOR: Duration = Duration::from_secs(1);
/// The most held files; the oldest are released.
const MAX_HELD: usize = 256;
/// The most lookups that a thread then makes: of the kernel's name, which has become another
/// file's, and of the present file; and both again if other threads were looking for it too, since
/// the kernel then takes their result.
const LOOKUPS: u8 = 4;
/// The most threads that may have got `ESTALE` and not come back.
const MAX_UNLUCKY: usize = 1024;

struct State<T> {
    held: VecDeque<(Instant, T)>,
    /// The thread that releases them in time, while anything is held.
    keeper: Option<JoinHandle<()>>,
    closed: bool,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    closing: Condvar,
}

/// Held files. Dropping this releases them.
struct Held<T: Send + 'static>(Arc<Shared<T>>);

/// Held files, and threads that will need one.
#[derive(Default)]
pub(crate) struct Pins {
    held: Held<File>,
    unlucky: Mutex<HashMap<u32, (u8, Instant)>>,
    /// Number of such threads: mostly none.
    count: AtomicUsize,
}

impl Pins {
    /// Records that a thread gets `ESTALE`.
    pub(crate) fn missed(&self, thread: u32) {
        let mut unlucky = self.unlucky.lock().unwrap_or_else(PoisonError::into_inner);
        if unlucky.len() >= MAX_UNLUCKY {
            unlucky.clear();
        }
        unlucky.insert(thread, (LOOKUPS, Instant::now()));
        self.count.store(unlucky.len(), Ordering::Relaxed);
    }

    /// Whether a thread tries again.
    pub(crate) fn tries_again(&self, thread: u32) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut unlucky = self.unlucky.lock().unwrap_or_else(PoisonError::into_inner);
        // Some never come back.
        unlucky.retain(|_, (_, since)| since.elapsed() < HELD_FOR);
        self.count.store(unlucky.len(), Ordering::Relaxed);
        unlucky.contains_key(&thread)
    }

    /// Records that the retry has ended.
    pub(crate) fn tried(&self, thread: u32) {
        let mut unlucky = self.unlucky.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((left, _)) = unlucky.get_mut(&thread) {
            *left -= 1;
            if *left == 0 {
                unlucky.remove(&thread);
            }
        }
        self.count.store(unlucky.len(), Ordering::Relaxed);
    }

    /// Holds a file for a while.
    pub(crate) fn hold(&self, file: File) {
        self.held.hold(file);
    }
}

impl<T: Send + 'static> Default for Held<T> {
    fn default() -> Self {
        let state = State { held: VecDeque::new(), keeper: None, closed: false };
        Self(Arc::new(Shared { state: Mutex::new(state), closing: Condvar::new() }))
    }
}

impl<T: Send + 'static> Held<T> {
    fn hold(&self, what: T) {
        let mut state = self.0.lock();
        state.held.push_back((Instant::now() + HELD_FOR, what));
        // Closed outside the lock.
        let oldest = (state.held.len() > MAX_HELD).then(|| state.held.pop_front());
        if state.keeper.is_none() {
            let shared = self.0.clone();
            let keeper = std::thread::Builder::new().name("weir-pins".into());
            match keeper.spawn(move || shared.let_go()) {
                Ok(keeper) => state.keeper = Some(keeper),
                Err(error) => {
                    tracing::warn!("cannot hold a file that is looked up: no thread: {error}");
                    let held = std::mem::take(&mut state.held);
                    std::mem::drop(state);
                    std::mem::drop(held);
                    return;
                }
            }
        }
        std::mem::drop(state);
        std::mem::drop(oldest);
    }
}

impl<T: Send + 'static> Drop for Held<T> {
    fn drop(&mut self) {
        let (held, keeper) = {
            let mut state = self.0.lock();
            state.closed = true;
            (std::mem::take(&mut state.held), state.keeper.take())
        };
        self.0.closing.notify_all();
        std::mem::drop(held);
        // It may be closing a file: a client that ends meanwhile would not end its session.
        if keeper.is_some_and(|keeper| keeper.join().is_err()) {
            tracing::error!("the thread that lets go of files panicked");
        }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes files that were held long enough, until none are held.
    fn let_go(&self) {
        let mut state = self.lock();
        while let Some((until, _)) = state.held.front().filter(|_| !state.closed) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let file = state.held.pop_front();
                std::mem::drop(state);
                std::mem::drop(file);
                state = self.lock();
            } else {
                let waited = self.closing.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        // This thread: nobody needs to wait for it any more.
        state.keeper = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::{Sender, channel};

    /// Takes a while to go, and says when it begins to.
    struct Slow(Sender<()>, Arc<AtomicBool>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            self.1.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn nothing_is_held_any_more_when_the_holder_is_gone() {
        let ((going, goes), gone) = (channel(), Arc::new(AtomicBool::new(false)));
        let held = Held::default();
        held.hold(Slow(going, gone.clone()));
        // The keeper lets go of it.
        goes.recv().unwrap();
        drop(held);
        assert!(gone.load(Ordering::SeqCst));
    }
}
