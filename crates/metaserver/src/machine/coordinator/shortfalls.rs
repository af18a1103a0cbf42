//! Shortfalls: for each target its gaps, and the copies that are being made there: how many, how
//! fast, and until when. As names and values for messages and programs (`docs/operating.md`,
//! "Counters").

use crate::machine::state::MetaMachine;
use weir_metastore::Engine;

/// Gaps are counted in parts of at most this many bytes.
const PART_BYTES: u64 = 1 << 20;
/// The most targets that are listed.
const MAX_TOLD: usize = 1024;

impl<E: Engine> MetaMachine<E> {
    /// The shortfalls of targets with gaps, or with copies being made.
    pub(in crate::machine) fn shortfalls(&self) -> Vec<(String, u64)> {
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
