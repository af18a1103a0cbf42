//! Locks of programs (`fcntl`, `flock`).

use super::Client;
use crate::context::Context;
use weir_types::{FileId, Result};
use weir_wire::lock::{LAST_BYTE, Lock, LockMode, LockWait, TestLockRequest};

impl Client {
    /// Locks or unlocks bytes of a file for one of this client's owners. A waiting request waits
    /// until no lock conflicts or the caller is interrupted.
    ///
    /// # Errors
    /// `WouldBlock`, `Deadlock`, `Interrupted`, `NoLocks`.
    pub fn set_lock(&self, ctx: &Context, lock: &Lock, wait: LockWait) -> Result<()> {
        self.inner.set_lock(ctx, lock, wait)
    }

    /// A lock that conflicts with this one.
    pub fn test_lock(&self, ctx: &Context, lock: &Lock) -> Result<Option<Lock>> {
        self.inner.session.call(ctx, &TestLockRequest { lock: lock.clone() })
    }

    /// Whether an owner still holds locks on a file. Another owner may have been granted them while
    /// the metadata server was unreachable.
    pub fn holds_locks(&self, file: FileId, owner: u64) -> bool {
        self.inner.holdings.locks.holds(file, owner, false)
    }

    /// Releases all locks of an owner on a file, without a message if there are none. If the server
    /// is unreachable, it is told later.
    pub fn unlock_all(&self, ctx: &Context, file: FileId, owner: u64, flock: bool) {
        if self.inner.holdings.locks.holds(file, owner, flock) {
            self.inner.unlock(ctx, &nothing(file, owner, flock));
        }
    }

    /// As [`Client::unlock_all`], but the server is told a moment later.
    pub fn unlock_all_later(&self, file: FileId, owner: u64, flock: bool) {
        let book = &self.inner.holdings.locks;
        if book.holds(file, owner, flock) {
            let lock = nothing(file, owner, flock);
            book.note(&lock);
            book.owe(&mut book.begin(), &lock);
        }
    }
}

/// An unlock of all bytes for an owner.
fn nothing(file: FileId, owner: u64, flock: bool) -> Lock {
    Lock { file, owner, flock, start: 0, last: LAST_BYTE, mode: LockMode::Unlock, pid: 0 }
}
