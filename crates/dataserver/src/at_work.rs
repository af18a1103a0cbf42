//! For how long a disk has been at its oldest operation. One that hangs neither answers nor
//! fails, and nothing else shows it: the server is heard of, and how the disk is the kernel often
//! answers from memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weir_host::clock;

/// A disk that has been at one operation for so long is said to hang. Longer than a server may be
/// silent, and than one sync takes on a disk that has much to do (some seconds); shorter than
/// clients wait (30 s), so that it is known when their calls fail.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// Operations that are watched at a time: more than threads work on a disk, as a rule. One for
/// which there is no room is younger than all that are watched.
const SLOTS: usize = 64;

/// No operation.
const FREE: u64 = 0;

/// What is under way on a disk.
#[derive(Debug)]
pub(crate) struct AtWork {
    /// When each operation began, milliseconds since the machine started, and one more; or
    /// [`FREE`].
    begun: [AtomicU64; SLOTS],
}

impl Default for AtWork {
    fn default() -> Self {
        Self { begun: std::array::from_fn(|_| AtomicU64::new(FREE)) }
    }
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

impl AtWork {
    /// Carries out an operation that waits for the disk, and for nothing else.
    pub(crate) fn on<T>(&self, operation: impl FnOnce() -> T) -> T {
        let _begun = self.begin(now());
        operation()
    }

    /// The same for several operations one after the other: it is told when one has ended.
    pub(crate) fn on_several<T>(&self, operations: impl FnOnce(&dyn Fn()) -> T) -> T {
        let begun = self.begin(now());
        operations(&|| begun.again(now()))
    }

    fn begin(&self, now: Duration) -> Begun<'_> {
        let began = stamp(now);
        let free = |slot: &&AtomicU64| slot.compare_exchange(FREE, began, Relaxed, Relaxed).is_ok();
        Begun(self.begun.iter().find(free))
    }

    /// For how long it has been at one operation, if that is too long.
    pub(crate) fn hangs(&self) -> Option<Duration> {
        self.hangs_at(now())
    }

    /// Whether all has ended that was under way then, on the clock of [`clock::since_boot`].
    pub(crate) fn has_ended(&self, then: Duration) -> bool {
        let begun = self.begun.iter().map(|slot| slot.load(Relaxed));
        begun.filter(|begun| *begun != FREE).all(|begun| begun > stamp(then))
    }

    fn hangs_at(&self, now: Duration) -> Option<Duration> {
        let begun = self.begun.iter().map(|slot| slot.load(Relaxed));
        let oldest = begun.filter(|begun| *begun != FREE).min()?;
        let age = now.saturating_sub(Duration::from_millis(oldest - 1));
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

    #[test]
    fn the_oldest_operation_counts_as_long_as_it_is_under_way() {
        let disk = AtWork::default();
        assert_eq!(disk.hangs_at(100 * SECOND), None, "nothing is under way");
        let first = disk.begin(Duration::ZERO);
        let second = disk.begin(5 * SECOND);
        assert_eq!(disk.hangs_at(9 * SECOND), None);
        assert_eq!(disk.hangs_at(12 * SECOND), Some(12 * SECOND));
        drop(first);
        assert_eq!(disk.hangs_at(12 * SECOND), None, "the other one is younger");
        assert_eq!(disk.hangs_at(16 * SECOND), Some(11 * SECOND));
        assert!(!disk.has_ended(6 * SECOND) && disk.has_ended(4 * SECOND));
        drop(second);
        assert!(disk.has_ended(6 * SECOND));
        assert_eq!(disk.hangs_at(100 * SECOND), None);
        let several = disk.begin(Duration::ZERO);
        several.again(8 * SECOND);
        assert_eq!(disk.hangs_at(17 * SECOND), None, "one of them has ended");
        assert_eq!(disk.hangs_at(18 * SECOND), Some(10 * SECOND));
    }

    #[test]
    fn what_there_is_no_room_for_hides_nothing_that_is_older() {
        let disk = AtWork::default();
        let many: Vec<Begun<'_>> = (0..SLOTS + 3).map(|n| disk.begin(n as u32 * SECOND)).collect();
        assert_eq!(disk.hangs_at(100 * SECOND), Some(100 * SECOND));
        drop(many);
        assert_eq!(disk.hangs_at(100 * SECOND), None);
        assert_eq!(disk.on(|| disk.hangs()), None, "it has just begun");
    }
}
