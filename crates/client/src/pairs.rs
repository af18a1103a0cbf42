//! Calls that hold one file fast while they wait for a lease of another.
//!
//! A metadata server that has no more room for leases asks this client for some files
//! back: always more than there are such calls, or these could hold just the files that
//! they wait for (`docs/leases.md`).

use weir_host::sync::{Condvar, Mutex};
use weir_net::Wait;
use weir_types::Result;

/// The most such calls of a client; the server asks for twice as many files.
const MOST: usize = 16;
/// Nothing interrupts a wait; one is this long.
const SLICE: std::time::Duration = std::time::Duration::from_millis(50);

/// How many there are.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    entering: Mutex<usize>,
    left: Condvar,
}

/// One of them, until dropped: when it has both leases, or neither.
#[derive(Debug)]
pub(crate) struct Pair<'a>(&'a Pairs);

impl Pairs {
    /// Waits until there is room for one more. The caller holds nothing fast yet.
    ///
    /// # Errors
    /// `TimedOut`, `Interrupted`.
    pub(crate) fn enter(&self, wait: &Wait) -> Result<Pair<'_>> {
        let mut entering = self.entering.lock();
        while *entering >= MOST {
            wait.check().map_err(|e| e.context("wait until other copies have their leases"))?;
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
