//! The speed of making and updating copies beside clients' requests. Pure.
//!
//! Between two steps of such work its thread pauses. The pauses keep a rate, and limit the work to
//! a share of the time while clients send requests. The share is one of time, so that the speed of
//! disks and networks need not be known. It is also a minimum, so that a copy is complete some day
//! however busy the clients are.

use std::time::{Duration, Instant};

/// A longer step counts as this long, because something else has delayed it, and no thread should
/// pause for minutes. So on a disk where steps do take longer, the share is greater than the
/// configured one (`docs/copies.md`).
const LONGEST_STEP: Duration = Duration::from_millis(500);

/// The configured speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The most bytes per second; 0 for no limit.
    pub(crate) bytes_per_s: u64,
    /// Share of the time while clients send requests, percent, 1 to 100.
    pub(crate) busy_percent: u8,
    /// Number of threads that divide both between them, at least one.
    pub(crate) threads: u32,
}

/// Work since the last pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Duration of the work.
    pub(crate) took: Duration,
    /// Bytes that were transferred.
    pub(crate) bytes: u64,
    /// Whether clients sent requests meanwhile, or in the pause before it.
    pub(crate) busy: bool,
}

/// The present step of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    bytes: u64,
    /// Number of client requests by the end of the previous step. Requests in the pause count:
    /// otherwise a client with one request in each pause would not.
    asked: u64,
    since: Instant,
}

impl Steps {
    pub(crate) fn new(asked: u64, now: Instant) -> Self {
        Self { bytes: 0, asked, since: now }
    }

    /// Ends the step; the next one is for `bytes`. `asked` is the number of client requests so far;
    /// `is_asked` says that one is under way.
    pub(crate) fn end(&mut self, bytes: u64, asked: u64, is_asked: bool, now: Instant) -> Step {
        let busy = is_asked || asked != self.asked;
        let took = now.saturating_duration_since(self.since);
        let step = Step { took, bytes: self.bytes, busy };
        (self.bytes, self.asked) = (bytes, asked);
        step
    }

    /// Begins the next step, after the pause.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.since = now;
    }
}

impl Pace {
    /// Length of the pause after a step.
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
