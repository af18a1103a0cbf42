//! Columns with several copies: the *primary* (the first copy that is online)
//! orders changes and hands them on, copy by copy, before it acknowledges them.
//! What a copy misses is noted in the gap logs of the others, and brought to it
//! later.
//!
//! Invariants
//! - Of the changes of one range, one is under way at a time; all copies that take
//!   it have confirmed it, or have a gap for it that is durable, before it is
//!   acknowledged. Who has the gap and is read from has noted it itself.
//! - Nothing is applied under an epoch once this server acts under a later one:
//!   what began before has ended when the first change of the later one begins.
//! - What may have reached some copies only is a gap of this target for itself, at
//!   the latest when this server says under a later epoch what gaps there are.
//! - A thread that waits for another server waits for one that is further down the
//!   chain, and the last of a chain waits for its disk only: so there is no circle.

mod answer;
mod bring;
mod chain;
mod change;
mod fill;
mod follow;
mod header;
mod later;
mod lines;
mod locks;
mod lost;
mod mend;
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
pub(crate) mod staged;
pub(crate) mod standing;
mod take;
mod tell;
mod turns;
mod unheard;
mod unreachable;
mod ways;

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

/// What all threads of a server share for columns with several copies.
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
    /// Targets that have to take changes of that one, and cannot be reached.
    pub(crate) unreachable: Unreachable,
    pub(crate) removed: Removed,
    pub(crate) ways: Ways,
}

impl Copies {
    /// `own` cannot reach `target`: the metadata server is told. Not of one that was not tried, as
    /// nobody could say where it is.
    pub(crate) fn cannot_reach(&self, own: TargetId, target: TargetId) {
        if !self.lines.peers().is_unfound(target) {
            self.unreachable.add(own, target);
        }
    }

    /// For these targets.
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
    /// The epoch that this server acts under: that of its map, or of the oldest
    /// change that is still under way. What such a change notes is noted then. It says nothing
    /// of targets that have been given up: those act under none any more.
    pub(crate) fn acting(&self) -> Epoch {
        // First: what begins after this begins under it.
        let map = self.standings.map();
        let counts = |target| !map.given_up.contains(&target);
        let oldest = self.begun.oldest(counts).into_iter().chain(self.turns.oldest(counts));
        oldest.fold(map.epoch, Epoch::min)
    }
}

/// Whether a change goes no further than to the disk of `own`.
pub(crate) fn ends_here(change: &Change, own: TargetId) -> bool {
    let relay: Option<&Relay> = change.access.relay.as_ref();
    relay.is_some_and(|relay| next(&change.access.copies, own, relay).is_none())
}
