//! Locks that programs take on files: `fcntl(2)` and `flock(2)`.

use crate::message::{records, requests};
use weir_types::FileId;

/// The last byte of a lock that extends to the end of the file, however long the file is.
pub const LAST_BYTE: u64 = i64::MAX as u64;

/// Mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// No lock: unlocks.
    Unlock,
    /// Shared: others may lock shared, too.
    Shared,
    /// Exclusive: others may not lock.
    Exclusive,
}
weir_types::codec_tag!(LockMode { Unlock = 0, Shared = 1, Exclusive = 2 });

/// How long a request for a lock waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockWait {
    /// The request does not wait.
    No,
    /// The request waits until no lock conflicts.
    Yes,
    /// The request waits, unless its owner would then wait for itself, directly or through others.
    UnlessDeadlock,
}
weir_types::codec_tag!(LockWait { No = 0, Yes = 1, UnlessDeadlock = 2 });

/// Outcome of a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// The lock is held (or released).
    Granted,
    /// Another lock conflicts.
    Conflict,
    /// The request still waits: ask again with the same number.
    Waiting,
}
weir_types::codec_tag!(LockOutcome { Granted = 0, Conflict = 1, Waiting = 2 });

records! {
    /// A lock on bytes of a file.
    Lock {
        /// The file.
        file: FileId,
        /// Owner of the lock, unique within the session. Locks of one owner do not conflict.
        owner: u64,
        /// A lock of `flock(2)`, which does not conflict with locks of `fcntl(2)`.
        flock: bool,
        /// First byte.
        start: u64,
        /// Last byte; [`LAST_BYTE`] extends to the end of the file.
        last: u64,
        /// Mode.
        mode: LockMode,
        /// Process that asked for the lock, for those who ask which process holds it.
        pid: u32,
    }
}

requests! {
    /// Locks or unlocks.
    SetLockRequest(SetLock) -> LockOutcome {
        /// The lock.
        lock: Lock,
        /// Number of this lock request within the session; the same when it is sent again.
        number: u64,
        /// All requests of the session with smaller numbers are over. One that arrives later is
        /// refused.
        floor: u64,
        /// Whether to wait for conflicting locks.
        wait: LockWait,
    }
    /// Asks for a lock that conflicts with this one.
    TestLockRequest(TestLock) -> Option<Lock> {
        /// The lock to test.
        lock: Lock,
    }
    /// Cancels a waiting request. The reply says whether the lock was granted meanwhile, and is
    /// therefore held.
    CancelLockRequest(CancelLock) -> bool {
        /// Number of the waiting request.
        number: u64,
        /// As in [`SetLockRequest`].
        floor: u64,
    }
    /// Reports held locks after a restart of the server. The reply has the locks that are lost,
    /// because another owner has them now.
    ReassertLocksRequest(ReassertLocks) -> Vec<Lock> {
        /// The held locks.
        locks: Vec<Lock>,
    }
}

/// Adds a lock to the locks of one owner on one file. They stay ascending, and touch each other
/// only if they differ.
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
