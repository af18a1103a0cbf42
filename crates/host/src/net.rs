//! Stream sockets, a poller for many of them, and signals that end a wait. All calls are
//! non-blocking unless they say otherwise.

pub(crate) mod kinds;

pub use kinds::{Event, Interest};

use crate::simulated;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags,
};
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

/// A stream socket or a listener.
pub struct Socket(SocketKind);

enum SocketKind {
    Os(OwnedFd),
    Simulated(Arc<dyn simulated::Socket>),
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self(SocketKind::Os(fd))
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SocketKind::Os(fd) => fd.fmt(f),
            SocketKind::Simulated(socket) => write!(f, "Simulated({})", socket.id()),
        }
    }
}

/// Whether this thread runs on a simulated machine, whose network supports TCP addresses only.
pub fn is_simulated() -> bool {
    simulated::current().is_some()
}

impl Socket {
    /// Begins to connect on the simulated network; `None` on the operating system.
    pub fn connect_simulated(address: &str) -> Option<Result<Self>> {
        let machine = simulated::current()?;
        Some(machine.connect(address).map(|s| Self(SocketKind::Simulated(s))))
    }

    /// Listens on the simulated network; `None` on the operating system.
    pub fn listen_simulated(address: &str) -> Option<Result<Self>> {
        let machine = simulated::current()?;
        Some(machine.listen(address).map(|s| Self(SocketKind::Simulated(s))))
    }

    /// The file descriptor; `None` on a simulated machine.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            SocketKind::Os(fd) => Some(fd.as_fd()),
            SocketKind::Simulated(_) => None,
        }
    }

    /// The address of a listener of the simulated network.
    pub fn simulated_address(&self) -> Option<String> {
        match &self.0 {
            SocketKind::Os(_) => None,
            SocketKind::Simulated(socket) => Some(socket.local_address()),
        }
    }

    /// Sends bytes; returns how many were accepted. With `may_block` the call may wait as long as
    /// the socket's own timeout allows, except on a simulated machine.
    ///
    /// # Errors
    /// `AGAIN`: the send buffer is full; those of the connection.
    ///
    /// # Errors
    /// `AGAIN`: no room; those of the connection.
    pub fn send(&self, bytes: &[IoSlice<'_>], may_block: bool) -> Result<usize> {
        match &self.0 {
            SocketKind::Os(fd) => {
                let mut flags = SendFlags::NOSIGNAL;
                if !may_block {
                    flags |= SendFlags::DONTWAIT;
                }
                rustix::net::sendmsg(fd, bytes, &mut SendAncillaryBuffer::default(), flags)
            }
            SocketKind::Simulated(socket) => socket.send(bytes),
        }
    }

    /// Receives into several buffers; returns 0 at the end of the stream.
    ///
    /// # Errors
    /// `AGAIN`: no bytes have arrived; those of the connection.
    ///
    /// # Errors
    /// `AGAIN`: nothing there; those of the connection.
    pub fn receive(&self, into: &mut [IoSliceMut<'_>], may_block: bool) -> Result<usize> {
        match &self.0 {
            SocketKind::Os(fd) => {
                let flags = if may_block { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
                let mut control = RecvAncillaryBuffer::default();
                rustix::net::recvmsg(fd, into, &mut control, flags).map(|r| r.bytes)
            }
            SocketKind::Simulated(socket) => socket.receive(into),
        }
    }

    /// Receives into one buffer without waiting; returns 0 at the end of the stream.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub fn receive_one(&self, into: &mut [u8]) -> Result<usize> {
        match &self.0 {
            SocketKind::Os(fd) => rustix::net::recv(fd, into, RecvFlags::DONTWAIT).map(|(n, _)| n),
            SocketKind::Simulated(socket) => socket.receive(&mut [IoSliceMut::new(into)]),
        }
    }

    /// As [`Socket::receive`], for non-blocking sockets.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub fn read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize> {
        match &self.0 {
            SocketKind::Os(fd) => rustix::io::readv(fd, into),
            SocketKind::Simulated(socket) => socket.receive(into),
        }
    }

    /// Closes the sending direction: the peer sees the end of the stream.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn shut_down(&self) -> Result<()> {
        match &self.0 {
            SocketKind::Os(fd) => rustix::net::shutdown(fd, Shutdown::Write),
            SocketKind::Simulated(socket) => socket.shut_down(),
        }
    }

    /// Accepts the next connection of a listener.
    ///
    /// # Errors
    /// `AGAIN`: there is none; those of the kernel.
    pub fn accept(&self) -> Result<Self> {
        match &self.0 {
            SocketKind::Os(fd) => {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                rustix::net::accept_with(fd, flags).map(Self::from)
            }
            SocketKind::Simulated(socket) => {
                socket.accept().map(|s| Self(SocketKind::Simulated(s)))
            }
        }
    }

    /// Fails with the error of a failed connection attempt.
    ///
    /// # Errors
    /// Those of the connection attempt.
    pub fn take_error(&self) -> Result<()> {
        match &self.0 {
            SocketKind::Os(fd) => rustix::net::sockopt::socket_error(fd)?,
            SocketKind::Simulated(socket) => socket.take_error().map_or(Ok(()), Err),
        }
    }

    /// Waits until the socket is ready or broken, or the interrupting descriptor is readable. On a
    /// simulated machine there is no interrupting descriptor.
    ///
    /// # Errors
    /// Those of `poll`, including `INTR`.
    ///
    /// # Errors
    /// Those of `poll`; `INTR` is one.
    pub fn wait(
        &self,
        interest: Interest,
        timeout: Duration,
        interrupt: Option<BorrowedFd<'_>>,
    ) -> Result<Woken> {
        let fd = match &self.0 {
            SocketKind::Os(fd) => fd.as_fd(),
            SocketKind::Simulated(socket) => {
                let ready = socket.wait(interest, timeout);
                return Ok(if ready { Woken::Ready } else { Woken::TimeOver });
            }
        };
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, interest.readable);
        flags.set(PollFlags::OUT, interest.writable);
        let mut fds = [
            PollFd::from_borrowed_fd(fd, flags),
            PollFd::from_borrowed_fd(interrupt.unwrap_or(fd), PollFlags::IN),
        ];
        let used = if interrupt.is_some() { 2 } else { 1 };
        let count = poll(&mut fds[..used], Some(&timespec(timeout)))?;
        // If the socket and the interrupt are both ready, the socket wins.
        Ok(match count {
            0 => Woken::TimeOver,
            _ if !fds[0].revents().is_empty() => Woken::Ready,
            _ => Woken::Interrupted,
        })
    }

    /// Waits until one of several sockets has bytes to receive or is broken, and returns which one.
    /// Other reasons to end are as for [`Socket::wait`].
    ///
    /// # Errors
    /// Those of `poll`, including `INTR`.
    ///
    /// # Errors
    /// Those of `poll`; `INTR` is one.
    pub fn wait_for_any(
        sockets: &[&Self],
        timeout: Duration,
        interrupt: Option<BorrowedFd<'_>>,
    ) -> Result<(Woken, usize)> {
        if is_simulated() {
            return Self::wait_for_any_simulated(sockets, timeout);
        }
        let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds: Vec<_> =
            sockets.iter().filter_map(|socket| socket.fd()).chain(interrupt).map(of).collect();
        poll(&mut fds, Some(&timespec(timeout)))?;
        Ok(match fds.iter().position(|fd| !fd.revents().is_empty()) {
            None => (Woken::TimeOver, 0),
            Some(at) if at < sockets.len() => (Woken::Ready, at),
            Some(_) => (Woken::Interrupted, 0),
        })
    }

    fn wait_for_any_simulated(sockets: &[&Self], timeout: Duration) -> Result<(Woken, usize)> {
        let (poller, mut events) = (Poller::new()?, Events::with_capacity(1));
        for (at, socket) in sockets.iter().enumerate() {
            poller.add_socket(socket, at as u64, Interest::READ)?;
        }
        poller.wait(&mut events, timeout)?;
        let first = events.list().first();
        Ok(first.map_or((Woken::TimeOver, 0), |event| (Woken::Ready, event.token as usize)))
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The socket is ready or broken.
    Ready,
    /// The interrupting descriptor became readable.
    Interrupted,
    /// The deadline passed.
    TimeOver,
}

/// Watches many sockets.
pub struct Poller(PollerKind);

enum PollerKind {
    Os(OwnedFd),
    Simulated(Arc<dyn simulated::Poller>),
}

impl Poller {
    /// A poller that watches nothing yet.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn new() -> Result<Self> {
        if let Some(machine) = simulated::current() {
            return Ok(Self(PollerKind::Simulated(machine.poller())));
        }
        epoll::create(epoll::CreateFlags::CLOEXEC).map(|fd| Self(PollerKind::Os(fd)))
    }

    /// Watches a socket until it is closed.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn add_socket(&self, socket: &Socket, token: u64, interest: Interest) -> Result<()> {
        match (&self.0, &socket.0) {
            (PollerKind::Os(epoll), SocketKind::Os(fd)) => {
                epoll::add(epoll, fd, epoll::EventData::new_u64(token), flags(interest))
            }
            (PollerKind::Simulated(poller), SocketKind::Simulated(socket)) => {
                poller.add(socket.id(), token, interest)
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// Changes the events for which a socket is watched.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn modify_socket(&self, socket: &Socket, token: u64, interest: Interest) -> Result<()> {
        match (&self.0, &socket.0) {
            (PollerKind::Os(epoll), SocketKind::Os(fd)) => {
                epoll::modify(epoll, fd, epoll::EventData::new_u64(token), flags(interest))
            }
            (PollerKind::Simulated(poller), SocketKind::Simulated(socket)) => {
                poller.modify(socket.id(), token, interest)
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// Stops watching a socket.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn remove_socket(&self, socket: &Socket) -> Result<()> {
        match (&self.0, &socket.0) {
            (PollerKind::Os(epoll), SocketKind::Os(fd)) => epoll::delete(epoll, fd),
            (PollerKind::Simulated(poller), SocketKind::Simulated(socket)) => {
                poller.remove(socket.id())
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// Watches a signal.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn add_signal(&self, signal: &Signal, token: u64) -> Result<()> {
        match (&self.0, &signal.0) {
            (PollerKind::Os(epoll), SignalKind::Os(fd)) => {
                let flags = epoll::EventFlags::IN;
                epoll::add(epoll, fd, epoll::EventData::new_u64(token), flags)
            }
            (PollerKind::Simulated(poller), SignalKind::Simulated(signal)) => {
                poller.add(signal.id(), token, Interest::READ)
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// Waits at most `timeout` for the first event. Replaces the contents of `events` by the events
    /// at hand, as many as fit.
    ///
    /// # Errors
    /// Those of the kernel, including `INTR`.
    ///
    /// # Errors
    /// Those of the kernel; `INTR` is one.
    pub fn wait(&self, events: &mut Events, timeout: Duration) -> Result<()> {
        events.list.clear();
        match &self.0 {
            PollerKind::Os(epoll) => {
                events.kernel.clear();
                let spare = rustix::buffer::spare_capacity(&mut events.kernel);
                epoll::wait(epoll, spare, Some(&timespec(timeout)))?;
                events.list.extend(events.kernel.iter().map(|event| {
                    // Copied, because the kernel's struct is packed.
                    let (data, flags) = (event.data, event.flags);
                    use epoll::EventFlags as F;
                    Event {
                        token: data.u64(),
                        readable: flags.contains(F::IN),
                        writable: flags.contains(F::OUT),
                        hangup: flags.intersects(F::RDHUP | F::HUP | F::ERR),
                    }
                }));
                Ok(())
            }
            PollerKind::Simulated(poller) => poller.wait(&mut events.list, events.max, timeout),
        }
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Poller")
    }
}

/// Buffer for the events of a poller.
pub struct Events {
    kernel: Vec<epoll::Event>,
    list: Vec<Event>,
    max: usize,
}

impl Events {
    /// A buffer for at most `max` events.
    pub fn with_capacity(max: usize) -> Self {
        Self { kernel: Vec::with_capacity(max), list: Vec::with_capacity(max), max }
    }

    /// The events of the last wait.
    pub fn list(&self) -> &[Event] {
        &self.list
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    use epoll::EventFlags as F;
    let mut flags = F::empty();
    flags.set(F::IN, interest.readable);
    flags.set(F::OUT, interest.writable);
    flags.set(F::ET | F::RDHUP, interest.edge);
    flags
}

fn timespec(time: Duration) -> Timespec {
    // A day at a time, so that no duration overflows the kernel's type.
    let time = time.min(Duration::from_secs(86_400));
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// Length of one `poll` when there is no deadline.
const LONG: Duration = Duration::from_secs(3600);

/// A flag that ends waits when it is raised: an eventfd, or any descriptor that becomes readable.
/// Clones share it.
#[derive(Clone)]
pub struct Signal(SignalKind);

#[derive(Clone)]
enum SignalKind {
    Os(Arc<OwnedFd>),
    Simulated(Arc<dyn simulated::Signal>),
}

impl Signal {
    /// A signal that is not raised.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn new() -> Result<Self> {
        if let Some(machine) = simulated::current() {
            return Ok(Self(SignalKind::Simulated(machine.signal())));
        }
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(SignalKind::Os(Arc::new(fd))))
    }

    /// A signal that is raised when this descriptor becomes readable.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(SignalKind::Os(Arc::new(fd)))
    }

    /// Raises the signal.
    pub fn raise(&self) {
        match &self.0 {
            // The write fails only if the count is at its maximum, and then the signal is raised
            // already.
            SignalKind::Os(fd) => drop(rustix::io::write(fd, &1u64.to_ne_bytes())),
            SignalKind::Simulated(signal) => signal.raise(),
        }
    }

    /// Clears the signal.
    pub fn clear(&self) {
        match &self.0 {
            // Reading nothing is fine: then the signal was not raised.
            SignalKind::Os(fd) => drop(rustix::io::read(fd, &mut [0u8; 8])),
            SignalKind::Simulated(signal) => signal.clear(),
        }
    }

    /// The file descriptor; `None` on a simulated machine.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            SignalKind::Os(fd) => Some(fd.as_fd()),
            SignalKind::Simulated(_) => None,
        }
    }

    /// Waits until the signal is raised; `false` if `timeout` passes first.
    ///
    /// # Errors
    /// Those of `poll`.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        let fd = match &self.0 {
            SignalKind::Os(fd) => fd,
            SignalKind::Simulated(signal) => return Ok(signal.wait(timeout)),
        };
        let end = timeout.map(|time| crate::clock::now() + time);
        loop {
            let left = end.map(|e| e.saturating_duration_since(crate::clock::now()));
            let mut fds = [PollFd::new(fd, PollFlags::IN)];
            match poll(&mut fds, left.map(timespec).as_ref()) {
                Ok(0) if end.is_some_and(|e| e <= crate::clock::now()) => return Ok(false),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(e) => return Err(e),
            }
        }
    }
}

impl Signal {
    /// Waits until one of these signals is raised.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn wait_for_any(signals: &[&Self]) -> Result<()> {
        let (poller, mut events) = (Poller::new()?, Events::with_capacity(signals.len().max(1)));
        signals.iter().try_for_each(|signal| poller.add_signal(signal, 0))?;
        while events.list().is_empty() {
            match poller.wait(&mut events, LONG) {
                // The process was stopped and has continued.
                Ok(()) | Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signal")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_a_wait_and_can_be_taken_back() {
        let signal = Signal::new().unwrap();
        assert!(!signal.wait(Some(Duration::from_millis(1))).unwrap());
        signal.clone().raise();
        assert!(signal.wait(None).unwrap());
        signal.clear();
        assert!(!signal.wait(Some(Duration::ZERO)).unwrap());
    }

    #[test]
    fn whichever_of_two_signals_is_raised_ends_the_wait() {
        let [one, other] = [(); 2].map(|()| Signal::new().unwrap());
        other.raise();
        Signal::wait_for_any(&[&one, &other]).unwrap();
        other.clear();
        one.raise();
        Signal::wait_for_any(&[&one, &other]).unwrap();
    }

    #[test]
    fn a_poller_tells_of_signals_and_sockets() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        let (a, b) = (Socket::from(OwnedFd::from(a)), Socket::from(OwnedFd::from(b)));
        let (poller, signal) = (Poller::new().unwrap(), Signal::new().unwrap());
        poller.add_socket(&a, 1, Interest::READ).unwrap();
        poller.add_signal(&signal, 2).unwrap();
        let mut events = Events::with_capacity(8);
        poller.wait(&mut events, Duration::ZERO).unwrap();
        assert!(events.list().is_empty());
        signal.raise();
        b.send(&[IoSlice::new(b"hello")], false).unwrap();
        poller.wait(&mut events, Duration::from_secs(5)).unwrap();
        let mut tokens: Vec<_> = events.list().iter().map(|e| e.token).collect();
        tokens.sort();
        assert_eq!(tokens, [1, 2]);
        let mut bytes = [0; 8];
        assert_eq!(a.receive_one(&mut bytes), Ok(5));
        assert_eq!(a.receive_one(&mut bytes), Err(Errno::AGAIN));
    }
}
