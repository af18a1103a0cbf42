//! The turns of the background threads, and their end.

use std::time::Duration;
use weir_host::sync::{Condvar, Mutex};

/// Wakes the background threads.
#[derive(Default)]
pub(crate) struct Turns {
    ended: Mutex<bool>,
    wake: Condvar,
}

impl Turns {
    /// Waits for the next turn, at most this long. Returns false at the end of the client.
    pub(crate) fn next(&self, longest: Duration) -> bool {
        !*self.wake.wait_timeout(self.ended.lock(), longest)
    }

    /// Begins the next turn now.
    pub(crate) fn hurry(&self) {
        self.wake.notify_all();
    }

    /// Ends all turns.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
        self.wake.notify_all();
    }

    /// Whether the client has not ended.
    pub(crate) fn go_on(&self) -> bool {
        !*self.ended.lock()
    }
}
