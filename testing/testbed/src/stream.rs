//! Load on a link: sends through it at a set pace.

use crate::network::Network;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// Number of connections, so that the load gets its share beside a server's connections.
const CONNECTIONS: u32 = 8;
const PIECE_BYTES: usize = 64 << 10;
/// Maximum backlog. Bytes that are later than this are not made up for.
const MAX_BEHIND: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(200);

/// Sends this many bytes per second from a node to the switch until `stopped`; returns the bytes
/// that have arrived.
///
/// # Errors
/// Those of the system.
pub fn send_through(
    network: &Network,
    node: u32,
    bytes_per_s: u64,
    stopped: &AtomicBool,
) -> Result<u64> {
    let listener = network.within(0, || TcpListener::bind((network.address(0), 0)))??;
    let to = listener.local_addr()?;
    let came = AtomicU64::new(0);
    let pace = Pace { bytes_per_s, begin: Instant::now(), next_us: AtomicU64::new(0) };
    scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..CONNECTIONS {
            // A connection belongs to the network in which it was made, whoever uses it.
            let sender = network.within(node, || TcpStream::connect(to))??;
            let (receiver, _) = listener.accept()?;
            workers.push(scope.spawn(|| send(sender, &pace, stopped)));
            workers.push(scope.spawn(|| receive(receiver, &came)));
        }
        let failed = |_| std::io::Error::other("a sender has failed");
        workers.into_iter().try_for_each(|worker| worker.join().map_err(failed)?)
    })?;
    Ok(came.into_inner())
}

struct Pace {
    bytes_per_s: u64,
    begin: Instant,
    /// Due time of the next piece, microseconds since the beginning.
    next_us: AtomicU64,
}

fn send(mut to: TcpStream, pace: &Pace, stopped: &AtomicBool) -> Result<()> {
    let piece = vec![0x5a; PIECE_BYTES];
    to.set_write_timeout(Some(LOOK))?;
    let step_us = (PIECE_BYTES as u64 * 1_000_000 / pace.bytes_per_s.max(1)).max(1);
    loop {
        let now_us = pace.begin.elapsed().as_micros() as u64;
        pace.next_us.fetch_max(now_us.saturating_sub(MAX_BEHIND.as_micros() as u64), Relaxed);
        let due = Duration::from_micros(pace.next_us.fetch_add(step_us, Relaxed));
        while pace.begin.elapsed() < due && !stopped.load(Relaxed) {
            sleep(due.saturating_sub(pace.begin.elapsed()).min(LOOK));
        }
        let mut left = &piece[..];
        while !left.is_empty() {
            if stopped.load(Relaxed) {
                return Ok(());
            }
            match to.write(left) {
                Ok(n) => left = &left[n..],
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) => return Err(e),
            }
        }
    }
}

fn receive(mut from: TcpStream, came: &AtomicU64) -> Result<()> {
    let mut memory = vec![0; 4 * PIECE_BYTES];
    loop {
        match from.read(&mut memory)? {
            0 => return Ok(()),
            n => _ = came.fetch_add(n as u64, Relaxed),
        }
    }
}
