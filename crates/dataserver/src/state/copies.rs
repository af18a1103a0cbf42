//! State for columns with several copies.

use super::locks::RangeLocks;
use super::removed::Removed;
use super::resting::Resting;
use super::staged::Staged;
use super::suspects::Repairs;
use crate::peers::lines::Lines;
use crate::queue::tasks::ChangeTask;
use crate::standing::Standings;
use crate::standing::turns::{Begun, Turns};
use crate::standing::unreachable::Unreachable;
use crate::standing::ways::Ways;
use weir_net::ConnId;
use weir_types::{Epoch, TargetId};

/// State for columns with several copies that all threads of a server share.
pub(crate) struct Copies {
    pub(crate) standings: Standings,
    pub(crate) lines: Lines,
    pub(crate) locks: RangeLocks,
    pub(crate) turns: Turns,
    pub(crate) begun: Begun,
    pub(crate) repairs: Repairs,
    pub(crate) staged: Staged<ConnId, (ConnId, ChangeTask)>,
    pub(crate) resting: Resting,
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

    /// The state at the start of a server whose buffers have this many bytes in all.
    pub(crate) fn new(lines: Lines, buffer_bytes: usize) -> Self {
        let ways = Ways::new(lines.run());
        Self {
            standings: Standings::default(),
            lines,
            locks: RangeLocks::default(),
            turns: Turns::default(),
            begun: Begun::default(),
            repairs: Repairs::default(),
            staged: Staged::new(buffer_bytes),
            resting: Resting::default(),
            unreachable: Unreachable::default(),
            removed: Removed::default(),
            ways,
        }
    }

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
