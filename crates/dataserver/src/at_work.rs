//! For how long a disk has been at its oldest operation. One that hangs neither answers nor
//! fails, and nothing else shows it: the server is heard of, and how the disk is the kernel often
//! answers from memory.
//!
//! A disk that has much to do may take as long for one sync. So an operation counts only from when
//! the disk has last ended anything of its kind, for anybody, as the kernel counts it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weir_host::clock;
use weir_host::device::{Counts, Ended};
use weir_host::sync::Mutex;

/// A disk that has been at one operation for so long is said to hang. Longer than a server may be
/// silent; shorter than clients wait (30 s), so that it is known when their calls fail.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// Where nobody counts what the device ends, so much longer: a sync of all that a file system has
/// may take as long.
const UNCOUNTED: Duration = Duration::from_secs(10);

/// Operations that are watched at a time: more than threads work on a disk, as a rule. One for
/// which there is no room is younger than all that are watched.
const SLOTS: usize = 64;

/// No operation.
const FREE: u64 = 0;

/// What is under way on a disk.
#[derive(Debug)]
pub(crate) struct AtWork {
    reads: Slots,
    changes: Slots,
    counts: Counts,
    /// So long after it began an operation begins to count.
    slack: Duration,
    /// What it has ended, and when reads and writes were last seen to.
    seen: Mutex<Seen>,
}

/// When each operation of a kind began, milliseconds since the machine started, and one more; or
/// [`FREE`].
#[derive(Debug)]
struct Slots([AtomicU64; SLOTS]);

#[derive(Debug, Default)]
struct Seen {
    ended: Option<Ended>,
    reads_at: Duration,
    writes_at: Duration,
}

/// One operation, until it is dropped.
struct Begun<'a>(Option<&'a AtomicU64>);

impl Begun<'_> {
    fn again(&self, now: Duration) {
        if let Some(slot) = self.0 {
            slot.store(stamp(now), Relaxed);
        }
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.store(FREE, Relaxed);
        }
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(FREE)))
    }
}

impl Slots {
    fn begin(&self, now: Duration) -> Begun<'_> {
        let began = stamp(now);
        let free = |slot: &&AtomicU64| slot.compare_exchange(FREE, began, Relaxed, Relaxed).is_ok();
        Begun(self.0.iter().find(free))
    }

    /// When the oldest one began.
    fn oldest(&self) -> Option<Duration> {
        let begun = self.0.iter().map(|slot| slot.load(Relaxed));
        let oldest = begun.filter(|begun| *begun != FREE).min()?;
        Some(Duration::from_millis(oldest - 1))
    }
}

impl AtWork {
    /// Of a disk of which the kernel counts these.
    pub(crate) fn new(counts: Counts) -> Self {
        let (reads, changes, seen) = (Slots::default(), Slots::default(), Mutex::default());
        let slack = if counts.are_known() { Duration::ZERO } else { UNCOUNTED };
        Self { reads, changes, counts, slack, seen }
    }

    /// Carries out a read that waits for the disk, and for nothing else.
    pub(crate) fn on_read<T>(&self, operation: impl FnOnce() -> T) -> T {
        let _begun = self.reads.begin(now());
        operation()
    }

    /// Carries out another operation that does.
    pub(crate) fn on<T>(&self, operation: impl FnOnce() -> T) -> T {
        let _begun = self.changes.begin(now());
        operation()
    }

    /// The same for several operations one after the other: it is told when one has ended.
    pub(crate) fn on_several<T>(&self, operations: impl FnOnce(&dyn Fn()) -> T) -> T {
        let begun = self.changes.begin(now());
        operations(&|| begun.again(now()))
    }

    /// Looks what the disk has ended. To be called some times in [`HANGS_AFTER`].
    pub(crate) fn look(&self) {
        self.has_ended_by(now(), self.counts.ended());
    }

    fn has_ended_by(&self, now: Duration, ended: Option<Ended>) {
        let (mut seen, Some(ended)) = (self.seen.lock(), ended) else { return };
        let before = seen.ended.replace(ended);
        if before.is_some_and(|before| before.reads != ended.reads) {
            seen.reads_at = now;
        }
        if before.is_some_and(|before| before.writes != ended.writes) {
            seen.writes_at = now;
        }
    }

    /// For how long it has been at one operation, and ended nothing of the kind, if that is too
    /// long.
    pub(crate) fn hangs(&self) -> Option<Duration> {
        self.hangs_at(now())
    }

    /// Whether all has ended that was under way then, on the clock of [`clock::since_boot`].
    pub(crate) fn has_ended(&self, then: Duration) -> bool {
        [&self.reads, &self.changes].iter().all(|slots| slots.oldest().is_none_or(|at| at > then))
    }

    fn hangs_at(&self, now: Duration) -> Option<Duration> {
        let seen = self.seen.lock();
        let kinds = [(&self.reads, seen.reads_at), (&self.changes, seen.writes_at)];
        let since = kinds.iter().filter_map(|(slots, ended)| Some(slots.oldest()?.max(*ended)));
        let age = now.saturating_sub(since.min()? + self.slack);
        (age >= HANGS_AFTER).then_some(age)
    }
}

fn stamp(now: Duration) -> u64 {
    now.as_millis() as u64 + 1
}

fn now() -> Duration {
    clock::since_boot()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn disk() -> AtWork {
        AtWork { slack: Duration::ZERO, ..AtWork::new(Counts::of("/nowhere".as_ref())) }
    }

    #[test]
    fn where_nobody_counts_what_ends_more_time_is_allowed() {
        let disk = AtWork::new(Counts::of("/nowhere".as_ref()));
        let _sync = disk.changes.begin(Duration::ZERO);
        assert_eq!(disk.hangs_at(19 * SECOND), None);
        assert_eq!(disk.hangs_at(25 * SECOND), Some(15 * SECOND));
    }

    #[test]
    fn the_oldest_operation_counts_as_long_as_it_is_under_way() {
        let disk = disk();
        assert_eq!(disk.hangs_at(100 * SECOND), None, "nothing is under way");
        let first = disk.changes.begin(Duration::ZERO);
        let second = disk.reads.begin(5 * SECOND);
        assert_eq!(disk.hangs_at(9 * SECOND), None);
        assert_eq!(disk.hangs_at(12 * SECOND), Some(12 * SECOND));
        drop(first);
        assert_eq!(disk.hangs_at(12 * SECOND), None, "the other one is younger");
        assert_eq!(disk.hangs_at(16 * SECOND), Some(11 * SECOND));
        assert!(!disk.has_ended(6 * SECOND) && disk.has_ended(4 * SECOND));
        drop(second);
        assert!(disk.has_ended(6 * SECOND));
        assert_eq!(disk.hangs_at(100 * SECOND), None);
        let several = disk.changes.begin(Duration::ZERO);
        several.again(8 * SECOND);
        assert_eq!(disk.hangs_at(17 * SECOND), None, "one of them has ended");
        assert_eq!(disk.hangs_at(18 * SECOND), Some(10 * SECOND));
    }

    #[test]
    fn a_disk_that_ends_what_others_ask_for_does_not_hang_however_long_one_sync_takes() {
        let disk = disk();
        let ended = |reads, writes| Some(Ended { reads, writes });
        let sync = disk.changes.begin(SECOND);
        for at in 0..60 {
            disk.has_ended_by(at * SECOND, ended(7, u64::from(at)));
            assert_eq!(disk.hangs_at(at * SECOND), None);
        }
        disk.has_ended_by(75 * SECOND, ended(7, 59));
        assert_eq!(disk.hangs_at(75 * SECOND), Some(16 * SECOND), "none since");
        // Those that read from it get on, and say nothing of its writes.
        disk.has_ended_by(76 * SECOND, ended(8, 59));
        assert_eq!(disk.hangs_at(76 * SECOND), Some(17 * SECOND));
        drop(sync);
        let _read = disk.reads.begin(77 * SECOND);
        assert_eq!(disk.hangs_at(88 * SECOND), Some(11 * SECOND));
    }

    #[test]
    fn what_there_is_no_room_for_hides_nothing_that_is_older() {
        let disk = disk();
        let begin = |n| disk.changes.begin(n as u32 * SECOND);
        let many: Vec<Begun<'_>> = (0..SLOTS + 3).map(begin).collect();
        assert_eq!(disk.hangs_at(100 * SECOND), Some(100 * SECOND));
        drop(many);
        assert_eq!(disk.hangs_at(100 * SECOND), None);
        assert_eq!(disk.on(|| disk.hangs()), None, "it has just begun");
    }
}
