//! The leases of an open file, and their loss.

use super::OpenState;
use crate::core::lease::FileLease;
use std::sync::atomic::Ordering;
use weir_host::sync::MutexGuard;

impl OpenState {
    pub(crate) fn lease(&self) -> MutexGuard<'_, FileLease> {
        self.lease.lock()
    }

    /// Handles the loss of all leases of the file.
    pub(crate) fn lose_leases(&self) {
        // Held until all of it is known: see `losses_so_far`.
        let mut lease = self.lease();
        let wrote = lease.lose();
        // A truncation of our own, whose answer was lost: all that was written
        // before it has arrived.
        let unreported = self.forget_uncommitted() && !self.is_resizing();
        if wrote && (unreported || self.dirty.load(Ordering::Acquire)) {
            self.lost_writes.store(true, Ordering::Release);
        }
        self.losses.fetch_add(1, Ordering::AcqRel);
        self.lease_changed.notify_all();
        drop(lease);
    }

    /// Number of times that leases were lost. Data that was read or written under a lost lease is
    /// not used or sent afterwards.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// As [`OpenState::losses`], including a loss in progress that is dropping unreported writes.
    /// So a caller that finds nothing to report learns why.
    pub(crate) fn losses_so_far(&self) -> u64 {
        let _whole = self.lease();
        self.losses()
    }

    /// Returns, once, whether writes were lost with the leases.
    pub(crate) fn take_lost_writes(&self) -> bool {
        self.lost_writes.swap(false, Ordering::AcqRel)
    }
}
