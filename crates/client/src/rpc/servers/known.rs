//! What is known of the data servers: the map as last seen, and their connections.

use super::pool::Pool;
use super::route::Route;
use crate::core::copies;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;
use weir_host::sync::Mutex;
use weir_types::{ServerId, TargetId};
use weir_wire::map::{ClusterMap, ServerEntry, TargetEntry, TargetState};

/// The map as last seen, and the connections to its servers.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) map: Option<ClusterMap>,
    pub(super) targets: BTreeMap<TargetId, Target>,
    pub(super) pools: BTreeMap<ServerId, Arc<Pool>>,
    /// Attempts outlive the pools, because a server remembers those that it has seen.
    attempts: BTreeMap<ServerId, Arc<AtomicU64>>,
    /// Time of the last request for the map.
    pub(super) asked: Option<Instant>,
    max_idle: usize,
    /// The name of this machine.
    host: String,
}

/// A target in the map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) server: ServerId,
    pub(super) state: TargetState,
    /// Its server is on this machine.
    pub(super) is_here: bool,
}

impl Known {
    /// Nothing is known yet. `max_idle`: the most idle connections to each server.
    pub(super) fn new(max_idle: usize, host: String) -> Self {
        Self { max_idle, host, ..Self::default() }
    }

    /// What counts for the choice of a copy on a target; `None` if it is not in the map.
    pub(super) fn of(&self, target: TargetId) -> Option<copies::Known> {
        let Target { server, state, .. } = *self.targets.get(&target)?;
        let silent = || self.pools.get(&server).is_some_and(|pool| pool.is_doubtful());
        let doubtful = state == TargetState::Suspect || silent();
        Some(copies::Known { state, doubtful })
    }

    /// Formats a target and its server.
    pub(super) fn name(&self, target: TargetId) -> String {
        match self.map.as_ref().and_then(|map| map.server_of(target)) {
            Some(entry) => format!("target {target} on server {} ({})", entry.server, entry.host),
            None => format!("target {target}"),
        }
    }

    /// Takes a map that has come, unless a newer one is there.
    pub(super) fn take_map(&mut self, map: ClusterMap) {
        if self.map.as_ref().is_some_and(|old| old.epoch > map.epoch) {
            // Another call was quicker.
            return;
        }
        let target = |(s, t): (&ServerEntry, &TargetEntry)| {
            let is_here = !s.host.is_empty() && s.host == self.host;
            (t.target, Target { server: s.server, state: t.state, is_here })
        };
        self.targets = map.targets().map(target).collect();
        let (mut pools, attempts) = (BTreeMap::new(), &mut self.attempts);
        for entry in &map.servers {
            let moved = self.map.iter().flat_map(|m| &m.servers).any(|old| {
                old.server == entry.server && (&old.tcp, &old.unix) != (&entry.tcp, &entry.unix)
            });
            let kept = self.pools.get(&entry.server).filter(|_| !moved).cloned();
            let fresh = || {
                let attempt = attempts.entry(entry.server).or_default().clone();
                let (server, max_idle) = (entry.server, self.max_idle);
                let (idle, doubtful_until_ms) = (Mutex::default(), AtomicU64::new(0));
                let (met, route) = (AtomicBool::new(false), Route::default());
                Arc::new(Pool { server, idle, attempt, max_idle, doubtful_until_ms, met, route })
            };
            pools.insert(entry.server, kept.unwrap_or_else(fresh));
        }
        self.pools = pools;
        self.map = Some(map);
    }
}
