//! Locks that programs take on files: `fcntl(2)` and `flock(2)`.

use crate::message::{records, requests};
use weir_types::FileId;

/// The last byte of a lock that reaches to the end of the file, wherever that
/// will be.
pub const LAST_BYTE: u64 = i64::MAX as u64;

/// What a lock does to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// None: unlocks.
    Unlock,
    /// Others may lock shared, too.
    Shared,
    /// Others may not lock.
    Exclusive,
}
weir_types::codec_tag!(LockMode { Unlock = 0, Shared = 1, Exclusive = 2 });

/// How long a request for a lock waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockWait {
    /// It does not.
    No,
    /// Until nobody stands in the way.
    Yes,
    /// The same, unless it waits for somebody who waits for its owner in the same
    /// way, over however many others.
    UnlessDeadlock,
}
weir_types::codec_tag!(LockWait { No = 0, Yes = 1, UnlessDeadlock = 2 });

/// What became of a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// It is held (or released).
    Granted,
    /// Another one stands in the way.
    Conflict,
    /// It still waits: ask again, with the same number.
    Waiting,
}
weir_types::codec_tag!(LockOutcome { Granted = 0, Conflict = 1, Waiting = 2 });

records! {
    /// A lock on bytes of a file.
    Lock {
        /// The file.
        file: FileId,
        /// Whose, within the session: what one owner holds does not stand in
        /// its own way.
        owner: u64,
        /// `flock(2)`, which does not meet locks of `fcntl(2)`.
        flock: bool,
        /// Its first byte.
        start: u64,
        /// Its last byte; [`LAST_BYTE`]: all that follow.
        last: u64,
        /// What it does.
        mode: LockMode,
        /// The process that asked, for those who want to know who is in the way.
        pid: u32,
    }
}

requests! {
    /// Locks or unlocks.
    SetLockRequest(SetLock) -> LockOutcome {
        /// The lock.
        lock: Lock,
        /// Which request for a lock of the session this is; the same when it is
        /// sent again.
        number: u64,
        /// All of the session with smaller numbers are over: should one of them
        /// arrive after this, it is too late.
        floor: u64,
        /// Whether to wait for others to unlock.
        wait: LockWait,
    }
    /// A lock that stands in the way of this one.
    TestLockRequest(TestLock) -> Option<Lock> {
        /// The lock that is wished for.
        lock: Lock,
    }
    /// Waits no longer. Answers whether the lock was granted meanwhile: it is
    /// held then.
    CancelLockRequest(CancelLock) -> bool {
        /// The number of the request that waits.
        number: u64,
        /// As in [`SetLockRequest`].
        floor: u64,
    }
    /// After the server came back: locks that are held. Answers with those
    /// that are lost, because somebody else has them now.
    ReassertLocksRequest(ReassertLocks) -> Vec<Lock> {
        /// The locks.
        locks: Vec<Lock>,
    }
}

/// The locks of one owner on one file: ascending, apart from each other unless
/// they differ.
///
/// `a` replaces whatever the owner held in its range.
pub fn apply(held: &mut Vec<Lock>, a: &Lock) {
    let mut out: Vec<Lock> = Vec::with_capacity(held.len() + 2);
    for lock in held.drain(..) {
        if lock.last < a.start || lock.start > a.last {
            out.push(lock);
            continue;
        }
        if lock.start < a.start {
            out.push(Lock { last: a.start - 1, ..lock.clone() });
        }
        if lock.last > a.last {
            out.push(Lock { start: a.last + 1, ..lock });
        }
    }
    if a.mode != LockMode::Unlock {
        out.push(a.clone());
    }
    out.sort_by_key(|lock| lock.start);
    for lock in out {
        match held.last_mut() {
            Some(before) if before.mode == lock.mode && before.last + 1 == lock.start => {
                before.last = lock.last;
                before.pid = lock.pid;
            }
            _ => held.push(lock),
        }
    }
}

/// Whether two locks of different owners cannot be held at the same time.
pub fn conflict(a: &Lock, b: &Lock) -> bool {
    let exclusive = a.mode == LockMode::Exclusive || b.mode == LockMode::Exclusive;
    let both = a.mode != LockMode::Unlock && b.mode != LockMode::Unlock;
    a.file == b.file
        && a.flock == b.flock
        && exclusive
        && both
        && a.start <= b.last
        && b.start <= a.last
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lock(start: u64, last: u64, mode: u8) -> Lock {
        let mode = [LockMode::Unlock, LockMode::Shared, LockMode::Exclusive][usize::from(mode % 3)];
        Lock { file: FileId(1), owner: 1, flock: false, start, last, mode, pid: 1 }
    }

    proptest! {
        #[test]
        fn each_byte_is_locked_as_the_last_request_for_it_said(
            steps in prop::collection::vec((0u64..40, 0u64..20, 0u8..3), 0..30)
        ) {
            let mut held = Vec::new();
            let mut bytes = [LockMode::Unlock; 64];
            for (start, len, mode) in steps {
                let step = lock(start, start + len, mode);
                bytes[start as usize..=(start + len) as usize].fill(step.mode);
                apply(&mut held, &step);
                for pair in held.windows(2) {
                    prop_assert!(pair[0].last < pair[1].start);
                    prop_assert!(pair[0].last + 1 < pair[1].start || pair[0].mode != pair[1].mode);
                }
                for (at, mode) in bytes.iter().enumerate() {
                    let at = at as u64;
                    let found = held.iter().find(|l| l.start <= at && at <= l.last);
                    prop_assert_eq!(found.map_or(LockMode::Unlock, |l| l.mode), *mode);
                }
            }
        }
    }

    #[test]
    fn shared_locks_meet_and_exclusive_ones_do_not() {
        assert!(!conflict(&lock(0, 9, 1), &lock(5, 20, 1)));
        assert!(conflict(&lock(0, 9, 1), &lock(9, 20, 2)));
        assert!(!conflict(&lock(0, 9, 2), &lock(10, 20, 2)));
        assert!(!conflict(&lock(0, 9, 0), &lock(0, 20, 2)));
        assert!(!conflict(&Lock { flock: true, ..lock(0, 9, 2) }, &lock(0, 9, 2)));
    }
}
