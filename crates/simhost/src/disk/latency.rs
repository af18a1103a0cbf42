//! How long operations take.

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
