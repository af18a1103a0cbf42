//! Deadlock detection: whether waiting for a lock would close a circle of owners that wait for each
//! other.

use super::{Locks, Owner, Waits};
use std::collections::BTreeSet;
use weir_wire::lock::Lock;

/// The most owners that are followed. Beyond it no circle is assumed.
const MAX_STEPS: usize = 10_000;

impl Locks {
    /// Whether an owner of a lock that conflicts with `lock` waits, directly or through others, for
    /// a lock of `owner`. Owners whose requests do not detect deadlocks (`flock(2)`, and locks of
    /// open files) do not count, as on Linux.
    pub(super) fn would_deadlock(&self, owner: Owner, lock: &Lock) -> bool {
        let mut seen = BTreeSet::new();
        let mut todo: Vec<Owner> = self.all_in_the_way(owner, lock).map(|(o, _)| o).collect();
        while let Some(blocker) = todo.pop() {
            if blocker == owner {
                return true;
            }
            if !seen.insert(blocker) || seen.len() > MAX_STEPS {
                continue;
            }
            let session = blocker.session;
            let waits = self.waiters.range((session, 0)..=(session, u64::MAX));
            for (_, waiter) in waits {
                let links = waiter.counts && waiter.state == Waits::Queued;
                if links && Owner::of(session, &waiter.lock) == blocker {
                    todo.extend(self.all_in_the_way(blocker, &waiter.lock).map(|(o, _)| o));
                }
            }
        }
        false
    }
}
