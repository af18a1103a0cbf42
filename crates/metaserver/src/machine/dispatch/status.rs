//! Counters and state, for status messages.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::observed::Members;
use weir_metastore::Engine;
use weir_wire::data::ServerStatus;

impl<E: Engine> MetaMachine<E> {
    /// Counters and state.
    pub fn status(&self, now: Moment) -> ServerStatus {
        let mut counters = self.counters.list();
        counters.push(("sessions".into(), self.sessions.by_id.len() as u64));
        counters.push(("orphans".into(), self.orphans.len() as u64));
        counters.push(("targets_out_of_service".into(), self.cluster.out_of_service()));
        counters.extend(self.leases.list(now.monotonic_ms));
        counters.extend(self.table.list());
        counters.extend(self.mover.list());
        counters.extend(self.shortfalls());
        counters.push(("map_epoch".into(), self.cluster.epoch.0));
        counters.push(("keys.generation".into(), self.keys.generation().0.into()));
        counters.push(("keys.own_waiting".into(), self.target_keys.waiting()));
        let lacking = self.revoked.lacking(self.cluster.servers.keys());
        counters.push(("revocations.servers_lacking".into(), lacking));
        counters.push(("disk.size_bytes".into(), self.room.total_bytes));
        counters.push(("disk.free_bytes".into(), self.room.free_bytes));
        counters.extend(self.members.iter().flat_map(Members::list));
        counters.sort();
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_ms: now.monotonic_ms.saturating_sub(self.started_ms),
            connections: self.connections,
            counters,
            targets: Vec::new(),
        }
    }
}
