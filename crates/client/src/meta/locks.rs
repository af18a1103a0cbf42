//! Locks of programs: asked for at the metadata server, and owed to it.

use crate::context::Context;
use crate::rpc::session::claims::REASSERT_BATCH;
use crate::state::{Inner, Owed, holder};
use std::sync::atomic::Ordering;
use weir_types::{ErrorKind, Result, Retry};
use weir_wire::lock::{
    CancelLockRequest, Lock, LockMode, LockOutcome, LockWait, ReassertLocksRequest, SetLockRequest,
};

impl Inner {
    /// Locks or unlocks bytes of a file.
    pub(crate) fn set_lock(&self, ctx: &Context, lock: &Lock, wait: LockWait) -> Result<()> {
        if lock.mode == LockMode::Unlock {
            self.unlock(ctx, lock);
            return Ok(());
        }
        let book = &self.holdings.locks;
        if book.owes(holder(lock)) {
            // In order: an unlock from before must not come after this.
            self.settle_locks()?;
        }
        let mut asking = book.begin();
        loop {
            let error = match self.ask_for_lock(ctx, asking.number, lock, wait) {
                Ok(LockOutcome::Waiting) => continue,
                Ok(LockOutcome::Granted) => return Ok(()),
                Ok(LockOutcome::Conflict) => return Err(ErrorKind::WouldBlock.into()),
                Err(error) => error,
            };
            if error.kind.retry() == Retry::Never && error.kind != ErrorKind::Interrupted {
                return Err(error);
            }
            // It may have been granted, or be just now.
            if wait != LockWait::No
                && error.kind == ErrorKind::Interrupted
                && let Ok(granted) = self.cancel_lock(asking.number)
            {
                if granted {
                    book.note(lock);
                    return Ok(());
                }
                return Err(error);
            }
            book.owe(&mut asking, lock);
            return Err(error);
        }
    }

    /// Sends a request once. A granted lock is in the record, and was granted by the run of the
    /// server that knows the record.
    fn ask_for_lock(
        &self,
        ctx: &Context,
        number: u64,
        lock: &Lock,
        wait: LockWait,
    ) -> Result<LockOutcome> {
        let book = &self.holdings.locks;
        let mut before = None;
        loop {
            let doubts = book.doubts.load(Ordering::Acquire);
            let floor = book.floor(None);
            let request = SetLockRequest { lock: lock.clone(), number, floor, wait };
            let (outcome, found) = self.session.ask(ctx, &request);
            if !matches!(outcome, Ok(LockOutcome::Granted)) {
                if let Some(before) = before {
                    book.put_back(lock, before);
                }
                return outcome;
            }
            before.get_or_insert_with(|| book.within(lock));
            book.note(lock);
            let same = doubts == book.doubts.load(Ordering::Acquire);
            if same && found.epoch == self.session.epoch() {
                return Ok(LockOutcome::Granted);
            }
            // The server may have been told what is held just before this was in the
            // book. Asked again, it does not stand in its own way.
        }
    }

    /// Removes a lock from the record and tells the server, now or later.
    pub(crate) fn unlock(&self, ctx: &Context, lock: &Lock) {
        let book = &self.holdings.locks;
        *book.unlocking.lock() += 1;
        book.note(lock);
        let mut asking = book.begin();
        let (number, floor) = (asking.number, book.floor(None));
        let request = SetLockRequest { lock: lock.clone(), number, floor, wait: LockWait::No };
        // In order: what is owed comes first.
        if book.owes(holder(lock)) || self.session.call(ctx, &request).is_err() {
            book.owe(&mut asking, lock);
        }
        *book.unlocking.lock() -= 1;
    }

    fn cancel_lock(&self, number: u64) -> Result<bool> {
        let floor = self.holdings.locks.floor(Some(number));
        self.session.call(&Context::root(), &CancelLockRequest { number, floor })
    }

    /// Sends the owed requests.
    pub(crate) fn settle_locks(&self) -> Result<()> {
        let book = &self.holdings.locks;
        let _one = book.settling.lock();
        loop {
            let Some(Owed { number, lock }) = book.owed.lock().front().cloned() else {
                return Ok(());
            };
            self.cancel_lock(number)?;
            for part in book.wanted(&lock) {
                let (asking, floor) = (book.begin(), book.floor(None));
                let number = asking.number;
                let request =
                    SetLockRequest { lock: part.clone(), number, floor, wait: LockWait::No };
                match self.session.call(&Context::root(), &request) {
                    Ok(LockOutcome::Granted | LockOutcome::Waiting) => {}
                    Ok(LockOutcome::Conflict) => book.lost(&[part]),
                    Err(error) if error.kind.retry() == Retry::Never => book.lost(&[part]),
                    Err(error) => return Err(error),
                }
            }
            book.owed.lock().pop_front();
            book.over(number);
        }
    }

    /// Reports the held locks again, if the server may have granted them to other owners.
    pub(crate) fn reassert_doubtful_locks(&self) -> Result<()> {
        let book = &self.holdings.locks;
        if !book.doubtful.load(Ordering::Acquire) {
            return Ok(());
        }
        let unlocking = book.unlocking.lock();
        if *unlocking > 0 {
            // What is on its way must not be overtaken: next time.
            return Ok(());
        }
        let doubts = book.doubts.load(Ordering::Acquire);
        for batch in book.all().chunks(REASSERT_BATCH) {
            let request = ReassertLocksRequest { locks: batch.to_vec() };
            book.lost(&self.session.call(&Context::root(), &request)?);
        }
        if doubts == book.doubts.load(Ordering::Acquire) {
            book.doubtful.store(false, Ordering::Release);
        }
        drop(unlocking);
        Ok(())
    }
}
