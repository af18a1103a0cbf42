//! Watermarks: when a reader begins to use a copy on another reader's disk, and when it stops (1.19
//! of graduated declustering).

use crate::Progress;

/// The low mark is at least this many requests.
const LOW_REQUESTS: u64 = 1;
/// The high mark is at least this many requests.
const HIGH_REQUESTS: u64 = 2;
/// A reader whose own disk would suffice may be behind by this share before it uses another copy.
const LONG_SHARE: f64 = 1.0 / 16.0;
/// The same limit in bytes, if that is less. It is never below the limit of other readers.
const LONG_BYTES: u64 = 10 << 20;

/// Leads of the reader that owns a disk, as shares of the whole work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    /// The copy is used from this lead on.
    pub high: f64,
    /// A copy in use is used down to this lead.
    pub low: f64,
    /// Whether the high mark falls towards the low mark as the reader's own work ends (1.W3): early
    /// differences have time to even out, late ones have not.
    pub adapts: bool,
    /// Size of a request, the step of progress, bytes.
    pub request_bytes: u64,
}

impl Default for Watermarks {
    /// Found with the model in `tests/paces.rs`: greater marks react later, smaller ones make
    /// readers switch back and forth.
    fn default() -> Self {
        Self { high: 0.01, low: 0.001, adapts: true, request_bytes: 64 << 10 }
    }
}

impl Watermarks {
    /// The marks for a reader with this much work. A lead of less than some requests does not
    /// count.
    #[must_use]
    pub fn for_work(self, work_bytes: u64) -> Self {
        let requests = |count: u64| (count * self.request_bytes) as f64 / work_bytes.max(1) as f64;
        let low = self.low.max(requests(LOW_REQUESTS));
        Self { high: self.high.max(requests(HIGH_REQUESTS)), low, ..self }
    }

    /// As [`Self::for_work`], for a reader whose own disk keeps up with it. It uses another copy
    /// seldom, and then for more bytes, so that disks seek seldom. Not for a reader that needs the
    /// other copy all the time: it would only begin late.
    #[must_use]
    pub fn for_long_runs(self, work_bytes: u64) -> Self {
        let marks = self.for_work(work_bytes);
        let most = LONG_BYTES as f64 / work_bytes.max(1) as f64;
        Self { high: marks.high.max(LONG_SHARE.min(most)), ..marks }
    }

    /// The high mark for a reader with this progress.
    pub fn high_at(&self, own: Progress) -> f64 {
        if !self.adapts {
            return self.high;
        }
        self.low + (self.high - self.low) * (1.0 - own.share())
    }
}

/// Whether one copy is in use. Between the two marks the state stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Diverting(bool);

impl Diverting {
    /// Whether the copy is in use.
    pub fn is_on(self) -> bool {
        self.0
    }

    /// Updates the state. `own` is the reader's progress, `peer` that of the reader whose disk has
    /// the copy.
    pub fn update(&mut self, marks: &Watermarks, own: Progress, peer: Progress) -> bool {
        let lead = peer.ahead_of(own);
        if lead > marks.high_at(own) {
            self.0 = true;
        } else if lead < marks.low {
            self.0 = false;
        }
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MARKS: Watermarks = Watermarks { high: 0.1, low: 0.04, adapts: false, request_bytes: 1 };

    fn at(percent: u64) -> Progress {
        Progress { done_bytes: percent, work_bytes: 100 }
    }

    #[test]
    fn it_begins_above_the_high_mark_and_ends_below_the_low_one() {
        let mut diverting = Diverting::default();
        let uses: Vec<bool> = [5, 9, 11, 7, 5, 3, 7, 9, 12]
            .map(|lead| diverting.update(&MARKS, at(50), at(50 + lead)))
            .to_vec();
        assert_eq!(uses, [false, false, true, true, true, false, false, false, true]);
    }

    #[test]
    fn the_high_mark_comes_down_towards_the_end() {
        let marks = Watermarks { adapts: true, ..MARKS };
        assert!((marks.high_at(at(0)) - 0.1).abs() < 1e-9);
        assert!((marks.high_at(at(50)) - 0.07).abs() < 1e-9);
        assert!((marks.high_at(at(100)) - 0.04).abs() < 1e-9);
    }

    #[test]
    fn a_difference_of_less_than_a_request_is_none() {
        let large = Watermarks { request_bytes: 1 << 20, ..Watermarks::default() };
        let marks = large.for_work(80 << 20);
        assert_eq!((marks.high, marks.low), (0.025, 0.0125));
        assert_eq!(large.for_work(1 << 40), large);
    }

    #[test]
    fn marks_for_long_runs_are_a_sixteenth_of_the_work_or_ten_mib_where_the_usual_ones_are_less() {
        let marks = Watermarks { request_bytes: 512 << 10, ..Watermarks::default() };
        let mib = |work: u64| marks.for_long_runs(work << 20).high * work as f64;
        assert_eq!((mib(4), mib(80), mib(1_000), mib(100_000)), (1.0, 5.0, 10.0, 1_000.0));
        assert_eq!(marks.for_long_runs(80 << 20).low, marks.for_work(80 << 20).low);
    }

    proptest! {
        #[test]
        fn who_is_not_behind_uses_no_copy(own in 0u64..=100, peer in 0u64..=100, was: bool) {
            let mut diverting = Diverting(was);
            let uses = diverting.update(&Watermarks::default(), at(own), at(peer));
            if peer <= own {
                prop_assert!(!uses);
            }
            if peer > own + 1 {
                prop_assert!(uses);
            }
        }
    }
}
