//! Links with a delay: a relay between the two ends of a link, for kernels without `netem`.
//!
//! ```text
//! node: TAP ── read ── queue, until they are due ── write ── TAP: switch     and the same back
//! ```
//! The relay gets frames of up to 64 KiB that the kernel has not segmented (`IFF_VNET_HDR`). Each
//! costs two system calls and two copies.

use crate::network::{CABLE, Network, port};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// Device for creating links whose frames a process relays.
pub(crate) const TUN: &str = "/dev/net/tun";
/// The largest frame with its headers.
const FRAME_BYTES: usize = (64 << 10) + 512;
/// Interval at which the relay checks whether to end.
const LOOK: Duration = Duration::from_millis(100);
/// Maximum bytes under way in each direction; further frames are lost.
const MAX_QUEUED_BYTES: usize = 256 << 20;

/// A link with a relay. Dropping it removes the link, and the node has none.
#[derive(Debug)]
pub struct Delayed {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    delay_us: AtomicU64,
    lost: AtomicU64,
    is_over: AtomicBool,
}

/// The frames under way in one direction, in order.
#[derive(Debug, Default)]
struct Way {
    frames: Mutex<Frames>,
    has_some: Condvar,
}

#[derive(Debug, Default)]
struct Frames {
    queue: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl Network {
    /// Replaces a node's link by one with a relay, with the same rate (bytes per second) and queue
    /// length at both ends.
    ///
    /// # Errors
    /// There is no such node; errors of the system.
    pub fn delay(&self, node: u32, rate: u64, queue_bytes: u64) -> Result<Delayed> {
        self.cut(node)?;
        let near = self.within(node, || tap(CABLE))??;
        let far = self.within(0, || tap(&port(node)))??;
        self.limit(node, rate, queue_bytes)?;
        self.join(node)?;
        Delayed::between(near, far)
    }
}

impl Delayed {
    fn between(near: File, far: File) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut relay = Self { shared, threads: Vec::new() };
        for (from, to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
            let way = Arc::new(Way::default());
            let (shared, into) = (relay.shared.clone(), way.clone());
            relay.threads.push(spawn(move || take(from, &into, &shared)));
            let shared = relay.shared.clone();
            relay.threads.push(spawn(move || pass(to, &way, &shared)));
        }
        Ok(relay)
    }

    /// Sets the one-way delay of all later frames.
    pub fn set(&self, delay: Duration) {
        self.shared.delay_us.store(delay.as_micros() as u64, Relaxed);
    }

    /// Number of frames lost here, because an end was down or too much was under way.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }
}

impl Drop for Delayed {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        // A thread that has panicked needs no further care.
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    fn lose(&self) {
        self.lost.fetch_add(1, Relaxed);
    }
}

/// Receives frames into the queue.
fn take(mut from: File, way: &Way, shared: &Shared) {
    let mut frame = vec![0; FRAME_BYTES];
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK.subsec_nanos()) };
    while !shared.is_over() {
        let mut fds = [PollFd::new(&from, PollFlags::IN)];
        if !matches!(poll(&mut fds, Some(&timeout)), Ok(1)) {
            continue;
        }
        let len = match from.read(&mut frame) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            // The link is gone or down.
            Err(_) => {
                sleep(LOOK);
                continue;
            }
        };
        let due = Instant::now() + Duration::from_micros(shared.delay_us.load(Relaxed));
        let mut frames = way.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if frames.bytes + len > MAX_QUEUED_BYTES {
            shared.lose();
            continue;
        }
        frames.bytes += len;
        frames.queue.push_back((due, frame[..len].to_vec()));
        way.has_some.notify_one();
    }
}

/// Sends frames when they are due.
fn pass(mut to: File, way: &Way, shared: &Shared) {
    while !shared.is_over() {
        let frames = way.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = |frames: &mut Frames| frames.queue.is_empty();
        let waited = way.has_some.wait_timeout_while(frames, LOOK, is_empty);
        let (mut frames, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let Some((due, frame)) = frames.queue.pop_front() else { continue };
        frames.bytes -= frame.len();
        drop(frames);
        sleep(due.saturating_duration_since(Instant::now()));
        // Lost, as on any link that is down.
        if to.write(&frame).is_err() {
            shared.lose();
        }
    }
}

/// Creates an end of a link, of this name, in the network of this thread. It lasts as long as the
/// file is open.
fn tap(name: &str) -> Result<File> {
    let file = File::options().read(true).write(true).open(TUN)?;
    // SAFETY: an `ifreq` has only numbers and addresses, so all bytes zero are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(Error::other(format!("{name}: too long a name for a link")));
    }
    request.ifr_name.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as _);
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as _;
    // SAFETY: the request has the type that the kernel expects, and outlives the call.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw const request) };
    if made != 0 {
        return Err(Error::last_os_error());
    }
    let large = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    // SAFETY: the kernel takes this argument by value.
    let uncut = unsafe {
        libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(large))
    };
    if uncut != 0 {
        return Err(Error::last_os_error());
    }
    // Non-blocking: a frame that has disappeared meanwhile is not waited for.
    rustix::io::ioctl_fionbio(file.as_fd(), true)?;
    Ok(file)
}
