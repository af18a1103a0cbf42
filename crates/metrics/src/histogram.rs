//! Histograms of durations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets, microseconds. One more bucket holds everything longer.
pub(crate) const BOUNDS_US: [u64; 17] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000, 30_000_000,
];
const BUCKETS: usize = BOUNDS_US.len() + 1;

/// Counts durations. Any number of threads may count at once, without waiting.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

/// A snapshot of a [`Histogram`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Durations per bucket: above the previous bound, at most this one.
    pub(crate) buckets: [u64; BUCKETS],
    /// Sum of all durations, microseconds.
    pub(crate) sum_us: u64,
}

impl Histogram {
    /// Counts one duration.
    pub fn add(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_US.partition_point(|bound| *bound < us);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Relaxed);
        }
        self.sum_us.fetch_add(us, Relaxed);
    }

    /// A snapshot of the counts.
    pub fn times(&self) -> Times {
        Times {
            buckets: std::array::from_fn(|at| self.buckets[at].load(Relaxed)),
            sum_us: self.sum_us.load(Relaxed),
        }
    }
}

impl Times {
    /// Number of durations counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_counted_once_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::default();
        for us in [0, 50, 51, 100, 30_000_000, 30_000_001, u64::MAX / 4] {
            histogram.add(Duration::from_micros(us));
        }
        let times = histogram.times();
        assert_eq!(times.count(), 7);
        assert_eq!(times.buckets[..3], [2, 2, 0]);
        assert_eq!(times.buckets[BUCKETS - 2..], [1, 2]);
        assert!(BOUNDS_US.is_sorted());
    }
}
