//! Changes of the records of data servers and targets: they are made from the present records,
//! written in a transaction, and then applied.

use super::Cluster;
use crate::ops::Outcome;
use crate::schema::{self, ServerRecord, TargetRecord, key};
use weir_metastore::Tx;
use weir_types::{Epoch, ServerId, TargetId};
use weir_wire::map::TargetState;

/// The most servers in one change, because a transaction is limited.
const MAX_SERVERS: usize = 64;
const MAX_TARGETS: usize = 4096;

/// A change of server records. It takes effect when it is committed.
#[derive(Debug)]
pub struct Change {
    epoch: Epoch,
    servers: Vec<(ServerId, ServerRecord)>,
    /// A target to be removed from all records.
    removed: Option<TargetId>,
    /// A server whose record is to be removed.
    removed_server: Option<ServerId>,
}

impl Change {
    /// The same change without a new epoch: no server has to be told.
    pub fn untold(self, cluster: &Cluster) -> Self {
        Self { epoch: cluster.epoch, ..self }
    }

    /// Writes the change.
    pub fn put(&self, tx: &mut Tx<'_>) -> Outcome<()> {
        tx.put(key::MAP_EPOCH, &schema::encode(&self.epoch))?;
        for (server, record) in &self.servers {
            tx.put(&key::server(*server), &schema::encode(record))?;
        }
        if let Some(target) = self.removed {
            tx.put(&key::removed_target(target), &schema::encode(&self.epoch))?;
        }
        if let Some(server) = self.removed_server {
            tx.delete(&key::server(server))?;
            tx.put(&key::removed_server(server), &schema::encode(&self.epoch))?;
        }
        Ok(())
    }
}

impl Cluster {
    /// A change of some targets; `None` for no targets. With very many it covers some of them, and
    /// the next judgement finds the others.
    pub fn changed(
        &self,
        targets: &[TargetId],
        to: impl Fn(TargetRecord) -> TargetRecord,
    ) -> Option<Change> {
        let meant = |t: &TargetRecord| targets.contains(&t.target);
        let mut servers = Vec::new();
        for (&server, record) in self.servers.iter().filter(|(_, r)| r.targets.iter().any(meant)) {
            let mut record = record.clone();
            record.targets.iter_mut().filter(|t| meant(t)).for_each(|t| *t = to(*t));
            servers.push((server, record));
            if is_enough(&servers) {
                break;
            }
        }
        (!servers.is_empty()).then(|| self.change(servers))
    }

    /// The change that removes a target for good.
    pub fn without(&self, target: TargetId) -> Change {
        let serves =
            |(_, r): &(&ServerId, &ServerRecord)| r.targets.iter().any(|t| t.target == target);
        let mut servers = Vec::new();
        for (&server, record) in self.servers.iter().filter(serves) {
            let mut record = record.clone();
            record.targets.retain(|t| t.target != target);
            servers.push((server, record));
        }
        Change { removed: Some(target), ..self.change(servers) }
    }

    pub fn change(&self, servers: Vec<(ServerId, ServerRecord)>) -> Change {
        Change { epoch: self.next_epoch(), servers, removed: None, removed_server: None }
    }

    /// The change that removes a server without targets for good.
    pub fn without_server(&self, server: ServerId) -> Change {
        Change { removed_server: Some(server), ..self.change(Vec::new()) }
    }

    /// Applies a committed change.
    pub fn apply(&mut self, change: Change, now_ms: u64) {
        self.epoch = change.epoch;
        for (server, record) in &change.servers {
            for target in &record.targets {
                self.partners.is_of(target.target, *server);
                self.note_state(target, now_ms);
            }
        }
        self.servers.extend(change.servers);
        if let Some(target) = change.removed {
            self.removed.insert(target);
            self.heard.remove(&target);
            self.partners.is_removed(target);
            self.leaving = None;
        }
        if let Some(server) = change.removed_server {
            self.servers.remove(&server);
            self.machines.remove(&server);
            self.removed_servers.insert(server);
        }
        let all = self.all();
        self.hearsay.changed(&all, self.epoch);
        self.refresh();
    }

    /// Records the time of a target's change of state. To be called before the change.
    fn note_state(&mut self, target: &TargetRecord, now_ms: u64) {
        let before = self.record(target.target).map(|record| (record.state, record.joins));
        if before.is_some_and(|(state, _)| state == target.state) {
            return;
        }
        self.partners.may_be_used(target.target);
        let heard = self.heard.entry(target.target).or_default();
        heard.changed_ms = Some(now_ms);
        match before {
            // It was not back yet, so it has not gone again.
            Some((TargetState::Online, Some(_))) if target.state == TargetState::Syncing => return,
            Some((TargetState::Online, _)) => heard.flapping.went(now_ms),
            _ => {}
        }
        match target.state {
            TargetState::Online | TargetState::Suspect => heard.flapping.online(now_ms),
            TargetState::Syncing => {
                let hold_ms = heard.flapping.hold_ms();
                heard.held_until_ms = now_ms + hold_ms;
                if hold_ms > 0 {
                    self.partners.ask();
                }
            }
            TargetState::Offline | TargetState::OutOfService => {}
        }
    }
}

pub(super) fn is_enough(servers: &[(ServerId, ServerRecord)]) -> bool {
    let targets: usize = servers.iter().map(|(_, record)| record.targets.len()).sum();
    servers.len() >= MAX_SERVERS || targets >= MAX_TARGETS
}
