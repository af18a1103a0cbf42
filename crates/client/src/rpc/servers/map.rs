//! The map of the cluster: when it is requested, and what it says of targets.

use super::{MAP_WAIT_MS, Servers};
use crate::context::Context;
use crate::rpc::session::MetaSession;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weir_host::clock;
use weir_types::{Epoch, Result, TargetId};
use weir_wire::map::{ClusterMap, ServerEntry};
use weir_wire::meta::GetMapRequest;

/// Shortest interval between requests for the map because of failures.
const MAP_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of requests for the map while a target in it is not online, without failures.
const MAP_AGE: Duration = Duration::from_secs(5);

impl Servers {
    /// The map as last seen.
    pub(crate) fn map(&self, session: &MetaSession) -> Result<ClusterMap> {
        self.refresh_map(session, true, self.config.request_timeout_ms)?;
        let known = self.known.read();
        // A cluster that no data server has joined yet is at epoch 0, and has
        // nothing newer than "none" to tell.
        Ok(known.map.clone().unwrap_or(ClusterMap { epoch: Epoch(0), servers: Vec::new() }))
    }

    /// Requests the map, within `time_ms`. Without `now` it is not requested more often than is
    /// useful.
    pub(crate) fn refresh_map(&self, session: &MetaSession, now: bool, time_ms: u64) -> Result<()> {
        let have = {
            let mut known = self.known.write();
            if !now && known.asked.is_some_and(|at| clock::elapsed(at) < MAP_INTERVAL) {
                return Ok(());
            }
            known.asked = Some(clock::now());
            known.map.as_ref().map_or(Epoch(0), |m| m.epoch)
        };
        let request = GetMapRequest { have };
        if let Some(map) = session.ask_within(&Context::root(), &request, time_ms).0? {
            let mut known = self.known.write();
            known.take_map(map);
            self.paces.lock().retain(|target| known.targets.contains_key(&target));
        }
        Ok(())
    }

    /// Fetches the map before a file is used. Without it each of the first reads would request it,
    /// or find no copy that is known to be online.
    pub(crate) fn is_going_to_be_used(&self, session: &MetaSession) {
        let has_map = self.known.read().map.is_some();
        if !has_map && let Err(error) = self.refresh_map(session, false, MAP_WAIT_MS) {
            tracing::debug!("cluster map not asked for: {error}");
        }
    }

    /// Records that a target was not current although it is in the map. Until the map is renewed,
    /// each read of it takes another round trip.
    pub(crate) fn seems_outdated(&self) {
        self.outdated.store(true, Relaxed);
    }

    /// Requests the map if a server is in doubt, so that its state is known soon. Also requests it
    /// now and then while a server is away, so that the server is used again when it is back.
    pub(crate) fn keep_map(&self, session: &MetaSession) {
        let wanted = {
            let known = self.known.read();
            let old = known.asked.is_some_and(|at| clock::elapsed(at) >= MAP_AGE);
            let away = || known.targets.values().any(|t| !t.state.is_online());
            self.outdated.swap(false, Relaxed)
                || known.pools.values().any(|pool| pool.is_doubtful())
                || self.chooses.load(Relaxed) && old && away()
        };
        if wanted && let Err(error) = self.refresh_map(session, false, MAP_WAIT_MS) {
            tracing::debug!("cluster map not refreshed: {error}");
        }
    }

    /// Epoch of the map as last seen.
    pub(crate) fn epoch(&self) -> Epoch {
        self.known.read().map.as_ref().map_or(Epoch(0), |map| map.epoch)
    }

    /// Periods in which a target was online, according to the map as last seen.
    pub(crate) fn online(&self, target: TargetId) -> Vec<(Epoch, Option<Epoch>)> {
        let known = self.known.read();
        let entry = known.map.as_ref().and_then(|map| map.target(target));
        entry.map_or(Vec::new(), |entry| entry.online().collect())
    }

    /// The epoch since which a target has kept everything that it confirmed, according to the map
    /// as last seen.
    pub(crate) fn anew(&self, target: TargetId) -> Option<Epoch> {
        let known = self.known.read();
        known.map.as_ref().and_then(|map| map.target(target)).map(|entry| entry.anew)
    }

    /// The targets of servers on this machine, as far as the map is known.
    pub(crate) fn local_targets(&self, map: &ClusterMap) -> Vec<TargetId> {
        let is_here = |entry: &&ServerEntry| !self.host.is_empty() && entry.host == self.host;
        let here = map.servers.iter().filter(is_here);
        here.flat_map(|entry| entry.targets.iter().map(|target| target.target)).collect()
    }
}
