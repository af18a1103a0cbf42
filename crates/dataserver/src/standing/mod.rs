//! What this server may serve of files with several copies: its lease, and the map under which it
//! acts.
//!
//! - [`roles`]: the rules, from the map alone.
//! - [`turns`], [`ways`]: no change under an old epoch, or by an old route, after a newer one.
//! - [`unreachable`]: targets to be told of to the metadata server.

#[cfg(test)]
mod planted;
pub(crate) mod roles;
pub(crate) mod turns;
pub(crate) mod unreachable;
pub(crate) mod ways;

use roles::{Map, Orders, not_current};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_host::clock;
use weir_host::plant::{Bug, planted};
use weir_host::sync::{Mutex, RwLock};
use weir_types::{Epoch, Error, ErrorKind, Result, TargetId};
use weir_wire::data::CopyAccess;
use weir_wire::peer::HeartbeatReply;

/// Lease and map of a server.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    map: RwLock<Arc<Map>>,
    /// End of the lease, milliseconds on the clock that goes on during suspend.
    serve_until_ms: AtomicU64,
    /// Time of the last request for the map, on the same clock.
    asked_ms: AtomicU64,
    /// Targets that are not on the map, and when they were first named.
    unknown: Mutex<BTreeMap<TargetId, u64>>,
}

/// The most of these that are remembered.
const MAX_UNKNOWN: usize = 1024;

impl Standings {
    /// Takes over a reply of the metadata server to a request that was sent at `sent`.
    pub(crate) fn adopt(&self, reply: &HeartbeatReply, sent: Duration) {
        let mut map = self.map.write();
        let targets = match reply.standings.is_empty() {
            true => map.targets.clone(),
            false => reply.standings.iter().map(|s| (s.target, s.clone())).collect(),
        };
        // A metadata server that was started anew has to be told first.
        let in_effect = reply.in_effect.max(map.in_effect);
        let fresh = map.next(reply.epoch, in_effect, targets);
        if **map != fresh {
            *map = Arc::new(fresh);
        }
        self.asked_ms.store(sent.as_millis() as u64, Ordering::Release);
        // A lease under this map, and no other.
        let until = sent.as_millis() as u64 + u64::from(reply.serve_ms);
        self.serve_until_ms.store(until, Ordering::Release);
    }

    /// The epoch of the map under which this server acts.
    pub(crate) fn acting(&self) -> Epoch {
        self.map.read().epoch
    }

    /// Checks that the server acts under this epoch.
    ///
    /// # Errors
    /// `Busy`.
    pub(crate) fn is_acting(&self, epoch: Epoch) -> Result<()> {
        match self.acting() == epoch {
            true => Ok(()),
            false => {
                let what = "it acts under another map than the server that reports its gap";
                Err(Error::new(ErrorKind::Busy, what))
            }
        }
    }

    /// The map, while there is a lease.
    fn leased(&self, own: TargetId) -> Result<Arc<Map>> {
        let now = clock::since_boot().as_millis() as u64;
        if now >= self.serve_until_ms.load(Ordering::Acquire) {
            return Err(not_current(own, "its server has no lease from the metadata server"));
        }
        let map = self.map.read().clone();
        map.is_kept(own)?;
        Ok(map)
    }

    /// Gives up a target of this server until its restart.
    pub(crate) fn give_up(&self, target: TargetId) {
        let mut map = self.map.write();
        let mut fresh = Map::clone(&map);
        fresh.given_up.insert(target);
        *map = Arc::new(fresh);
    }

    /// See [`Map::is_kept`].
    pub(crate) fn is_kept(&self, own: TargetId) -> Result<()> {
        self.map.read().is_kept(own)
    }

    /// The map, with or without a lease.
    pub(crate) fn map(&self) -> Arc<Map> {
        self.map.read().clone()
    }

    /// See [`Map::may_read`].
    pub(crate) fn may_read(&self, own: TargetId) -> Result<()> {
        if planted(Bug::ServeWithoutLease) {
            return Ok(());
        }
        self.leased(own)?.may_read(own)
    }

    /// See [`Map::orders_under`].
    pub(crate) fn orders_under(
        &self,
        under: Epoch,
        own: TargetId,
        copies: &[CopyAccess],
    ) -> Result<Orders> {
        self.leased(own)?.orders_under(under, own, copies)
    }

    /// See [`Map::orders`].
    pub(crate) fn orders(&self, own: TargetId, copies: &[CopyAccess]) -> Result<Orders> {
        let map = self.leased(own)?;
        let unknown = |copy: &&CopyAccess| {
            copy.target != TargetId::NONE && !map.targets.contains_key(&copy.target)
        };
        for copy in copies.iter().filter(unknown) {
            self.check_gone(own, copy.target)?;
        }
        // As it is since: those that have come meanwhile are on it.
        self.leased(own)?.orders(own, copies)
    }

    /// Checks whether a target that is not on the map was removed, rather than added since: that is
    /// known after the metadata server was asked again.
    fn check_gone(&self, own: TargetId, target: TargetId) -> Result<()> {
        let now = clock::since_boot().as_millis() as u64;
        let mut unknown = self.unknown.lock();
        if unknown.len() >= MAX_UNKNOWN {
            unknown.clear();
        }
        let named = *unknown.entry(target).or_insert(now);
        match self.asked_ms.load(Ordering::Acquire) > named {
            true => Ok(()),
            false => Err(not_current(own, &format!("target {target} is not on its map yet"))),
        }
    }

    /// See [`Map::follows`] and, for `via`, [`Map::passed_on`]. Returns the epoch.
    pub(crate) fn follows(
        &self,
        own: TargetId,
        ordered: (TargetId, Epoch),
        via: &[TargetId],
        copies: &[CopyAccess],
    ) -> Result<Epoch> {
        let map = self.leased(own)?;
        map.follows(own, ordered, copies)?;
        map.passed_on(own, ordered.1, via)?;
        Ok(map.epoch)
    }

    /// See [`Map::has_stayed`].
    pub(crate) fn has_stayed(&self, own: TargetId, since: Epoch) -> Result<()> {
        self.leased(own)?.has_stayed(own, since)
    }

    /// See [`Map::is_done_without`].
    pub(crate) fn is_done_without(&self, target: TargetId) -> bool {
        self.map.read().is_done_without(target)
    }

    /// See [`Map::is_settled`].
    pub(crate) fn is_settled(&self, target: TargetId) -> bool {
        self.map.read().is_settled(target)
    }

    /// Whether a target is on the map. A removed target is not.
    pub(crate) fn is_known(&self, target: TargetId) -> bool {
        self.map.read().targets.contains_key(&target)
    }

    /// Whether a target takes nothing now, and may come back.
    pub(crate) fn is_away(&self, target: TargetId) -> bool {
        self.map.read().is_away(target)
    }

    /// See [`Map::is_online`].
    pub(crate) fn is_online(&self, target: TargetId) -> bool {
        self.map.read().is_online(target)
    }

    /// See [`Map::may_count`].
    pub(crate) fn may_count(&self, own: TargetId, copies: &[CopyAccess]) -> bool {
        let map = self.map.read();
        map.is_kept(own).is_ok() && map.may_count(own, copies)
    }

    /// See [`Map::comes_later`].
    pub(crate) fn comes_later(&self, own: TargetId, copies: &[CopyAccess]) -> bool {
        self.map.read().comes_later(own, copies)
    }

    /// See [`Map::who_orders`]. Only for telling that target something.
    pub(crate) fn who_orders(&self, copies: &[CopyAccess]) -> Option<TargetId> {
        self.map.read().who_orders(copies)
    }
}
