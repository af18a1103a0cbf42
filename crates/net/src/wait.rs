//! How long to wait, and what ends the wait early.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};
use weir_types::{Error, ErrorKind, Result};

/// A deadline, and a descriptor that ends the wait when it becomes readable.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    deadline: Instant,
    interrupt: Option<RawFd>,
}

impl Wait {
    /// Until so many milliseconds from now.
    pub fn for_ms(ms: u64) -> Self {
        Self::until(Instant::now() + Duration::from_millis(ms))
    }

    /// Until this time.
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, interrupt: None }
    }

    /// Ends with `Interrupted` when the descriptor becomes readable. It must
    /// stay open as long as this is used.
    #[must_use]
    pub fn interruptible(self, interrupt: Option<RawFd>) -> Self {
        Self { interrupt, ..self }
    }

    /// Whether the time is over.
    pub fn expired(&self) -> bool {
        self.remaining().is_zero()
    }

    /// What is left of the time.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Whether something besides time can end the wait.
    pub(crate) fn is_interruptible(&self) -> bool {
        self.interrupt.is_some()
    }

    /// Sleeps so long, but not beyond the deadline.
    ///
    /// Errors: `Interrupted`.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time.min(self.remaining());
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let Some(fd) = self.interrupt_fd() else {
                std::thread::sleep(left);
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

    /// Waits until the descriptor is ready for `events` (or broken: the next
    /// call on it then says so).
    ///
    /// Errors: `TimedOut`, `Interrupted`.
    pub(crate) fn ready(&self, fd: BorrowedFd<'_>, events: PollFlags) -> Result<()> {
        loop {
            let left = self.remaining();
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let interrupt = self.interrupt_fd();
            let mut fds = [
                PollFd::from_borrowed_fd(fd, events),
                PollFd::from_borrowed_fd(interrupt.unwrap_or(fd), PollFlags::IN),
            ];
            let used = if interrupt.is_some() { 2 } else { 1 };
            match poll(&mut fds[..used], Some(&timespec(left))) {
                Ok(0) | Err(Errno::INTR) => {}
                // What is ready is taken even if an interrupt came as well.
                Ok(_) if !fds[0].revents().is_empty() => return Ok(()),
                Ok(_) => return Err(ErrorKind::Interrupted.into()),
                Err(e) => return Err(Error::from(std::io::Error::from(e))),
            }
        }
    }

    fn interrupt_fd(&self) -> Option<BorrowedFd<'_>> {
        let raw = self.interrupt.filter(|fd| *fd >= 0)?;
        // SAFETY: the caller of `interruptible` keeps it open while the wait is
        // used, and it is not -1.
        Some(unsafe { BorrowedFd::borrow_raw(raw) })
    }
}

fn timespec(time: Duration) -> Timespec {
    // A day at a time, so that no duration overflows the kernel's type.
    let time = time.min(Duration::from_secs(86_400));
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let wait = Wait::for_ms(20);
        let start = Instant::now();
        wait.sleep(Duration::from_secs(60)).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert!(start.elapsed() < Duration::from_secs(20));
        assert!(wait.expired());
    }

    #[test]
    fn an_interrupt_ends_a_sleep() {
        let fd = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        let wait = Wait::for_ms(60_000).interruptible(Some(fd.as_raw_fd()));
        let error = wait.sleep(Duration::from_secs(60)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Interrupted);
    }
}
