//! Locks of programs (`fcntl`, `flock`). They are requested from the metadata server and recorded,
//! so that they can be reported to a restarted server.

use crate::client::{Client, Inner};
use crate::context::Context;
use crate::session::REASSERT_BATCH;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_host::sync::Mutex;
use weir_types::{ErrorKind, FileId, Result, Retry};
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
///
/// Invariants
/// - Only recorded locks are reported as held. So an unlock is removed from the record before it is
///   sent, and is owed until the server has confirmed it.
/// - A lock that the server may have granted without this client's knowledge is asked about until
///   the result is known, and the request's number stays in use until then.
#[derive(Debug, Default)]
pub(crate) struct LockBook {
    held: Mutex<BTreeMap<Holder, Vec<Lock>>>,
    numbers: Mutex<Numbers>,
    /// Whether the server may have granted held locks to other owners.
    doubtful: AtomicBool,
    /// Number of times that this was so.
    doubts: AtomicU64,
    /// Requests that could not be sent.
    owed: Mutex<VecDeque<Owed>>,
    /// Held by the thread that sends owed requests.
    settling: Mutex<()>,
    /// Number of unlocks being sent. Locked while held locks are reported again.
    unlocking: Mutex<usize>,
}

/// Bytes whose locks at the server have to be made to agree with the record when the server is
/// reachable.
#[derive(Clone, Debug)]
struct Owed {
    /// Number of the request whose reply is unknown.
    number: u64,
    lock: Lock,
}

fn holder(lock: &Lock) -> Holder {
    (lock.file, lock.owner, lock.flock)
}

/// The most owed requests, more than a session can hold. Beyond it the session is given up.
const MAX_OWED: usize = 131_072;

/// A request under way. Its number is over when this is dropped, unless the request is owed.
struct Asking<'a> {
    book: &'a LockBook,
    number: u64,
    owed: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.owed {
            self.book.over(self.number);
        }
    }
}

impl LockBook {
    fn begin(&self) -> Asking<'_> {
        let mut numbers = self.numbers.lock();
        numbers.last += 1;
        let number = numbers.last;
        numbers.under_way.insert(number);
        Asking { book: self, number, owed: false }
    }

    fn over(&self, number: u64) {
        self.numbers.lock().under_way.remove(&number);
    }

    fn owe(&self, asking: &mut Asking<'_>, lock: &Lock) {
        let owed = Owed { number: asking.number, lock: lock.clone() };
        let mut queue = self.owed.lock();
        if queue.len() >= MAX_OWED {
            tracing::error!("too many locks to be given up wait for the metadata server");
            return;
        }
        queue.push_back(owed);
        asking.owed = true;
    }

    /// Whether a request is owed for an owner of locks.
    fn owes(&self, holder: Holder) -> bool {
        self.owed.lock().iter().any(|owed| self::holder(&owed.lock) == holder)
    }

    /// Restores the recorded locks on a lock's bytes.
    fn put_back(&self, lock: &Lock, before: Vec<Lock>) {
        self.note(&Lock { mode: LockMode::Unlock, ..lock.clone() });
        before.iter().for_each(|held| self.note(held));
    }

    /// Requests after which a lock's bytes are held as recorded: ascending, locks and unlocks.
    fn wanted(&self, lock: &Lock) -> Vec<Lock> {
        let mut parts = Vec::new();
        let mut from = lock.start;
        let none = |start, last| Lock { start, last, mode: LockMode::Unlock, ..lock.clone() };
        for held in self.within(lock) {
            if from < held.start {
                parts.push(none(from, held.start - 1));
            }
            from = held.last.saturating_add(1);
            parts.push(held);
        }
        if from <= lock.last {
            parts.push(none(from, lock.last));
        }
        parts
    }

    /// The recorded locks on a lock's bytes.
    fn within(&self, lock: &Lock) -> Vec<Lock> {
        let held = self.held.lock();
        let of_it = held.get(&holder(lock)).into_iter().flatten();
        let meets = of_it.filter(|held| held.start <= lock.last && lock.start <= held.last);
        let cut = |held: &Lock| Lock {
            start: held.start.max(lock.start),
            last: held.last.min(lock.last),
            ..held.clone()
        };
        meets.map(cut).collect()
    }

    /// All requests with smaller numbers are over. `but` excludes one that is just ending.
    fn floor(&self, but: Option<u64>) -> u64 {
        let numbers = self.numbers.lock();
        let first = numbers.under_way.iter().find(|number| Some(**number) != but);
        first.copied().unwrap_or(numbers.last + 1)
    }

    fn note(&self, lock: &Lock) {
        let mut held = self.held.lock();
        let key = holder(lock);
        let locks = held.entry(key).or_default();
        apply(locks, lock);
        if locks.is_empty() {
            held.remove(&key);
        }
    }

    fn holds(&self, file: FileId, owner: u64, flock: bool) -> bool {
        self.held.lock().contains_key(&(file, owner, flock))
    }

    /// All held locks.
    pub(crate) fn all(&self) -> Vec<Lock> {
        self.held.lock().values().flatten().cloned().collect()
    }

    /// Records that the server may have revoked the locks, because this client was silent for too
    /// long.
    pub(crate) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::AcqRel);
        self.doubtful.store(true, Ordering::Release);
    }

    /// Records that the metadata server has granted these locks to other owners.
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
    pub(crate) fn holds_locks(&self, file: FileId, owner: u64) -> bool {
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

impl Inner {
    fn set_lock(&self, ctx: &Context, lock: &Lock, wait: LockWait) -> Result<()> {
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
    fn unlock(&self, ctx: &Context, lock: &Lock) {
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

    fn lock(mode: LockMode, start: u64, last: u64) -> Lock {
        Lock { file: FileId(1), owner: 5, flock: false, start, last, mode, pid: 1 }
    }

    #[test]
    fn a_number_whose_answer_is_not_known_is_not_over() {
        let book = LockBook::default();
        let mut first = book.begin();
        book.owe(&mut first, &lock(LockMode::Exclusive, 0, 9));
        drop(first);
        assert_eq!(book.floor(None), 1);
        assert!(book.owes((FileId(1), 5, false)) && !book.owes((FileId(1), 6, false)));
    }

    #[test]
    fn what_is_to_be_held_is_what_the_book_says() {
        let book = LockBook::default();
        book.note(&lock(LockMode::Shared, 3, 5));
        book.note(&lock(LockMode::Exclusive, 8, 20));
        let parts = book.wanted(&lock(LockMode::Exclusive, 0, 10));
        let parts: Vec<_> = parts.iter().map(|l| (l.start, l.last, l.mode)).collect();
        let expected = [
            (0, 2, LockMode::Unlock),
            (3, 5, LockMode::Shared),
            (6, 7, LockMode::Unlock),
            (8, 10, LockMode::Exclusive),
        ];
        assert_eq!(parts, expected);
        let before = book.within(&lock(LockMode::Unlock, 0, LAST_BYTE));
        book.note(&lock(LockMode::Exclusive, 0, LAST_BYTE));
        book.put_back(&lock(LockMode::Exclusive, 0, LAST_BYTE), before.clone());
        assert_eq!(book.all(), before);
    }

    #[test]
    fn what_is_unlocked_is_not_asserted_again() {
        let book = LockBook::default();
        book.note(&lock(LockMode::Exclusive, 0, 9));
        book.note(&lock(LockMode::Unlock, 3, 5));
        assert_eq!(book.all().len(), 2);
        assert!(book.holds(FileId(1), 5, false) && !book.holds(FileId(1), 5, true));
        book.lost(&book.all());
        assert!(book.all().is_empty());
    }
}
