//! Detection of hung disks: for how long a disk has been at its oldest operation. A hung disk
//! neither replies nor fails, and nothing else shows it: heartbeats go on, and the kernel often
//! answers from memory.
//!
//! A busy disk may take as long for one sync. So an operation counts only from when the disk has
//! last completed any operation of its kind, for any process, according to the kernel's counters.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weir_host::clock;
use weir_host::device::{Counts, Ended};
use weir_host::sync::Mutex;

/// A disk that has been at one operation for this long counts as hung. The time is longer than a
/// server may be silent, and shorter than clients wait (30 s), so that the hang is known when their
/// calls fail.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// Added to that time if the kernel does not count the device's operations, because a sync of a
/// whole file system may take as long.
const UNCOUNTED: Duration = Duration::from_secs(10);

/// The most operations that are watched at a time. There are usually fewer threads for a disk. An
/// operation that is not watched is younger than all watched ones.
const SLOTS: usize = 64;

/// A slot without an operation.
const FREE: u64 = 0;

/// Operations under way on a disk.
#[derive(Debug)]
pub(crate) struct AtWork {
    reads: Slots,
    changes: Slots,
    counts: Counts,
    /// Time after its begin from which an operation counts.
    slack: Duration,
    /// Counters of completed operations, and when they last changed for reads and writes.
    seen: Mutex<Seen>,
}

/// Begin of each operation of a kind, milliseconds since the machine started plus one; or [`FREE`].
#[derive(Debug)]
struct Slots([AtomicU64; SLOTS]);

#[derive(Debug, Default)]
struct Seen {
    ended: Option<Ended>,
    reads_at: Duration,
    writes_at: Duration,
}

/// One operation under way, until it is dropped.
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

    /// Begin of the oldest operation.
    fn oldest(&self) -> Option<Duration> {
        let begun = self.0.iter().map(|slot| slot.load(Relaxed));
        let oldest = begun.filter(|begun| *begun != FREE).min()?;
        Some(Duration::from_millis(oldest - 1))
    }
}

impl AtWork {
    /// Watches a disk with these kernel counters.
    pub(crate) fn new(counts: Counts) -> Self {
        let (reads, changes, seen) = (Slots::default(), Slots::default(), Mutex::default());
        let slack = if counts.are_known() { Duration::ZERO } else { UNCOUNTED };
        Self { reads, changes, counts, slack, seen }
    }

    /// Carries out a read that waits for nothing but the disk.
    pub(crate) fn on_read<T>(&self, operation: impl FnOnce() -> T) -> T {
        let _begun = self.reads.begin(now());
        operation()
    }

    /// Carries out another operation that waits for nothing but the disk.
    pub(crate) fn on<T>(&self, operation: impl FnOnce() -> T) -> T {
        let _begun = self.changes.begin(now());
        operation()
    }

    /// Carries out several operations in a row. The argument of `operations` is to be called when
    /// each has ended.
    pub(crate) fn on_several<T>(&self, operations: impl FnOnce(&dyn Fn()) -> T) -> T {
        let begun = self.changes.begin(now());
        operations(&|| begun.again(now()))
    }

    /// Reads the kernel's counters. To be called several times in [`HANGS_AFTER`].
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

    /// For how long the disk has been at one operation without completing any of its kind, if that
    /// is too long.
    pub(crate) fn hangs(&self) -> Option<Duration> {
        self.hangs_at(now())
    }

    /// Whether all operations have ended that were under way at `then`, on the clock of
    /// [`clock::since_boot`].
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
