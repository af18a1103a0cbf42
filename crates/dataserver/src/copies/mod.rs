//! Columns with several copies. The *primary* (the first copy that is online) orders changes and
//! passes them along the other copies before it acknowledges them. What a copy misses is noted in
//! the gap logs of the others, and brought to it later.
//!
//! Invariants
//! - Of the changes of one range, one is under way at a time. Before a change is acknowledged, each
//!   copy that takes changes has confirmed it, or has a durable gap for it. A copy with such a gap
//!   that is read from has noted the gap itself.
//! - Nothing is applied under an epoch once this server acts under a later one: earlier changes
//!   have ended when the first change of the later epoch begins.
//! - What may have reached only some copies is a gap of this target for itself, at the latest when
//!   this server reports its gaps under a later epoch.
//! - A thread that waits for another server waits for one further down the chain, and the last of a
//!   chain waits for its disk only. So there is no circle.

mod answer;
mod bring;
mod build;
mod chain;
mod change;
mod fill;
mod follow;
mod header;
mod lacking;
mod later;
mod lines;
mod locks;
mod lost;
mod mend;
mod mend_set;
mod order;
pub(crate) mod pace;
mod pacer;
#[cfg(test)]
mod planted;
mod pools;
mod push;
mod refused;
mod removed;
pub(crate) mod repair;
mod resync;
pub(crate) mod roles;
pub(crate) mod scout;
mod set;
pub(crate) mod staged;
pub(crate) mod standing;
mod take;
mod tell;
mod turns;
mod unheard;
mod unreachable;
mod ways;

pub(crate) use build::Builds;
pub use change::{Asked, Change};
pub(crate) use follow::follow_at_the_end;
pub(crate) use lines::Lines;
pub(crate) use pools::{ChangeTask, MirrorJob};
pub(crate) use resync::{Progress, Resync};

use chain::next;
use later::Resting;
use locks::RangeLocks;
use pools::Pools;
use removed::Removed;
use repair::Repairs;
use staged::Staged;
use standing::Standings;
use turns::{Begun, Turns};
use unreachable::Unreachable;
use ways::Ways;
use weir_net::ConnId;
use weir_types::{Epoch, TargetId};
use weir_wire::data::Relay;

/// State for columns with several copies that all threads of a server share.
pub(crate) struct Copies {
    pub(crate) standings: Standings,
    pub(crate) lines: Lines,
    pub(crate) locks: RangeLocks,
    pub(crate) turns: Turns,
    pub(crate) begun: Begun,
    pub(crate) pools: Pools,
    pub(crate) repairs: Repairs,
    pub(crate) staged: Staged<ConnId, (ConnId, ChangeTask)>,
    resting: Resting,
    /// Targets that have to take changes of a target and are unreachable.
    pub(crate) unreachable: Unreachable,
    pub(crate) removed: Removed,
    pub(crate) ways: Ways,
}

impl Copies {
    /// Reports to the metadata server that `own` cannot reach `target`. A target that was not
    /// tried, because its address is unknown, is not reported.
    pub(crate) fn cannot_reach(&self, own: TargetId, target: TargetId) {
        if !self.lines.peers().is_unfound(target) {
            self.unreachable.add(own, target);
        }
    }

    /// The state for these targets.
    pub(crate) fn new(
        lines: Lines,
        targets: impl Iterator<Item = TargetId>,
        queue_limit: usize,
        buffer_bytes: usize,
    ) -> Self {
        let ways = Ways::new(lines.run());
        Self {
            standings: Standings::default(),
            lines,
            locks: RangeLocks::default(),
            turns: Turns::default(),
            begun: Begun::default(),
            pools: Pools::new(targets, queue_limit),
            repairs: Repairs::default(),
            staged: Staged::new(buffer_bytes),
            resting: Resting::default(),
            unreachable: Unreachable::default(),
            removed: Removed::default(),
            ways,
        }
    }
}

impl Copies {
    /// The epoch under which this server acts: that of its map, or of the oldest change that is
    /// still under way. The gaps of such a change are noted by then. Targets that were given up do
    /// not count, since they act under no epoch any more.
    pub(crate) fn acting(&self) -> Epoch {
        // First: what begins after this begins under it.
        let map = self.standings.map();
        let counts = |target| !map.given_up.contains(&target);
        let oldest = self.begun.oldest(counts).into_iter().chain(self.turns.oldest(counts));
        oldest.fold(map.epoch, Epoch::min)
    }
}

/// Whether a change is not passed on beyond the disk of `own`.
pub(crate) fn ends_here(change: &Change, own: TargetId) -> bool {
    let relay: Option<&Relay> = change.access.relay.as_ref();
    relay.is_some_and(|relay| next(&change.access.copies, own, relay).is_none())
}
