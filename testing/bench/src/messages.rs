//! What a small request and its reply cost between two threads of one machine: over TCP, over Unix
//! sockets, and in memory that both have, where each wakes the other (`weir-bench messages`). By
//! that one sees how much a request of Weir could gain by a transport without sockets.

use crate::args::Messages;
use crate::failure::{Done, Failure};
use crate::pieces::median;
use rustix::time::{ClockId, clock_gettime};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Instant;

/// Bytes of a request.
const REQUEST_BYTES: usize = 128;

/// Time of an exchange, microseconds.
#[derive(Clone, Copy)]
struct Cost {
    elapsed_us: f64,
    cpu_us: f64,
}

/// Makes all exchanges of a round.
type Way = fn(&Messages) -> std::io::Result<()>;

/// Runs `weir-bench messages`.
pub fn run(asked: &Messages) -> Done {
    let system = |error| Failure::system("a connection on this machine", error);
    let ways: [(&str, Way); 3] =
        [("TCP", over_tcp), ("Unix sockets", over_unix), ("memory that both have", in_memory)];
    println!("{} bytes of reply, {} exchanges a round", asked.reply, asked.exchanges);
    for (name, way) in ways {
        let rounds = (0..asked.rounds).map(|_| measure(asked, way));
        let rounds: Vec<Cost> = rounds.collect::<std::io::Result<_>>().map_err(system)?;
        let (elapsed, cpu) = (median(&rounds, |of| of.elapsed_us), median(&rounds, |of| of.cpu_us));
        println!("{name:22} {elapsed:6.2} us an exchange, {cpu:6.2} us of processors");
    }
    Ok(())
}

fn measure(asked: &Messages, way: Way) -> std::io::Result<Cost> {
    let cpu = || {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        own.tv_sec as f64 + own.tv_nsec as f64 / 1e9
    };
    let (begin, before) = (Instant::now(), cpu());
    way(asked)?;
    let each = |seconds: f64| seconds * 1e6 / f64::from(asked.exchanges);
    Ok(Cost { elapsed_us: each(begin.elapsed().as_secs_f64()), cpu_us: each(cpu() - before) })
}

fn over_tcp(asked: &Messages) -> std::io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    exchange(near, far, asked)
}

fn over_unix(asked: &Messages) -> std::io::Result<()> {
    let (near, far) = UnixStream::pair()?;
    exchange(near, far, asked)
}

fn exchange<S: Read + Write + Send>(
    mut near: S,
    mut far: S,
    asked: &Messages,
) -> std::io::Result<()> {
    thread::scope(|scope| {
        let server = scope.spawn(move || -> std::io::Result<()> {
            let (mut request, reply) = ([0; REQUEST_BYTES], vec![1; asked.reply]);
            for _ in 0..asked.exchanges {
                far.read_exact(&mut request)?;
                far.write_all(&reply)?;
            }
            Ok(())
        });
        let (request, mut reply) = ([0; REQUEST_BYTES], vec![0; asked.reply]);
        for _ in 0..asked.exchanges {
            near.write_all(&request)?;
            near.read_exact(&mut reply)?;
        }
        server.join().map_err(|_| std::io::Error::other("a thread has panicked"))?
    })
}

/// A place for a message, and whether one is in it.
struct Place {
    message: Mutex<Vec<u8>>,
    is_full: AtomicBool,
}

impl Place {
    fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { message: Mutex::new(vec![0; bytes]), is_full: AtomicBool::new(false) })
    }

    /// Puts a message, and wakes who waits for it.
    fn put(&self, message: &[u8], to: &Thread) {
        self.message.lock().unwrap_or_else(PoisonError::into_inner).copy_from_slice(message);
        self.is_full.store(true, Ordering::Release);
        to.unpark();
    }

    /// Waits for a message.
    fn take(&self, message: &mut [u8]) {
        while !self.is_full.swap(false, Ordering::Acquire) {
            thread::park();
        }
        message.copy_from_slice(&self.message.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn in_memory(asked: &Messages) -> std::io::Result<()> {
    let (requests, replies) = (Place::new(REQUEST_BYTES), Place::new(asked.reply));
    let client = thread::current();
    thread::scope(|scope| {
        let (from, to) = (requests.clone(), replies.clone());
        let server = scope.spawn(move || {
            let (mut request, reply) = ([0; REQUEST_BYTES], vec![1; asked.reply]);
            for _ in 0..asked.exchanges {
                from.take(&mut request);
                to.put(&reply, &client);
            }
        });
        let (request, mut reply) = ([0; REQUEST_BYTES], vec![0; asked.reply]);
        for _ in 0..asked.exchanges {
            requests.put(&request, server.thread());
            replies.take(&mut reply);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_brings_every_reply() {
        let asked = Messages { reply: 4096, exchanges: 50, rounds: 1 };
        for way in [over_tcp, over_unix, in_memory] {
            way(&asked).unwrap();
        }
        let place = Place::new(3);
        place.put(b"abc", &thread::current());
        let mut taken = [0; 3];
        place.take(&mut taken);
        assert_eq!(&taken, b"abc");
    }
}
