//! Shortfalls: for each target its gaps, and the copies that are being made there: how many, how
//! fast, and until when. As names and values for messages and programs (`docs/operating.md`,
//! "Counters").

use super::MetaMachine;
use crate::mover::progress::Progress;
use std::collections::BTreeMap;
use weir_metastore::Engine;
use weir_types::TargetId;

/// Gaps are counted in parts of at most this many bytes.
const PART_BYTES: u64 = 1 << 20;
/// The most targets that are listed.
const MAX_TOLD: usize = 1024;

/// Copies made on each target.
#[derive(Debug, Default)]
pub(super) struct Arrivals(BTreeMap<TargetId, Progress>);

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

    fn bytes_per_s(&self, target: TargetId) -> u64 {
        self.0.get(&target).map_or(0, Progress::bytes_per_s)
    }

    fn expected_s(&self, target: TargetId, bytes: u64) -> u64 {
        self.0.get(&target).map_or(0, |progress| progress.expected_s(bytes))
    }
}

impl<E: Engine> MetaMachine<E> {
    /// The shortfalls of targets with gaps, or with copies being made.
    pub(super) fn shortfalls(&self) -> Vec<(String, u64)> {
        let filling = self.mover.filling();
        let mut all = Vec::new();
        for (_, record) in self.cluster.all() {
            let target = record.target;
            let parts = self.cluster.hearsay.gaps_for(target);
            let (copies, bytes) = filling.get(&target).copied().unwrap_or_default();
            if (parts, copies) == (0, 0) || all.len() >= 8 * MAX_TOLD {
                continue;
            }
            let heard = self.cluster.heard.get(&target);
            let arrivals = &self.mover.arrivals;
            let values = [
                ("behind_parts", parts),
                ("behind_bytes_at_most", parts.saturating_mul(PART_BYTES)),
                ("behind_parts_per_s", heard.map_or(0, |heard| heard.behind.per_s())),
                ("behind_expected_s", heard.map_or(0, |heard| heard.behind.expected_s())),
                ("filling_copies", copies),
                ("filling_bytes", bytes),
                ("filling_bytes_per_s", arrivals.bytes_per_s(target)),
                ("filling_expected_s", arrivals.expected_s(target, bytes)),
            ];
            all.extend(values.map(|(name, value)| (format!("target.{target}.{name}"), value)));
        }
        all
    }
}
