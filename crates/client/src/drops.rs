//! Leases were lost: the layer above the client has to drop everything that it
//! caches, and until it has, no call begins that would show that this client goes
//! on. A thread of its own does it, since those that carry out events may be
//! waiting for servers.
//!
//! Pages of shared mappings that are written back do not wait here: what drops
//! pages waits for them.

use crate::client::Inner;
use std::sync::Arc;
use std::time::Duration;
use weir_host::sync::{Condvar, Mutex};
use weir_net::Wait;
use weir_types::Result;

/// Longest wait without a look at the caller's deadline.
const SLICE: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct State {
    /// There is a layer above, and somebody to tell it.
    served: bool,
    /// Leases are being lost: calls may still be entering under them.
    losing: u32,
    /// It has still to be told.
    wanted: bool,
    /// It is dropping.
    dropping: bool,
}

impl State {
    fn is_clean(&self) -> bool {
        !self.served || self.losing == 0 && !self.wanted && !self.dropping
    }
}

/// What the layer above has still to drop.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    state: Mutex<State>,
    changed: Condvar,
}

impl Drops {
    /// From now on there is a thread that carries it out.
    pub(crate) fn serve(&self) {
        self.state.lock().served = true;
    }

    /// Leases are lost by `lose`. What is read meanwhile has to go, too.
    pub(crate) fn after(&self, lose: impl FnOnce()) {
        self.state.lock().losing += 1;
        lose();
        let mut state = self.state.lock();
        (state.losing, state.wanted) = (state.losing - 1, true);
        drop(state);
        self.changed.notify_all();
    }

    /// The client ends.
    pub(crate) fn stop(&self) {
        self.state.lock().served = false;
        self.changed.notify_all();
    }

    /// Whether nothing has to be dropped.
    pub(crate) fn is_clean(&self) -> bool {
        self.state.lock().is_clean()
    }

    /// Waits until nothing has to be dropped.
    ///
    /// # Errors
    /// `TimedOut`, `Interrupted`.
    pub(crate) fn wait(&self, wait: &Wait) -> Result<()> {
        let mut state = self.state.lock();
        while !state.is_clean() {
            wait.check().map_err(|e| {
                e.context("wait until pages are dropped that were kept under leases now lost")
            })?;
            state = self.changed.wait_timeout(state, SLICE);
        }
        Ok(())
    }

    /// Waits for something to drop; false: the client ends.
    fn next(&self) -> bool {
        let mut state = self.state.lock();
        while state.served && !state.wanted {
            state = self.changed.wait(state);
        }
        (state.wanted, state.dropping) = (false, state.served);
        state.served
    }

    fn done(&self) {
        self.state.lock().dropping = false;
        self.changed.notify_all();
    }
}

impl Inner {
    /// Has the layer above drop everything whenever leases were lost.
    pub(crate) fn drop_lost(self: &Arc<Self>) {
        let Some(upper) = &self.upper else { return };
        while self.holdings.drops.next() {
            upper.drop_everything();
            self.holdings.drops.done();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(drops: &Drops) -> bool {
        drops.wait(&Wait::for_ms(1)).is_ok()
    }

    #[test]
    fn calls_wait_until_everything_that_was_kept_under_lost_leases_is_dropped() {
        let drops = Drops::default();
        drops.serve();
        assert!(is_open(&drops));
        drops.after(|| assert!(!is_open(&drops), "leases are being lost"));
        assert!(!is_open(&drops), "the layer above has not been told");
        assert!(drops.next());
        assert!(!is_open(&drops), "it is dropping");
        // Lost once more meanwhile: what was read since has to go, too.
        drops.after(|| ());
        drops.done();
        assert!(!is_open(&drops));
        assert!(drops.next());
        drops.done();
        assert!(is_open(&drops));
    }

    #[test]
    fn nobody_waits_without_a_layer_above_or_when_the_client_ends() {
        let drops = Drops::default();
        drops.after(|| ());
        assert!(is_open(&drops));
        drops.serve();
        assert!(!is_open(&drops));
        drops.stop();
        assert!(is_open(&drops) && !drops.next());
    }
}
