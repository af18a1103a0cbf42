//! Stream sockets, a poller for many of them, and signals that end a wait.
//! Everything is non-blocking unless it says otherwise.

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

/// Whether this thread runs on a simulated machine, whose network knows TCP
/// addresses only.
pub fn is_simulated() -> bool {
    simulated::current().is_some()
}

impl Socket {
    /// Begins to connect on the simulated network; `None` if there is none.
    pub fn connect_simulated(address: &str) -> Option<Result<Self>> {
        let machine = simulated::current()?;
        Some(machine.connect(address).map(|s| Self(SocketKind::Simulated(s))))
    }

    /// Listens on the simulated network; `None` if there is none.
    pub fn listen_simulated(address: &str) -> Option<Result<Self>> {
        let machine = simulated::current()?;
        Some(machine.listen(address).map(|s| Self(SocketKind::Simulated(s))))
    }

    /// Its descriptor, if the operating system knows it.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            SocketKind::Os(fd) => Some(fd.as_fd()),
            SocketKind::Simulated(_) => None,
        }
    }

    /// Where a listener of the simulated network listens.
    pub fn simulated_address(&self) -> Option<String> {
        match &self.0 {
            SocketKind::Os(_) => None,
            SocketKind::Simulated(socket) => Some(socket.local_address()),
        }
    }

    /// Sends; returns the bytes taken. With `may_block` the call may wait as
    /// long as the socket's own timeout says (never in a simulation).
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

    /// Receives into several pieces of memory; 0 at the end of the stream.
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

    /// Receives into one piece of memory, never waits; 0 at the end of the stream.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub fn receive_one(&self, into: &mut [u8]) -> Result<usize> {
        match &self.0 {
            SocketKind::Os(fd) => rustix::net::recv(fd, into, RecvFlags::DONTWAIT).map(|(n, _)| n),
            SocketKind::Simulated(socket) => socket.receive(&mut [IoSliceMut::new(into)]),
        }
    }

    /// As [`Socket::receive`], for sockets that are set not to block.
    ///
    /// # Errors
    /// As [`Socket::receive`].
    pub fn read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> Result<usize> {
        match &self.0 {
            SocketKind::Os(fd) => rustix::io::readv(fd, into),
            SocketKind::Simulated(socket) => socket.receive(into),
        }
    }

    /// Says that no more will be sent.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn shut_down(&self) -> Result<()> {
        match &self.0 {
            SocketKind::Os(fd) => rustix::net::shutdown(fd, Shutdown::Write),
            SocketKind::Simulated(socket) => socket.shut_down(),
        }
    }

    /// The next connection of a listener.
    ///
    /// # Errors
    /// `AGAIN`: none; those of the kernel.
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

    /// Why connecting failed, if it did.
    ///
    /// # Errors
    /// Those of the connection attempt.
    pub fn take_error(&self) -> Result<()> {
        match &self.0 {
            SocketKind::Os(fd) => rustix::net::sockopt::socket_error(fd)?,
            SocketKind::Simulated(socket) => socket.take_error().map_or(Ok(()), Err),
        }
    }

    /// Waits until it is ready or broken, or the interrupting descriptor is
    /// readable (the operating system's only).
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
        // What is ready is taken even if an interrupt came as well.
        Ok(match count {
            0 => Woken::TimeOver,
            _ if !fds[0].revents().is_empty() => Woken::Ready,
            _ => Woken::Interrupted,
        })
    }

    /// Waits until one of several has something to receive or is broken: which one is ready; or as
    /// [`Socket::wait`].
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

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// What was waited for.
    Ready,
    /// The interrupting descriptor.
    Interrupted,
    /// The time.
    TimeOver,
}

/// Watches many sockets.
pub struct Poller(PollerKind);

enum PollerKind {
    Os(OwnedFd),
    Simulated(Arc<dyn simulated::Poller>),
}

impl Poller {
    /// One that watches nothing.
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

    /// Watches it for something else.
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

    /// Watches it no more.
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

    /// Replaces the contents of `events` by at most as many as it has room
    /// for; waits at most `timeout` for the first.
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
                    // A copy: the kernel's struct is packed.
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

/// Room for what a poller tells.
pub struct Events {
    kernel: Vec<epoll::Event>,
    list: Vec<Event>,
    max: usize,
}

impl Events {
    /// Room for so many.
    pub fn with_capacity(max: usize) -> Self {
        Self { kernel: Vec::with_capacity(max), list: Vec::with_capacity(max), max }
    }

    /// What was told last.
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

/// For what is waited for as long as it takes.
const LONG: Duration = Duration::from_secs(3600);

/// Something that is raised once and ends waits: an eventfd, or any descriptor
/// that becomes readable. Clones share it.
#[derive(Clone)]
pub struct Signal(SignalKind);

#[derive(Clone)]
enum SignalKind {
    Os(Arc<OwnedFd>),
    Simulated(Arc<dyn simulated::Signal>),
}

impl Signal {
    /// One that is not raised.
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

    /// One that is raised when this descriptor becomes readable.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(SignalKind::Os(Arc::new(fd)))
    }

    /// Raises it.
    pub fn raise(&self) {
        match &self.0 {
            // It fails only when the count is at its maximum: raised then.
            SignalKind::Os(fd) => drop(rustix::io::write(fd, &1u64.to_ne_bytes())),
            SignalKind::Simulated(signal) => signal.raise(),
        }
    }

    /// Takes it back.
    pub fn clear(&self) {
        match &self.0 {
            // Whether it held a count or none does not matter.
            SignalKind::Os(fd) => drop(rustix::io::read(fd, &mut [0u8; 8])),
            SignalKind::Simulated(signal) => signal.clear(),
        }
    }

    /// Its descriptor, if the operating system knows it.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            SignalKind::Os(fd) => Some(fd.as_fd()),
            SignalKind::Simulated(_) => None,
        }
    }

    /// Waits until it is raised; false if the time is over first.
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
    /// Waits until one of these is raised.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn wait_for_any(signals: &[&Self]) -> Result<()> {
        let (poller, mut events) = (Poller::new()?, Events::with_capacity(signals.len().max(1)));
        signals.iter().try_for_each(|signal| poller.add_signal(signal, 0))?;
        while events.list().is_empty() {
            match poller.wait(&mut events, LONG) {
                // The process was stopped, and goes on.
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
