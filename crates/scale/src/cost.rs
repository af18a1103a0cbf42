//! What decisions cost in CPU time: one in sixteen is timed, and the median is taken, so that
//! whatever else runs on the machine does not count.

use std::time::Instant;

/// One of so many decisions is timed.
const EVERY: u64 = 16;
/// Longer ones count as this; in nanoseconds.
const LONGEST_NS: usize = 20_000;

/// What decisions of one kind came to.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// How many were made.
    pub decisions: u64,
    /// What they had to look at: copies for a choice, requests waiting for a turn of a disk.
    pub looked_at: u64,
    /// What one took, nanoseconds.
    pub median_ns: f64,
}

/// Decisions of one kind.
#[derive(Clone, Debug)]
pub struct Cost {
    decisions: u64,
    looked_at: u64,
    /// How many took so many nanoseconds.
    times: Vec<u32>,
}

impl Default for Cost {
    fn default() -> Self {
        Self { decisions: 0, looked_at: 0, times: vec![0; LONGEST_NS + 1] }
    }
}

impl Cost {
    /// Makes a decision that has to look at so many things.
    pub fn of<T>(&mut self, looks_at: usize, decide: impl FnOnce() -> T) -> T {
        self.looked_at += looks_at as u64;
        self.decisions += 1;
        if !self.decisions.is_multiple_of(EVERY) {
            return decide();
        }
        let begun = Instant::now();
        let decision = decide();
        let took = begun.elapsed().as_nanos() as usize;
        self.times[took.min(LONGEST_NS)] += 1;
        decision
    }

    /// The sum of it, without what it costs to time decisions.
    pub fn spent(&self) -> Spent {
        let half = self.times.iter().sum::<u32>() / 2;
        let mut seen = 0;
        let median = self.times.iter().position(|times| {
            seen += times;
            seen > half
        });
        let median_ns = (median.unwrap_or(0) as f64 - of_timing_ns()).max(0.0);
        Spent { decisions: self.decisions, looked_at: self.looked_at, median_ns }
    }
}

fn of_timing_ns() -> f64 {
    let mut nothing: Vec<_> = (0..999).map(|_| Instant::now().elapsed().as_nanos()).collect();
    nothing.sort_unstable();
    nothing[nothing.len() / 2] as f64
}
