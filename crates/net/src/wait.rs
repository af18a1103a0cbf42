//! Deadlines of waits, and what ends a wait early.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};
use weir_host::net::{Interest, Socket, Woken};
use weir_host::{clock, thread};
use weir_types::{Error, ErrorKind, Result};

/// A deadline, and a descriptor whose readability ends the wait. Only for the operating system:
/// nothing interrupts a wait on a simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    deadline: Instant,
    interrupt: Option<RawFd>,
}

/// A check that is made repeatedly during a wait for a connection.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Interval of the check.
    pub every: Duration,
    /// The check. An error ends the wait.
    pub look: &'a dyn Fn() -> Result<()>,
}

impl Wait {
    /// A deadline this many milliseconds from now.
    pub fn for_ms(ms: u64) -> Self {
        Self::until(clock::now() + Duration::from_millis(ms))
    }

    /// A deadline at this time.
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, interrupt: None }
    }

    /// Makes the wait end with `Interrupted` when the descriptor becomes readable. The descriptor
    /// must stay open as long as this is used.
    #[must_use]
    pub fn interruptible(self, interrupt: Option<RawFd>) -> Self {
        Self { interrupt, ..self }
    }

    /// As this wait, but with a deadline at most `time` from now.
    #[must_use]
    pub fn at_most(&self, time: Duration) -> Self {
        Self { deadline: self.deadline.min(clock::now() + time), ..*self }
    }

    /// Whether the deadline has passed.
    pub fn expired(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Time until the deadline.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(clock::now())
    }

    /// Checks whether a wait of another kind (for example for a lock) may go on.
    ///
    /// # Errors
    /// `Interrupted` if the descriptor is readable, `TimedOut` after the deadline.
    pub fn check(&self) -> Result<()> {
        if self.expired() {
            return Err(ErrorKind::TimedOut.into());
        }
        let Some(fd) = self.interrupt_fd() else { return Ok(()) };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(Duration::ZERO))) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => Err(ErrorKind::Interrupted.into()),
            Err(e) => Err(std::io::Error::from(e).into()),
        }
    }

    /// Whether a descriptor can end the wait.
    pub fn is_interruptible(&self) -> bool {
        self.interrupt.is_some()
    }

    /// Sleeps for `time`, at most until the deadline.
    ///
    /// Errors: `Interrupted`.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let end = clock::now() + time.min(self.remaining());
        loop {
            let left = end.saturating_duration_since(clock::now());
            if left.is_zero() {
                return Ok(());
            }
            let Some(fd) = self.interrupt_fd() else {
                thread::sleep(left);
                continue;
            };
            let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Err(ErrorKind::Interrupted.into()),
                Err(e) => return Err(std::io::Error::from(e).into()),
            }
        }
    }

    /// Waits until the socket is ready, or broken (the next call on it then fails). After the
    /// deadline it checks once without waiting.
    ///
    /// Errors: `TimedOut`, `Interrupted`.
    pub(crate) fn ready(&self, socket: &Socket, interest: Interest) -> Result<()> {
        let wait = |left| socket.wait(interest, left, self.interrupt_fd());
        self.woken(|left| wait(left).map(|woken| (woken, ())))
    }

    /// Waits until one of several sockets is readable or broken, and returns its index.
    pub(crate) fn any_readable(&self, sockets: &[&Socket]) -> Result<usize> {
        self.woken(|left| Socket::wait_for_any(sockets, left, self.interrupt_fd()))
    }

    fn woken<T>(&self, wait: impl Fn(Duration) -> rustix::io::Result<(Woken, T)>) -> Result<T> {
        loop {
            let left = self.remaining();
            match wait(left) {
                Ok((Woken::TimeOver, _)) if left.is_zero() => {
                    return Err(ErrorKind::TimedOut.into());
                }
                Ok((Woken::TimeOver, _)) | Err(Errno::INTR) => {}
                Ok((Woken::Ready, which)) => return Ok(which),
                Ok((Woken::Interrupted, _)) => return Err(ErrorKind::Interrupted.into()),
                Err(e) => return Err(Error::from(std::io::Error::from(e))),
            }
        }
    }

    /// As [`Wait::ready`], with a watch that may end the wait.
    pub(crate) fn ready_watched(
        &self,
        socket: &Socket,
        interest: Interest,
        watch: Option<Watch<'_>>,
    ) -> Result<()> {
        let Some(Watch { every, look }) = watch else { return self.ready(socket, interest) };
        loop {
            match self.at_most(every).ready(socket, interest) {
                Err(error) if error.kind == ErrorKind::TimedOut && !self.expired() => look()?,
                result => return result,
            }
        }
    }

    fn interrupt_fd(&self) -> Option<BorrowedFd<'_>> {
        let raw = self.interrupt.filter(|fd| *fd >= 0 && !weir_host::net::is_simulated())?;
        // SAFETY: the caller of `interruptible` keeps the descriptor open while the wait is used,
        // and it is not -1.
        Some(unsafe { BorrowedFd::borrow_raw(raw) })
    }
}

fn timespec(time: Duration) -> Timespec {
    // A day at a time, so that no duration overflows the kernel's type.
    let time = time.min(Duration::from_secs(86_400));
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests ask the operating system.
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let wait = Wait::for_ms(20);
        let start = clock::now();
        wait.sleep(Duration::from_secs(60)).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert!(start.elapsed() < Duration::from_secs(20));
        assert!(wait.expired());
    }

    #[test]
    fn what_has_come_is_noticed_without_waiting() {
        let (mine, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = Socket::from(rustix::fd::OwnedFd::from(mine));
        let ready = || Wait::for_ms(0).ready(&socket, Interest::READ);
        assert_eq!(ready().unwrap_err().kind, ErrorKind::TimedOut);
        rustix::io::write(&other, b"x").unwrap();
        ready().unwrap();
    }

    #[test]
    fn of_several_sockets_the_one_that_has_something_is_told_and_an_interrupt_only_if_none_has() {
        let pairs = [(); 3].map(|()| std::os::unix::net::UnixStream::pair().unwrap());
        let (mine, others): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let sockets: Vec<_> =
            mine.into_iter().map(|s| Socket::from(rustix::fd::OwnedFd::from(s))).collect();
        let sockets: Vec<&Socket> = sockets.iter().collect();
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let any = |ms| {
            let wait = Wait::for_ms(ms).interruptible(Some(interrupt.as_raw_fd()));
            wait.any_readable(&sockets).map_err(|e| e.kind)
        };
        assert_eq!(any(0), Err(ErrorKind::TimedOut));
        rustix::io::write(&interrupt, &1u64.to_ne_bytes()).unwrap();
        assert_eq!(any(60_000), Err(ErrorKind::Interrupted));
        rustix::io::write(&others[2], b"x").unwrap();
        assert_eq!(any(60_000), Ok(2));
        drop(others);
        assert_eq!(any(60_000), Ok(0), "to receive says that it is broken");
    }

    #[test]
    fn an_interrupt_ends_a_sleep() {
        let fd = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        let wait = Wait::for_ms(60_000).interruptible(Some(fd.as_raw_fd()));
        let error = wait.sleep(Duration::from_secs(60)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Interrupted);
    }
}
