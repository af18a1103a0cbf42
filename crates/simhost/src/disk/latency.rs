//! How long operations take: each by itself, and behind what the disk transfers already.

use std::ops::Range;
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(super) struct Latency {
    pub(super) operation: Range<Duration>,
    pub(super) sync: Range<Duration>,
}

impl Latency {
    /// How long this one takes.
    pub(super) fn draw(&self, sync: bool, rng: &mut fastrand::Rng) -> Duration {
        let range = if sync { &self.sync } else { &self.operation };
        let (from, to) = (range.start.as_nanos() as u64, range.end.as_nanos() as u64);
        if from < to { Duration::from_nanos(rng.u64(from..to)) } else { range.start }
    }
}

/// What the disk can transfer, one after another, as the throttle of a kernel lets it.
#[derive(Clone, Debug, Default)]
pub(super) struct Rate {
    /// 0: as much as is asked for.
    pub(super) bytes_per_s: u64,
    /// Then it has done all that was asked for until now.
    idle_at: Duration,
    /// Bytes that were read while it had a limit.
    pub(super) read_bytes: u64,
}

impl Rate {
    /// How long it takes from now until so many bytes more are there.
    pub(super) fn transfer(&mut self, now: Duration, bytes: u64) -> Duration {
        if self.bytes_per_s == 0 {
            return Duration::ZERO;
        }
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s);
        self.idle_at = self.idle_at.max(now) + Duration::from_nanos(ns as u64);
        self.idle_at - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_wait_for_each_other_and_an_idle_disk_saves_nothing_up() {
        let mut rate = Rate { bytes_per_s: 1_000, ..Rate::default() };
        let s = Duration::from_secs;
        assert_eq!(rate.transfer(s(0), 1_000), s(1));
        assert_eq!(rate.transfer(s(0), 2_000), s(3));
        assert_eq!(rate.transfer(s(9), 1_000), s(1));
        rate.bytes_per_s = 0;
        assert_eq!(rate.transfer(s(9), 1 << 40), s(0));
    }
}
