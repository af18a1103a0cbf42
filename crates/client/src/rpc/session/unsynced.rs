//! Changes of names and attributes that may not be durable yet. From them the client finds whether
//! the metadata server may have lost some, because its machine restarted before a sync.

use std::time::{Duration, Instant};
use weir_types::{Error, ErrorKind, Result};

/// A change that was acknowledged this long ago is durable without a request: a metadata server
/// syncs within about a second.
const SETTLED: Duration = Duration::from_secs(3);

/// The changes that the metadata server has acknowledged since the last sync.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    /// The boot of the machine that acknowledged the last change, and the time of that.
    last: Option<(u32, Instant)>,
    changes: u64,
}

/// The boot of the machine, from the instance that a metadata server reports.
pub(crate) fn boot_of(instance: u64) -> u32 {
    (instance >> 32) as u32
}

impl Unsynced {
    /// Records a reply of the server. `change` says that it acknowledged a change.
    pub(crate) fn answered(&mut self, instance: u64, change: bool, now: Instant) {
        let boot = boot_of(instance);
        let settled = |(of, at): (u32, Instant)| of == boot && now.duration_since(at) > SETTLED;
        if self.last.is_some_and(settled) {
            self.last = None;
        }
        if change {
            self.changes += 1;
            // What another run acknowledged is what a sync has to tell of.
            if self.last.is_none_or(|(of, _)| of == boot) {
                self.last = Some((boot, now));
            }
        }
    }

    /// Number of changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Records that a sync has succeeded which began after `changes`.
    ///
    /// # Errors
    /// `Io`: acknowledged changes may be lost. It is returned once.
    pub(crate) fn synced(&mut self, changes: u64, instance: u64, now: Instant) -> Result<()> {
        let boot = boot_of(instance);
        let lost = self.last.is_some_and(|(of, _)| of != boot);
        self.last = (self.changes != changes).then_some((boot, now));
        if lost {
            let what = "the machine of the metadata server was started anew since the last \
                        changes, and those of the last second before may be gone";
            return Err(Error::new(ErrorKind::Io, what));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_host::clock::now;

    const OLD: u64 = 7 << 32 | 1;
    const OLD_AGAIN: u64 = 7 << 32 | 2;
    const NEW: u64 = 8 << 32 | 1;

    #[test]
    fn a_sync_tells_once_of_changes_that_a_new_run_of_the_machine_may_have_lost() {
        let mut unsynced = Unsynced::default();
        unsynced.answered(OLD, true, now());
        let changes = unsynced.changes();
        assert_eq!(unsynced.synced(changes, NEW, now()).unwrap_err().kind, ErrorKind::Io);
        unsynced.synced(changes, NEW, now()).unwrap();
    }

    #[test]
    fn a_server_that_was_killed_has_lost_nothing() {
        let mut unsynced = Unsynced::default();
        unsynced.answered(OLD, true, now());
        unsynced.synced(unsynced.changes(), OLD_AGAIN, now()).unwrap();
    }

    #[test]
    fn what_is_synced_or_old_is_not_missed() {
        let mut unsynced = Unsynced::default();
        unsynced.answered(OLD, true, now());
        unsynced.synced(unsynced.changes(), OLD, now()).unwrap();
        unsynced.synced(unsynced.changes(), NEW, now()).unwrap();
        unsynced.answered(NEW, true, now());
        unsynced.answered(NEW, false, now() + Duration::from_secs(4));
        unsynced.synced(unsynced.changes(), OLD, now()).unwrap();
    }

    #[test]
    fn a_change_during_a_sync_is_not_covered_by_it() {
        let mut unsynced = Unsynced::default();
        let changes = unsynced.changes();
        unsynced.answered(OLD, true, now());
        unsynced.synced(changes, OLD, now()).unwrap();
        assert!(unsynced.synced(unsynced.changes(), NEW, now()).is_err());
    }
}
