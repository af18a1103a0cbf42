//! How fast copies are made and brought up to date beside what clients ask for: pure.
//!
//! Between two steps of such work its thread pauses: so long that a rate is kept, and,
//! while clients ask for something, so long that it works for a share of the time only.
//! The share is one of time, so nobody has to know how fast disks and networks are; it is
//! a floor too, so a copy is whole some day however busy the clients are.

use std::time::{Duration, Instant};

/// A step that took longer counts as one that took so long: what held it up was not the
/// step, and nobody is made to wait for minutes. So on a disk where steps do take longer the
/// share is greater than the one that is set (`docs/copies.md`).
const LONGEST_STEP: Duration = Duration::from_millis(500);

/// What is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Bytes a second at the most; 0: any.
    pub(crate) bytes_per_s: u64,
    /// While clients ask for something it works for this share of the time, 1 to 100.
    pub(crate) busy_percent: u8,
    /// Threads that share both, at least one: each has its part of them.
    pub(crate) threads: u32,
}

/// What has been done since the last pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// How long it took.
    pub(crate) took: Duration,
    /// Bytes that were brought over.
    pub(crate) bytes: u64,
    /// Clients asked for something meanwhile, or in the pause before it.
    pub(crate) busy: bool,
}

/// The step that a thread is at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    bytes: u64,
    /// So often clients had asked for something by the end of the step before it. What they
    /// ask for in the pause counts: who asks once for each pause would count as nobody.
    asked: u64,
    since: Instant,
}

impl Steps {
    pub(crate) fn new(asked: u64, now: Instant) -> Self {
        Self { bytes: 0, asked, since: now }
    }

    /// It has ended, and the next one is of so many bytes. `asked`: so often clients have asked
    /// for something; `is_asked`: some of that is under way.
    pub(crate) fn end(&mut self, bytes: u64, asked: u64, is_asked: bool, now: Instant) -> Step {
        let busy = is_asked || asked != self.asked;
        let took = now.saturating_duration_since(self.since);
        let step = Step { took, bytes: self.bytes, busy };
        (self.bytes, self.asked) = (bytes, asked);
        step
    }

    /// The next one begins, after the pause.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.since = now;
    }
}

impl Pace {
    /// How long to pause after a step.
    pub(crate) fn pause(&self, step: Step) -> Duration {
        let threads = self.threads.max(1);
        let by_rate = match self.bytes_per_s {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(step.bytes as f64 / rate as f64) * threads,
        };
        let by_rate = by_rate.saturating_sub(step.took);
        let share = u32::from(self.busy_percent.clamp(1, 100));
        let rest = threads * 100 - share;
        match step.busy {
            true => by_rate.max(step.took.min(LONGEST_STEP / threads) * rest / share),
            false => by_rate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step(took_ms: u64, bytes: u64, busy: bool) -> Step {
        Step { took: Duration::from_millis(took_ms), bytes, busy }
    }

    #[test]
    fn all_is_given_when_nobody_asks_and_a_share_when_somebody_does() {
        let pace = Pace { bytes_per_s: 0, busy_percent: 25, threads: 1 };
        assert_eq!(pace.pause(step(10, 1 << 20, false)), Duration::ZERO);
        assert_eq!(pace.pause(step(10, 1 << 20, true)), Duration::from_millis(30));
        let slow = Pace { bytes_per_s: 1 << 20, ..pace };
        assert_eq!(slow.pause(step(10, 1 << 20, false)), Duration::from_millis(990));
        assert_eq!(slow.pause(step(400, 1 << 20, true)), Duration::from_millis(1200));
        // Two threads together do what one would.
        let two = Pace { threads: 2, ..pace };
        assert_eq!(two.pause(step(10, 1 << 20, true)), Duration::from_millis(70));
        assert_eq!(two.pause(step(10, 1 << 20, false)), Duration::ZERO);
        let two = Pace { threads: 2, ..slow };
        assert_eq!(two.pause(step(10, 1 << 20, false)), Duration::from_millis(1990));
    }

    #[test]
    fn what_clients_ask_for_in_a_pause_counts_for_the_step_after_it() {
        let begun = weir_host::clock::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut steps = Steps::new(7, begun);
        let first = steps.end(5, 8, false, at(10));
        assert_eq!(first, step(10, 0, true));
        // In the pause somebody asks, and is answered.
        steps.begin(at(50));
        assert_eq!(steps.end(6, 9, false, at(60)), step(10, 5, true));
        steps.begin(at(90));
        assert_eq!(steps.end(7, 9, false, at(95)), step(5, 6, false), "nobody has since");
        steps.begin(at(95));
        assert_eq!(steps.end(8, 9, true, at(100)), step(5, 7, true), "it is under way");
    }

    proptest! {
        #[test]
        fn rate_and_share_are_kept_and_the_work_goes_on(
            rate in prop_oneof![Just(0u64), 1_000u64..10_000_000_000],
            percent in 1u8..=100,
            steps in prop::collection::vec((1u64..500, 0u64..(1 << 20), any::<bool>()), 1..50),
        ) {
            let pace = Pace { bytes_per_s: rate, busy_percent: percent, threads: 1 };
            let (mut busy, mut busy_worked, mut all, mut bytes) =
                (Duration::ZERO, Duration::ZERO, Duration::ZERO, 0);
            for (took, len, is_busy) in steps {
                let step = step(took, len, is_busy);
                let pause = pace.pause(step);
                all += step.took + pause;
                bytes += len;
                if is_busy {
                    busy += step.took + pause;
                    busy_worked += step.took;
                } else if rate == 0 {
                    prop_assert_eq!(pause, Duration::ZERO);
                }
                // It goes on: by its share, or by its rate.
                let share = step.took * 100 / u32::from(percent);
                let by_rate = if rate == 0 { 0.0 } else { len as f64 / rate as f64 };
                let most = share.as_secs_f64().max(by_rate) + 1e-6;
                prop_assert!(pause.as_secs_f64() <= most);
            }
            let allowed = busy.as_secs_f64() * f64::from(percent) / 100.0;
            prop_assert!(busy_worked.as_secs_f64() <= allowed + 1e-6);
            if rate > 0 {
                prop_assert!(bytes as f64 <= all.as_secs_f64() * rate as f64 * 1.000_001 + 1.0);
            }
        }
    }
}
