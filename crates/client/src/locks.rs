//! Locks of programs (`fcntl`, `flock`): asked for at the metadata server, and
//! remembered, so that a server that has started anew can be told of them.

use crate::client::{Client, Inner};
use crate::context::Context;
use crate::session::REASSERT_BATCH;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use weir_host::sync::Mutex;
use weir_types::{Error, ErrorKind, FileId, Result};
use weir_wire::lock::{
    CancelLockRequest, LAST_BYTE, Lock, LockMode, LockOutcome, LockWait, ReassertLocksRequest,
    SetLockRequest, TestLockRequest, apply,
};

/// An owner of locks on a file.
type Holder = (FileId, u64, bool);

#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    under_way: BTreeSet<u64>,
}

/// The locks that a client holds, and the numbers of its requests.
#[derive(Debug, Default)]
pub(crate) struct LockBook {
    held: Mutex<BTreeMap<Holder, Vec<Lock>>>,
    numbers: Mutex<Numbers>,
    /// The server may have given to others what is held.
    doubtful: AtomicBool,
}

/// A request under way; over when dropped.
struct Asking<'a> {
    book: &'a LockBook,
    number: u64,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.book.numbers.lock().under_way.remove(&self.number);
    }
}

impl LockBook {
    fn begin(&self) -> Asking<'_> {
        let mut numbers = self.numbers.lock();
        numbers.last += 1;
        let number = numbers.last;
        numbers.under_way.insert(number);
        Asking { book: self, number }
    }

    /// All requests with smaller numbers are over; `but` one that is just ending.
    fn floor(&self, but: Option<u64>) -> u64 {
        let numbers = self.numbers.lock();
        let first = numbers.under_way.iter().find(|number| Some(**number) != but);
        first.copied().unwrap_or(numbers.last + 1)
    }

    fn note(&self, lock: &Lock) {
        let mut held = self.held.lock();
        let key = (lock.file, lock.owner, lock.flock);
        let locks = held.entry(key).or_default();
        apply(locks, lock);
        if locks.is_empty() {
            held.remove(&key);
        }
    }

    fn holds(&self, file: FileId, owner: u64, flock: bool) -> bool {
        self.held.lock().contains_key(&(file, owner, flock))
    }

    /// All that is held.
    pub(crate) fn all(&self) -> Vec<Lock> {
        self.held.lock().values().flatten().cloned().collect()
    }

    /// The server has not heard of this client for too long.
    pub(crate) fn doubt(&self) {
        self.doubtful.store(true, Ordering::Release);
    }

    /// The metadata server has given these to others.
    pub(crate) fn lost(&self, locks: &[Lock]) {
        for lock in locks {
            tracing::error!(
                file = lock.file.0,
                pid = lock.pid,
                "a lock was lost while the metadata server could not be reached: \
                 another process holds it now"
            );
            self.note(&Lock { mode: LockMode::Unlock, ..lock.clone() });
        }
    }
}

impl Client {
    /// Locks or unlocks bytes of a file for one of this client's owners; if it
    /// waits, until nobody stands in the way or the caller is interrupted.
    ///
    /// # Errors
    /// `WouldBlock`, `Deadlock`, `Interrupted`, `NoLocks`.
    pub fn set_lock(&self, ctx: &Context, lock: &Lock, wait: LockWait) -> Result<()> {
        self.inner.set_lock(ctx, lock, wait)
    }

    /// A lock that stands in the way of this one.
    pub fn test_lock(&self, ctx: &Context, lock: &Lock) -> Result<Option<Lock>> {
        self.inner.session.call(ctx, &TestLockRequest { lock: lock.clone() })
    }

    /// Gives up all that an owner holds on a file: no message if it is nothing.
    pub fn unlock_all(&self, ctx: &Context, file: FileId, owner: u64, flock: bool) -> Result<()> {
        if !self.inner.holdings.locks.holds(file, owner, flock) {
            return Ok(());
        }
        let mode = LockMode::Unlock;
        let lock = Lock { file, owner, flock, start: 0, last: LAST_BYTE, mode, pid: 0 };
        self.inner.set_lock(ctx, &lock, LockWait::No)
    }
}

impl Inner {
    fn set_lock(&self, ctx: &Context, lock: &Lock, wait: LockWait) -> Result<()> {
        let asking = self.holdings.locks.begin();
        let number = asking.number;
        loop {
            let floor = self.holdings.locks.floor(None);
            let request = SetLockRequest { lock: lock.clone(), number, floor, wait };
            match self.session.call(ctx, &request) {
                Ok(LockOutcome::Granted) => break,
                Ok(LockOutcome::Conflict) => return Err(ErrorKind::WouldBlock.into()),
                Ok(LockOutcome::Waiting) => {}
                Err(error) if wait != LockWait::No => {
                    if self.give_up_waiting(number, &error)? {
                        break;
                    }
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        self.holdings.locks.note(lock);
        Ok(())
    }

    /// If the server may have given to others what this client holds: says
    /// again what that is.
    pub(crate) fn reassert_doubtful_locks(&self) -> Result<()> {
        if !self.holdings.locks.doubtful.load(Ordering::Acquire) {
            return Ok(());
        }
        for batch in self.holdings.locks.all().chunks(REASSERT_BATCH) {
            let request = ReassertLocksRequest { locks: batch.to_vec() };
            self.holdings.locks.lost(&self.session.call(&Context::root(), &request)?);
        }
        self.holdings.locks.doubtful.store(false, Ordering::Release);
        Ok(())
    }

    /// Whether the lock was granted just before the caller was interrupted.
    fn give_up_waiting(&self, number: u64, error: &Error) -> Result<bool> {
        if error.kind != ErrorKind::Interrupted {
            return Ok(false);
        }
        let floor = self.holdings.locks.floor(Some(number));
        self.session.call(&Context::root(), &CancelLockRequest { number, floor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_oldest_request_under_way() {
        let book = LockBook::default();
        let (first, second) = (book.begin(), book.begin());
        assert_eq!((first.number, second.number), (1, 2));
        assert_eq!(book.floor(None), 1);
        assert_eq!(book.floor(Some(1)), 2);
        drop(first);
        assert_eq!(book.floor(None), 2);
        drop(second);
        assert_eq!(book.floor(None), 3);
    }

    #[test]
    fn what_is_unlocked_is_not_asserted_again() {
        let book = LockBook::default();
        let lock = |mode, start, last| Lock {
            file: FileId(1),
            owner: 5,
            flock: false,
            start,
            last,
            mode,
            pid: 1,
        };
        book.note(&lock(LockMode::Exclusive, 0, 9));
        book.note(&lock(LockMode::Unlock, 3, 5));
        assert_eq!(book.all().len(), 2);
        assert!(book.holds(FileId(1), 5, false) && !book.holds(FileId(1), 5, true));
        book.lost(&book.all());
        assert!(book.all().is_empty());
    }
}
