//! How fast copies are made on each target.

use crate::mover::progress::Progress;
use std::collections::BTreeMap;
use weir_types::TargetId;

/// Copies made on each target.
#[derive(Debug, Default)]
pub struct Arrivals(BTreeMap<TargetId, Progress>);

impl Arrivals {
    /// Records a copy made there.
    pub fn copied(&mut self, target: TargetId, bytes: u64) {
        self.0.entry(target).or_default().copied(bytes);
    }

    /// Updates speeds. To be called about once a second. Only existing targets count.
    pub fn sample(&mut self, now_ms: u64, is_there: impl Fn(TargetId) -> bool) {
        self.0.retain(|target, _| is_there(*target));
        self.0.values_mut().for_each(|progress| progress.sample(now_ms));
    }

    pub fn bytes_per_s(&self, target: TargetId) -> u64 {
        self.0.get(&target).map_or(0, Progress::bytes_per_s)
    }

    pub fn expected_s(&self, target: TargetId, bytes: u64) -> u64 {
        self.0.get(&target).map_or(0, |progress| progress.expected_s(bytes))
    }
}
