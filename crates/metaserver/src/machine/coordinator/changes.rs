//! Changes of the map of the cluster.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::cluster::change::Change;
use crate::machine::store::fault;
use weir_metastore::{Engine, transact};
use weir_types::Result;
use weir_wire::map::TargetState;

impl<E: Engine> MetaMachine<E> {
    pub(super) fn commit_change(&mut self, change: Change, now: Moment) -> Result<()> {
        ((), self.map_at) = transact(&mut self.engine, |tx| change.put(tx).map_err(fault))?;
        self.cluster.apply(change, now.monotonic_ms);
        let targets = self.cluster.view.targets.iter().map(|t| t.target);
        self.signer.prepare(targets);
        let all = self.cluster.all();
        let online = all.iter().filter(|(_, t)| t.state == TargetState::Online);
        self.mover.sites.keep_online(&online.map(|(_, t)| t.target).collect());
        Ok(())
    }

    pub(in crate::machine) fn lose_silent_targets(&mut self, now: Moment) -> Result<()> {
        self.cluster.checked_ms = now.monotonic_ms;
        let deadline_ms = now.monotonic_ms.saturating_sub(self.times.target_timeout_ms);
        if let Some((change, count)) = self.cluster.lost(deadline_ms) {
            self.commit_change(change, now)?;
            self.counters.targets_lost += count;
            tracing::warn!(count, "targets went offline: no heartbeat");
        }
        Ok(())
    }
}
