//! Targets whose parts of whole stripes came much later than the rest: their parts are computed from
//! the rest and a parity. The time is passed in as milliseconds of a monotonic clock.

use std::collections::BTreeMap;
use weir_types::TargetId;

/// A part is late if it takes so many times as long as the slowest of the others.
const TIMES: u64 = 3;
/// No part is late before this time.
const LEAST_MS: u64 = 50;
/// A target that was late is asked again after this time, and after twice as long each further time
/// that it is late.
const FIRST_PAUSE_MS: u64 = 2_000;
const LONGEST_PAUSE_MS: u64 = 30_000;

/// How long to wait for a part, if the others took up to `others_ms`.
pub fn late_after_ms(others_ms: u64) -> u64 {
    others_ms.saturating_mul(TIMES).max(LEAST_MS)
}

/// The targets that were late.
#[derive(Debug, Default)]
pub struct Late {
    /// Until when each is not asked, and the pause before that. At most one entry for each target.
    until_ms: BTreeMap<TargetId, (u64, u64)>,
}

impl Late {
    /// Whether a target need not be asked.
    pub fn is_late(&self, target: TargetId, now_ms: u64) -> bool {
        self.until_ms.get(&target).is_some_and(|(until_ms, _)| now_ms < *until_ms)
    }

    /// Records that a target was late. What several calls say at a time counts once.
    pub fn was_late(&mut self, target: TargetId, now_ms: u64) {
        if self.is_late(target, now_ms) {
            return;
        }
        let pause_ms = self
            .until_ms
            .get(&target)
            .map_or(FIRST_PAUSE_MS, |(_, pause_ms)| (pause_ms * 2).min(LONGEST_PAUSE_MS));
        self.until_ms.insert(target, (now_ms + pause_ms, pause_ms));
    }

    /// Records that a target was not late.
    pub fn was_in_time(&mut self, target: TargetId) {
        self.until_ms.remove(&target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_late_again_is_left_alone_for_longer() {
        let (mut late, target) = (Late::default(), TargetId(3));
        let mut now_ms = 100;
        for pause_ms in [2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            late.was_late(target, now_ms);
            late.was_late(target, now_ms + 1);
            assert!(late.is_late(target, now_ms + pause_ms - 1));
            assert!(!late.is_late(target, now_ms + pause_ms), "{pause_ms}");
            now_ms += pause_ms;
        }
        late.was_in_time(target);
        late.was_late(target, now_ms);
        assert!(!late.is_late(target, now_ms + FIRST_PAUSE_MS), "as at first");
        assert!(!late.is_late(TargetId(4), now_ms));
    }

    #[test]
    fn jitter_is_not_late() {
        assert_eq!((late_after_ms(0), late_after_ms(10), late_after_ms(100)), (50, 50, 300));
    }
}
