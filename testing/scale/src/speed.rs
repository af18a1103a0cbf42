//! The speed of a disk over time.

/// A step function: a rate from each time to the next. Times are microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// Time, and rate from then on in bytes per microsecond; sorted, beginning with 0.
    steps: Vec<(f64, f64)>,
}

impl Speed {
    /// A constant rate.
    pub fn steady(bytes_per_us: f64) -> Self {
        Self { steps: vec![(0.0, bytes_per_us)] }
    }

    /// Adds a later step; rate 0: the disk dies.
    pub fn then(&mut self, from_us: f64, bytes_per_us: f64) {
        if from_us <= 0.0 {
            self.steps.clear();
        }
        self.steps.push((from_us.max(0.0), bytes_per_us));
    }

    /// When the disk dies.
    pub fn dies_us(&self) -> Option<f64> {
        self.steps.last().filter(|(_, rate)| *rate == 0.0).map(|(from, _)| *from)
    }

    /// When a request completes that takes this many microseconds at any speed and has this many
    /// bytes; `None`: the disk dies first.
    pub fn done_us(&self, begun_us: f64, turn_us: f64, bytes: f64) -> Option<f64> {
        let (mut at, mut left) = (begun_us + turn_us, bytes);
        for (n, (_, rate)) in self.steps.iter().enumerate() {
            let end = self.steps.get(n + 1).map_or(f64::INFINITY, |(from, _)| *from);
            if end <= at || *rate == 0.0 {
                continue;
            }
            let done = at + left / rate;
            if done <= end {
                return Some(done);
            }
            left -= (end - at) * rate;
            at = end;
        }
        None
    }

    /// Bytes that it can deliver from the beginning to `end_us`, without seeks.
    pub fn bytes_until(&self, end_us: f64) -> f64 {
        let until = |n: usize| self.steps.get(n + 1).map_or(end_us, |(from, _)| from.min(end_us));
        let steps = self.steps.iter().enumerate();
        steps.map(|(n, (from, rate))| (until(n) - from).max(0.0) * rate).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_longer_than_a_step_goes_on_at_the_next_rate() {
        let mut speed = Speed::steady(2.0);
        speed.then(10.0, 0.5);
        speed.then(30.0, 2.0);
        assert_eq!(speed.done_us(0.0, 1.0, 10.0), Some(6.0));
        assert_eq!(speed.done_us(8.0, 0.0, 9.0), Some(20.0));
        assert_eq!(speed.done_us(20.0, 4.0, 9.0), Some(33.0));
        assert_eq!(speed.bytes_until(40.0), 20.0 + 10.0 + 20.0);
        assert_eq!((speed.bytes_until(5.0), speed.dies_us()), (10.0, None));
    }

    #[test]
    fn a_dead_disk_finishes_nothing() {
        let mut speed = Speed::steady(2.0);
        speed.then(10.0, 0.0);
        assert_eq!(speed.dies_us(), Some(10.0));
        assert_eq!(speed.done_us(0.0, 0.0, 20.0), Some(10.0));
        assert_eq!(speed.done_us(0.0, 0.0, 21.0), None);
        assert_eq!(speed.done_us(12.0, 0.0, 1.0), None);
        assert_eq!(speed.bytes_until(40.0), 20.0);
    }
}
