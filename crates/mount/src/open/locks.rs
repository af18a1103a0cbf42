//! Locks of open handles, until they are released.
//!
//! The kernel itself unlocks what a process holds when it closes any descriptor of the file
//! (`FLUSH` names the owner), and `flock` locks at the last close. Locks of open file descriptions
//! (`F_OFD_SETLK`) are left to the file system, without being told apart from those of processes.
//! So every lock is recorded with its handle, and the rest of them are released with the handle.
//! Those of a process are released with its `FLUSH`, and are no longer recorded: a handle may live
//! long and be locked by very many processes.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Owners that have locked through each handle.
#[derive(Debug, Default)]
pub(crate) struct HandleLocks {
    owners: Mutex<HashMap<u64, HashSet<u64>>>,
}

impl HandleLocks {
    /// Records that an owner is about to lock through a handle.
    pub(crate) fn note(&self, fh: u64, owner: u64) {
        self.lock().entry(fh).or_default().insert(owner);
    }

    /// Records that an owner has unlocked everything.
    pub(crate) fn forget(&self, fh: u64, owner: u64) {
        let mut handles = self.lock();
        if let Some(owners) = handles.get_mut(&fh) {
            owners.remove(&owner);
            if owners.is_empty() {
                handles.remove(&fh);
            }
        }
    }

    /// Removes a closed handle. Returns owners with possible locks.
    pub(crate) fn close(&self, fh: u64) -> HashSet<u64> {
        self.lock().remove(&fh).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, HashSet<u64>>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_locked_through_a_handle_is_known_at_its_close() {
        let locks = HandleLocks::default();
        locks.note(1, 10);
        locks.note(1, 10);
        locks.note(1, 11);
        locks.note(2, 12);
        assert_eq!(locks.close(1), HashSet::from([10, 11]));
        assert!(locks.close(1).is_empty());
        locks.forget(2, 13);
        assert_eq!(locks.close(2), HashSet::from([12]));
        for owner in 0..100 {
            locks.note(3, owner);
            locks.forget(3, owner);
        }
        assert!(locks.lock().is_empty(), "processes that have closed theirs");
    }
}
