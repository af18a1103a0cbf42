//! Calls that pin the lease of one file while they wait for a lease on another.
//!
//! A metadata server without space for more leases recalls some files' leases from this client. It
//! recalls more files than there are such calls, because otherwise these could pin exactly the
//! files that they wait for (`docs/leases.md`).

use weir_host::sync::{Condvar, Mutex};
use weir_net::Wait;
use weir_types::Result;

/// The most such calls of a client. The server recalls the leases of twice as many files.
const MOST: usize = 16;
/// Length of a wait, which nothing interrupts.
const SLICE: std::time::Duration = std::time::Duration::from_millis(50);

/// Number of such calls.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    entering: Mutex<usize>,
    left: Condvar,
}

/// One such call. Dropped when it has both leases, or neither.
#[derive(Debug)]
pub(crate) struct Pair<'a>(&'a Pairs);

impl Pairs {
    /// Waits until one more call is allowed. The caller must not pin a lease yet.
    ///
    /// # Errors
    /// `TimedOut`, `Interrupted`.
    pub(crate) fn enter(&self, wait: &Wait) -> Result<Pair<'_>> {
        let mut entering = self.entering.lock();
        while *entering >= MOST {
            wait.check().map_err(|e| e.context("wait until other copy calls have their leases"))?;
            entering = self.left.wait_timeout(entering, SLICE);
        }
        *entering += 1;
        Ok(Pair(self))
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        *self.0.entering.lock() -= 1;
        self.0.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::ErrorKind;

    #[test]
    fn no_more_than_so_many_hold_one_file_and_wait_for_another() {
        let pairs = Pairs::default();
        let mut all: Vec<_> = (0..MOST).map(|_| pairs.enter(&Wait::for_ms(0)).unwrap()).collect();
        assert_eq!(pairs.enter(&Wait::for_ms(60)).unwrap_err().kind, ErrorKind::TimedOut);
        drop(all.pop());
        assert!(pairs.enter(&Wait::for_ms(0)).is_ok());
    }
}
