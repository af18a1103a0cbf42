//! Locks of programs (`fcntl`, `flock`). They are requested from the metadata server and recorded,
//! so that they can be reported to a restarted server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_host::sync::Mutex;
use weir_types::FileId;
use weir_wire::lock::{Lock, LockMode, apply};

/// An owner of locks on a file.
pub(crate) type Holder = (FileId, u64, bool);

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
    pub(crate) doubtful: AtomicBool,
    /// Number of times that this was so.
    pub(crate) doubts: AtomicU64,
    /// Requests that could not be sent.
    pub(crate) owed: Mutex<VecDeque<Owed>>,
    /// Held by the thread that sends owed requests.
    pub(crate) settling: Mutex<()>,
    /// Number of unlocks being sent. Locked while held locks are reported again.
    pub(crate) unlocking: Mutex<usize>,
}

/// Bytes whose locks at the server have to be made to agree with the record when the server is
/// reachable.
#[derive(Clone, Debug)]
pub(crate) struct Owed {
    /// Number of the request whose reply is unknown.
    pub(crate) number: u64,
    pub(crate) lock: Lock,
}

/// The owner of a lock.
pub(crate) fn holder(lock: &Lock) -> Holder {
    (lock.file, lock.owner, lock.flock)
}

/// The most owed requests, more than a session can hold. Beyond it the session is given up.
const MAX_OWED: usize = 131_072;

/// A request under way. Its number is over when this is dropped, unless the request is owed.
pub(crate) struct Asking<'a> {
    book: &'a LockBook,
    pub(crate) number: u64,
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
    /// Begins a request.
    pub(crate) fn begin(&self) -> Asking<'_> {
        let mut numbers = self.numbers.lock();
        numbers.last += 1;
        let number = numbers.last;
        numbers.under_way.insert(number);
        Asking { book: self, number, owed: false }
    }

    /// Records that the result of a request is known.
    pub(crate) fn over(&self, number: u64) {
        self.numbers.lock().under_way.remove(&number);
    }

    /// Records that the locks of these bytes have to be made to agree with the record later.
    pub(crate) fn owe(&self, asking: &mut Asking<'_>, lock: &Lock) {
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
    pub(crate) fn owes(&self, holder: Holder) -> bool {
        self.owed.lock().iter().any(|owed| self::holder(&owed.lock) == holder)
    }

    /// Restores the recorded locks on a lock's bytes.
    pub(crate) fn put_back(&self, lock: &Lock, before: Vec<Lock>) {
        self.note(&Lock { mode: LockMode::Unlock, ..lock.clone() });
        before.iter().for_each(|held| self.note(held));
    }

    /// Requests after which a lock's bytes are held as recorded: ascending, locks and unlocks.
    pub(crate) fn wanted(&self, lock: &Lock) -> Vec<Lock> {
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
    pub(crate) fn within(&self, lock: &Lock) -> Vec<Lock> {
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
    pub(crate) fn floor(&self, but: Option<u64>) -> u64 {
        let numbers = self.numbers.lock();
        let first = numbers.under_way.iter().find(|number| Some(**number) != but);
        first.copied().unwrap_or(numbers.last + 1)
    }

    /// Records a granted lock, or an unlock.
    pub(crate) fn note(&self, lock: &Lock) {
        let mut held = self.held.lock();
        let key = holder(lock);
        let locks = held.entry(key).or_default();
        apply(locks, lock);
        if locks.is_empty() {
            held.remove(&key);
        }
    }

    /// Whether an owner holds locks on a file.
    pub(crate) fn holds(&self, file: FileId, owner: u64, flock: bool) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::lock::LAST_BYTE;

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
