//! Tunnels: bytes received on one socket are sent unchanged on another, in both directions. The
//! client and the far server authenticate each other through the tunnel; nothing is read here.
//!
//! Invariants
//! - The number of tunnels is limited. Each tunnel holds at most [`CHUNK_BYTES`] for each
//!   direction: bytes are received from one end only after the other has accepted all earlier ones.
//! - A tunnel ends when nothing moves for [`IDLE_MS`], or for [`STALL_MS`] while it holds bytes. It
//!   also ends when its client has closed its end, with all held bytes: the client has given them
//!   up.

use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::net::{Events, Interest, Poller, Signal, Socket};
use weir_host::sync::Mutex;
use weir_types::{Error, ErrorKind, Result};

/// The most bytes that are received at once, and held for an end that does not accept them.
const CHUNK_BYTES: usize = 64 << 10;
/// A tunnel without traffic ends after this time. Its client has another connection, or nothing to
/// do.
const IDLE_MS: u64 = 60_000;
/// A tunnel ends when one end accepts no held bytes for this long.
const STALL_MS: u64 = 10_000;
/// Interval of the check for idle tunnels.
const TICK: Duration = Duration::from_secs(1);
/// The most events in one turn.
const EVENTS: usize = 64;
/// The token of the signal. No end of a tunnel has it.
const WAKE: u64 = u64::MAX;

/// Index of the client's socket among the two ends.
const CLIENT: usize = 0;
const SERVER: usize = 1;

/// A reserved place for one tunnel. Dropping it frees the place.
#[derive(Debug)]
pub struct Tunnel {
    taken: Arc<AtomicUsize>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, SeqCst);
    }
}

/// All tunnels of a process. One thread serves them.
pub struct Tunnels {
    max: usize,
    taken: Arc<AtomicUsize>,
    fresh: Mutex<Vec<(Tunnel, [Socket; 2])>>,
    /// Raised for a new tunnel and for the end.
    wake: Signal,
    stopped: AtomicBool,
}

impl Tunnels {
    /// Makes a set for at most `max` tunnels.
    pub fn new(max: usize) -> Result<Self> {
        let wake = Signal::new().map_err(os)?;
        let (taken, fresh) = (Arc::default(), Mutex::default());
        Ok(Self { max, taken, fresh, wake, stopped: AtomicBool::new(false) })
    }

    /// Reserves a place for a tunnel.
    ///
    /// # Errors
    /// `Overloaded`: there are too many tunnels.
    pub fn room(&self) -> Result<Tunnel> {
        let more = |taken| (taken < self.max).then_some(taken + 1);
        match self.taken.fetch_update(SeqCst, SeqCst, more) {
            Ok(_) => Ok(Tunnel { taken: self.taken.clone() }),
            Err(_) => {
                let what = format!(
                    "this server forwards {} connections to other servers already",
                    self.max
                );
                Err(Error::new(ErrorKind::Overloaded, what))
            }
        }
    }

    /// Begins to forward between two non-blocking sockets.
    pub fn begin(&self, room: Tunnel, client: Socket, server: Socket) {
        self.fresh.lock().push((room, [client, server]));
        self.wake.raise();
    }

    /// Serves the tunnels until [`Tunnels::stop`]. One thread calls it.
    ///
    /// # Errors
    /// Those of the poller.
    pub fn run(&self) -> Result<()> {
        let poller = Poller::new().map_err(os)?;
        poller.add_signal(&self.wake, WAKE).map_err(os)?;
        let mut all: BTreeMap<u64, Open> = BTreeMap::new();
        let (mut next, mut events) = (0, Events::with_capacity(EVENTS));
        let mut chunk = vec![0; CHUNK_BYTES];
        while !self.stopped.load(SeqCst) {
            match poller.wait(&mut events, TICK) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(e) => return Err(os(e)),
            }
            let mut ended = Vec::new();
            for event in events.list().iter().filter(|event| event.token != WAKE) {
                let (number, at) = (event.token / 2, (event.token % 2) as usize);
                let Some(open) = all.get_mut(&number) else { continue };
                // Bytes for an end that is gone can never be sent.
                let lost = event.hangup && !open.held[at].is_empty();
                if lost || open.pass_on(&mut chunk).is_err() || open.watch(&poller).is_err() {
                    ended.push(number);
                }
            }
            ended.extend(all.iter().filter(|(_, open)| open.is_over()).map(|(number, _)| *number));
            for number in ended {
                all.remove(&number);
            }
            self.wake.clear();
            for (room, ends) in std::mem::take(&mut *self.fresh.lock()) {
                match Open::begin(&poller, next, room, ends) {
                    Ok(open) => drop(all.insert(next, open)),
                    Err(e) => tracing::warn!(
                        "cannot forward a client's connection to another server: {e}"
                    ),
                }
                next += 1;
            }
        }
        Ok(())
    }

    /// Ends all tunnels and the thread.
    pub fn stop(&self) {
        self.stopped.store(true, SeqCst);
        self.wake.raise();
    }
}

/// An open tunnel.
struct Open {
    ends: [Socket; 2],
    /// For each end, bytes received from it that the other end has not accepted.
    held: [Vec<u8>; 2],
    /// Token and watched events of each end.
    watched: [(u64, Interest); 2],
    /// Whether the server has closed its end. Held bytes are still sent to the client.
    closed: bool,
    moved: Instant,
    _room: Tunnel,
}

impl Open {
    fn begin(
        poller: &Poller,
        number: u64,
        room: Tunnel,
        ends: [Socket; 2],
    ) -> rustix::io::Result<Self> {
        let watched = [0, 1].map(|at| (number * 2 + at, Interest::READ));
        for (end, (token, interest)) in ends.iter().zip(watched) {
            poller.add_socket(end, token, interest)?;
        }
        let (held, moved) = ([Vec::new(), Vec::new()], clock::now());
        Ok(Self { ends, held, watched, closed: false, moved, _room: room })
    }

    /// Forwards received bytes as far as the ends accept them. An error ends the tunnel.
    fn pass_on(&mut self, chunk: &mut [u8]) -> rustix::io::Result<()> {
        for from in [CLIENT, SERVER] {
            let mut held = std::mem::take(&mut self.held[from]);
            let sent = self.send(1 - from, &held)?;
            held.drain(..sent);
            self.held[from] = held;
            if self.held[from].is_empty() && !(from == SERVER && self.closed) {
                self.receive(from, chunk)?;
            }
        }
        match self.closed && self.held[SERVER].is_empty() {
            true => Err(Errno::PIPE),
            false => Ok(()),
        }
    }

    fn receive(&mut self, from: usize, chunk: &mut [u8]) -> rustix::io::Result<()> {
        let received = match self.ends[from].receive_one(chunk) {
            Ok(0) if from == SERVER => {
                self.closed = true;
                return Ok(());
            }
            Ok(0) => return Err(Errno::PIPE),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            received => received?,
        };
        self.moved = clock::now();
        let sent = self.send(1 - from, &chunk[..received])?;
        self.held[from].extend_from_slice(&chunk[sent..received]);
        Ok(())
    }

    /// Sends bytes to an end and returns how many it has accepted.
    fn send(&mut self, to: usize, bytes: &[u8]) -> rustix::io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        match self.ends[to].send(&[IoSlice::new(bytes)], false) {
            Ok(sent) => {
                self.moved = clock::now();
                Ok(sent)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(e) => Err(e),
        }
    }

    /// Watches each end for the events that allow progress.
    fn watch(&mut self, poller: &Poller) -> rustix::io::Result<()> {
        for at in [CLIENT, SERVER] {
            let readable = self.held[at].is_empty() && !(at == SERVER && self.closed);
            let writable = !self.held[1 - at].is_empty();
            let wanted = Interest { readable, writable, edge: false };
            let (token, watched) = &mut self.watched[at];
            if *watched != wanted {
                poller.modify_socket(&self.ends[at], *token, wanted)?;
                *watched = wanted;
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let held = self.held.iter().any(|held| !held.is_empty());
        let most = if held { STALL_MS } else { IDLE_MS };
        clock::elapsed(self.moved) > Duration::from_millis(most)
    }
}

fn os(e: Errno) -> Error {
    Error::from(std::io::Error::from(e)).context("pass on what clients send")
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests ask the operating system.
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    struct Running(Arc<Tunnels>, Option<std::thread::JoinHandle<Result<()>>>);

    impl Running {
        fn start(max: usize) -> Self {
            let tunnels = Arc::new(Tunnels::new(max).unwrap());
            let of = tunnels.clone();
            Self(tunnels, Some(std::thread::spawn(move || of.run())))
        }

        /// The far ends of a tunnel: the client's and the server's.
        fn tunnel(&self) -> (UnixStream, UnixStream) {
            let [client, server] = [(); 2].map(|()| UnixStream::pair().unwrap());
            let near = [client.1, server.0].map(|end| {
                end.set_nonblocking(true).unwrap();
                Socket::from(OwnedFd::from(end))
            });
            let [from, to] = near;
            self.0.begin(self.0.room().unwrap(), from, to);
            (client.0, server.1)
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            self.0.stop();
            self.1.take().unwrap().join().unwrap().unwrap();
        }
    }

    #[test]
    fn everything_comes_in_order_both_ways_however_slowly_it_is_taken() {
        let running = Running::start(2);
        let (client, server) = running.tunnel();
        let bytes: Vec<u8> = (0..5_000_000u32).map(|i| (i % 251) as u8).collect();
        std::thread::scope(|scope| {
            for (mut from, mut to) in [(&client, &server), (&server, &client)] {
                let bytes = &bytes;
                scope.spawn(move || from.write_all(bytes).unwrap());
                scope.spawn(move || {
                    let (mut got, mut part) = (Vec::new(), [0; 30_011]);
                    while got.len() < bytes.len() {
                        let n = to.read(&mut part).unwrap();
                        got.extend_from_slice(&part[..n]);
                    }
                    assert!(got == *bytes);
                });
            }
        });
    }

    #[test]
    fn the_last_words_of_a_server_come_and_what_a_client_gives_up_does_not() {
        let running = Running::start(2);
        let (mut client, mut server) = running.tunnel();
        server.write_all(b"refused").unwrap();
        drop(server);
        let mut words = String::new();
        client.read_to_string(&mut words).unwrap();
        assert_eq!(words, "refused");
        let (mut client, mut server) = running.tunnel();
        let written = {
            client.set_nonblocking(true).unwrap();
            let chunk = [7; 65_536];
            std::iter::repeat_with(|| client.write(&chunk)).take(100).flatten().sum::<usize>()
        };
        drop(client);
        let mut all = Vec::new();
        server.read_to_end(&mut all).unwrap();
        assert!(all.len() <= written);
    }

    #[test]
    fn there_are_so_many_at_the_most_and_room_again_when_one_ends() {
        let running = Running::start(1);
        let (client, mut server) = running.tunnel();
        assert_eq!(running.0.room().unwrap_err().kind, ErrorKind::Overloaded);
        drop(client);
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while running.0.room().is_err() {
            assert!(std::time::Instant::now() < until);
            std::thread::yield_now();
        }
    }
}
