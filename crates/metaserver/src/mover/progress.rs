//! Progress and speed of the mover. Pure.

use std::collections::VecDeque;

/// The speed is measured over this many seconds.
const WINDOW_S: usize = 30;

/// Work since the mover was last idle, and the finished part.
#[derive(Debug, Default)]
pub struct Progress {
    /// Copies made.
    pub copies_done: u64,
    /// Approximate bytes copied.
    pub bytes_done: u64,
    /// Times, and bytes copied by then.
    samples: VecDeque<(u64, u64)>,
}

impl Progress {
    /// Adds a copy.
    pub fn copied(&mut self, bytes: u64) {
        self.copies_done += 1;
        self.bytes_done = self.bytes_done.saturating_add(bytes);
    }

    /// Adds a sample. To be called about once a second.
    pub fn sample(&mut self, now_ms: u64) {
        self.samples.push_back((now_ms, self.bytes_done));
        if self.samples.len() > WINDOW_S {
            self.samples.pop_front();
        }
    }

    /// Recent bytes per second.
    pub fn bytes_per_s(&self) -> u64 {
        match (self.samples.front(), self.samples.back()) {
            (Some((from_ms, from)), Some((to_ms, to))) if to_ms > from_ms => {
                let per_s = u128::from(to - from) * 1000 / u128::from(to_ms - from_ms);
                u64::try_from(per_s).unwrap_or(u64::MAX)
            }
            _ => 0,
        }
    }

    /// Time for the rest at this speed; 0 if unknown, or if nothing is left.
    pub fn expected_s(&self, bytes_to_do: u64) -> u64 {
        bytes_to_do.checked_div(self.bytes_per_s()).unwrap_or(0)
    }
}

/// Speed at which a remaining amount decreases.
#[derive(Clone, Debug, Default)]
pub struct Shrinking {
    /// Times, and the amount left at each.
    samples: VecDeque<(u64, u64)>,
}

impl Shrinking {
    /// Adds a sample. To be called about once a second.
    pub fn sample(&mut self, now_ms: u64, left: u64) {
        self.samples.push_back((now_ms, left));
        if self.samples.len() > WINDOW_S {
            self.samples.pop_front();
        }
    }

    /// Recent decrease per second, rounded up. Increases meanwhile are ignored.
    pub fn per_s(&self) -> u64 {
        self.done().map_or(0, |(done, ms)| done.saturating_mul(1000).div_ceil(ms))
    }

    /// Time for the rest at this speed; 0 if unknown, or if nothing is left.
    pub fn expected_s(&self) -> u64 {
        let left = self.samples.back().map_or(0, |(_, left)| u128::from(*left));
        let time = |(done, ms)| (left * u128::from(ms)).checked_div(u128::from(done) * 1000);
        let seconds = self.done().and_then(time).unwrap_or(0);
        u64::try_from(seconds).unwrap_or(u64::MAX)
    }

    /// Decrease, and within how many milliseconds, more than none.
    fn done(&self) -> Option<(u64, u64)> {
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        let done: u64 = pairs.map(|((_, before), (_, left))| before.saturating_sub(*left)).sum();
        let ((from_ms, _), (to_ms, _)) = (self.samples.front()?, self.samples.back()?);
        to_ms.checked_sub(*from_ms).filter(|ms| *ms > 0).map(|ms| (done, ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_says_how_fast_it_gets_less_and_when_it_ends() {
        let mut left = Shrinking::default();
        assert_eq!((left.per_s(), left.expected_s()), (0, 0));
        (0..5u64).for_each(|second| left.sample(second * 1000, 1000 - second * 10));
        assert_eq!((left.per_s(), left.expected_s()), (10, 96));
        left.sample(5000, 2010);
        assert_eq!((left.per_s(), left.expected_s()), (8, 251), "there is more to do");
        left.sample(6000, 2000);
        assert_eq!((left.per_s(), left.expected_s()), (9, 240));
        (7..100u64).for_each(|second| left.sample(second * 1000, 2000));
        assert_eq!((left.per_s(), left.expected_s()), (0, 0), "nothing happens");
        (100..105u64).for_each(|second| left.sample(second * 1000, 2000 - (second - 100) / 4));
        assert_eq!((left.per_s(), left.expected_s()), (1, 57_971), "it is slow, and it goes on");
    }

    #[test]
    fn the_speed_is_that_of_late_and_says_when_it_ends() {
        let mut progress = Progress::default();
        assert_eq!((progress.bytes_per_s(), progress.expected_s(1000)), (0, 0));
        for second in 0..100 {
            progress.sample(second * 1000);
            progress.copied(if second < 50 { 10 } else { 500 });
        }
        assert_eq!(progress.bytes_per_s(), 500);
        assert_eq!(progress.expected_s(5000), 10);
        assert_eq!(progress.copies_done, 100);
    }
}
