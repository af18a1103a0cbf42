//! Since when targets are away. Pure. Not kept over a restart of the server, after which their time
//! begins anew.

use super::sites::{Fit, Site};
use std::collections::BTreeMap;
use weir_layout::place::FULL_BELOW_BYTES;
use weir_layout::{Home, Whereabouts, homes};
use weir_types::TargetId;
use weir_wire::map::{ClusterMap, ServerEntry, TargetEntry, TargetState};

/// Since when each target is away.
#[derive(Debug, Default)]
pub struct Away {
    since_ms: BTreeMap<TargetId, u64>,
}

impl Away {
    /// The mover's view of the targets of a map. Targets that were away for `rebuild_after_ms` are
    /// lost; 0 for never.
    pub fn sites(
        &mut self,
        map: &ClusterMap,
        rebuild_after_ms: u64,
        now_ms: u64,
    ) -> BTreeMap<TargetId, Site> {
        let gone =
            |t: &TargetEntry| matches!(t.state, TargetState::Offline | TargetState::OutOfService);
        let away: BTreeMap<TargetId, u64> = map
            .targets()
            .filter(|(_, entry)| gone(entry))
            .map(|(_, t)| (t.target, self.since_ms.get(&t.target).copied().unwrap_or(now_ms)))
            .collect();
        self.since_ms = away;
        let site = |t: &TargetEntry| {
            let since_ms = self.since_ms.get(&t.target);
            let is_lost = since_ms.is_some_and(|since_ms| {
                rebuild_after_ms > 0 && now_ms.saturating_sub(*since_ms) >= rebuild_after_ms
            });
            match t.state {
                // A disk that has failed may serve again when its server is restarted.
                _ if is_lost => Fit::Lost,
                _ if t.draining => Fit::Leaves,
                TargetState::Online => Fit::Takes,
                _ => Fit::Keeps,
            }
        };
        let homes = homes(map.servers.iter().map(|entry| {
            let ServerEntry { server, host, domain, .. } = entry;
            Whereabouts { server: *server, host, domain }
        }));
        let entry = |(entry, t): (&ServerEntry, &TargetEntry)| {
            let known = t.usage.total_bytes > 0;
            let free_bytes = if known { t.usage.free_bytes } else { FULL_BELOW_BYTES };
            let online = t.state == TargetState::Online;
            let home = homes.get(&entry.server).copied().unwrap_or(Home::alone(entry.server));
            (t.target, Site { home, fit: site(t), online, free_bytes })
        };
        map.targets().map(entry).collect()
    }
}
