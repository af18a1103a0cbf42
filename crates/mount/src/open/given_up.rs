//! Reads of pages that have timed out.
//!
//! The kernel asks for pages before it needs them. When that fails it asks once more for the page
//! that a program waits for, before the program gets an error. So that no call waits twice as long
//! as a mount waits for a server, the second timeout is short.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Timeout for bytes whose read has just timed out.
pub(crate) const SECOND_PATIENCE: Duration = Duration::from_secs(1);
/// The kernel asks again within this time. A later read is another one.
const SOON: Duration = Duration::from_secs(1);
/// The most reads that are remembered.
const MAX_READS: usize = 64;

/// Timed-out reads of one handle.
#[derive(Default)]
pub(crate) struct GivenUp(Mutex<VecDeque<(Range<u64>, Instant)>>);

impl GivenUp {
    /// Records that a read of these bytes has failed now, after this time.
    pub(crate) fn note(&self, bytes: &Range<u64>, after: Duration, now: Instant) {
        if after <= SECOND_PATIENCE {
            return;
        }
        let mut reads = self.lock();
        reads.retain(|(_, at)| now.saturating_duration_since(*at) < SOON);
        if reads.len() == MAX_READS {
            reads.pop_front();
        }
        reads.push_back((bytes.clone(), now));
    }

    /// Whether a read of these bytes is the second one. Each failed read has one.
    pub(crate) fn takes(&self, bytes: &Range<u64>, now: Instant) -> bool {
        let mut reads = self.lock();
        let is_first = |(read, at): &(Range<u64>, Instant)| {
            read.start < bytes.end
                && bytes.start < read.end
                && now.saturating_duration_since(*at) < SOON
        };
        let at = reads.iter().position(is_first);
        at.and_then(|at| reads.remove(at)).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Range<u64>, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_read_of_what_was_waited_for_in_vain_is_short_and_the_third_is_not() {
        let (reads, now) = (GivenUp::default(), Instant::now());
        let long = Duration::from_secs(30);
        reads.note(&(0..131_072), long, now);
        assert!(!reads.takes(&(131_072..135_168), now));
        assert!(reads.takes(&(4096..8192), now));
        assert!(!reads.takes(&(4096..8192), now));
        reads.note(&(0..4096), SECOND_PATIENCE, now);
        assert!(!reads.takes(&(0..4096), now), "it was short itself");
        reads.note(&(0..4096), long, now);
        assert!(!reads.takes(&(0..4096), now + SOON), "it is somebody else");
        for _ in 0..2 * MAX_READS {
            reads.note(&(0..4096), long, now);
        }
        assert_eq!(reads.lock().len(), MAX_READS);
    }
}
