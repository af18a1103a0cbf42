//! Progress of a process with its part of a job.

use std::cmp::Ordering;

/// Bytes done out of the bytes to do: 1.08 to 1.10 of graduated declustering, where every read
/// request carries it. Compared exactly, by the share that is done. No work counts as done.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes done. A value above [`Self::work_bytes`] counts as all.
    pub done_bytes: u64,
    /// Bytes to do by this reader, however much other readers have to do.
    pub work_bytes: u64,
}

impl Progress {
    /// Progress of a program outside of any job, whose amount of work is unknown.
    pub const OF_NO_JOB: Self = Self { done_bytes: 0, work_bytes: u64::MAX };

    /// The share that is done, from 0 to 1.
    pub fn share(self) -> f64 {
        if self.done_bytes >= self.work_bytes {
            return 1.0;
        }
        self.done_bytes as f64 / self.work_bytes as f64
    }

    /// The share by which this progress is ahead of another; negative if it is behind.
    pub fn ahead_of(self, other: Self) -> f64 {
        self.share() - other.share()
    }

    /// Bytes left to do.
    pub fn left_bytes(self) -> u64 {
        self.work_bytes.saturating_sub(self.done_bytes)
    }

    /// Progress as a fraction. No work gives 1/1.
    fn fraction(self) -> (u128, u128) {
        match self.left_bytes() {
            0 => (1, 1),
            _ => (self.done_bytes.into(), self.work_bytes.into()),
        }
    }
}

impl Ord for Progress {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((a, of_a), (b, of_b)) = (self.fraction(), other.fraction());
        (a * of_b).cmp(&(b * of_a))
    }
}

impl PartialOrd for Progress {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Progress {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Progress {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn progress(done_bytes: u64, work_bytes: u64) -> Progress {
        Progress { done_bytes, work_bytes }
    }

    #[test]
    fn shares_count_and_not_bytes() {
        assert!(progress(50, 100) > progress(60, 150));
        assert_eq!(progress(1, 3), progress(u64::MAX / 3, u64::MAX));
        assert!(progress(u64::MAX - 1, u64::MAX) < progress(5, 5));
        assert_eq!(progress(0, 0), progress(9, 7));
        assert_eq!(progress(0, 0).share(), 1.0);
    }

    proptest! {
        #[test]
        fn the_order_is_total_and_agrees_with_the_shares(a: (u64, u64), b: (u64, u64), c: (u64, u64)) {
            let [a, b, c] = [a, b, c].map(|(done, work)| progress(done, work));
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            if a <= b && b <= c {
                prop_assert!(a <= c);
            }
            if a.ahead_of(b) > 1e-9 {
                prop_assert!(a > b);
            }
        }
    }
}
