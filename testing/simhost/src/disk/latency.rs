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
    /// The file that was read last, and where that read ended.
    at: (u64, u64),
    /// How often one began elsewhere.
    pub(super) turns: u64,
}

/// A head that goes on within so much has hardly turned: requests of one run come from several
/// threads, a little out of order.
const NEAR_BYTES: u64 = 1 << 20;
/// What is smaller is not what readers read: checksums, say.
const SMALL_BYTES: u64 = 64 << 10;

impl Rate {
    /// Counts a read of a file while there is a limit.
    pub(super) fn count_read(&mut self, inode: u64, position: u64, bytes: u64) {
        if self.bytes_per_s == 0 {
            return;
        }
        self.read_bytes += bytes;
        if bytes >= SMALL_BYTES {
            let is_near = inode == self.at.0 && position.abs_diff(self.at.1) <= NEAR_BYTES;
            self.turns += u64::from(!is_near);
            self.at = (inode, position.saturating_add(bytes));
        }
    }

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

    #[test]
    fn a_disk_turns_when_it_reads_elsewhere() {
        const MIB: u64 = 1 << 20;
        let mut rate = Rate { bytes_per_s: 1, ..Rate::default() };
        for (inode, at, bytes) in [(7, 0, MIB), (7, MIB, MIB), (9, 0, 4096), (7, 3 * MIB, MIB)] {
            rate.count_read(inode, at, bytes);
        }
        assert_eq!((rate.turns, rate.read_bytes), (1, 3 * MIB + 4096));
        rate.count_read(7, 6 * MIB, MIB);
        rate.count_read(8, 7 * MIB, MIB);
        assert_eq!(rate.turns, 3);
    }
}
