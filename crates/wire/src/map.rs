//! The cluster map: which servers and targets there are.

use crate::message::records;
use weir_types::limits::MAX_PAST;
use weir_types::{DiskId, Epoch, FsUsage, ServerId, TargetId};

/// What a target is good for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetState {
    /// Serves.
    Online,
    /// Its server has not been heard of for too long.
    Offline,
    /// Its server serves what can still be read, and changes nothing: the disk
    /// has failed, is read-only, or could not be opened.
    OutOfService,
    /// Back, and being brought up to date with what it missed: it takes writes,
    /// and serves reads only of what has a single copy.
    Syncing,
    /// Online, and not heard of for a while: for people to see.
    Suspect,
}
weir_types::codec_tag!(TargetState {
    Online = 0,
    Offline = 1,
    OutOfService = 2,
    Syncing = 3,
    Suspect = 4,
});

impl TargetState {
    /// Whether it serves everything.
    pub fn is_online(self) -> bool {
        matches!(self, TargetState::Online | TargetState::Suspect)
    }
}

/// A time in which a target was online.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Online {
    /// The epoch at which it became so.
    pub from: Epoch,
    /// The one at which it ceased to be, or began anew without a part of what it had.
    pub until: Epoch,
}
weir_types::codec_struct!(Online { from, until });

records! {
    /// What a data server has to know of a target, its own or another's.
    Standing {
        /// The target.
        target: TargetId,
        /// What it is good for.
        state: TargetState,
        /// Online: the epoch at which it became so; else the one at which it
        /// ceased to be.
        since: Epoch,
        /// It is not online, and may have lost since then what it had confirmed.
        forgot: bool,
    }
    /// One target.
    TargetEntry {
        /// The target.
        target: TargetId,
        /// Whether it serves.
        state: TargetState,
        /// Online: the epoch at which it became so; else the one at which it
        /// ceased to be.
        since: Epoch,
        /// When it was online before that: the last times, the latest last, at most
        /// [`MAX_PAST`] of them.
        past: Vec<Online>,
        /// The epoch from which on it is known to have kept all that it confirmed:
        /// its machine started anew, or its disk failed, before that.
        anew: Epoch,
        /// It gets nothing new, and what it has is moved away.
        draining: bool,
        /// Its space when last heard of.
        usage: FsUsage,
        /// The disk that it is on, which others may be on too.
        disk: DiskId,
    }
    /// One data server.
    ServerEntry {
        /// The server.
        server: ServerId,
        /// Where it runs, for locality and for people.
        host: String,
        /// Its failure domain; empty: its host.
        domain: String,
        /// `address:port` for TCP.
        tcp: String,
        /// Path of its Unix socket, of use on the same host; may be empty.
        unix: String,
        /// Its targets, in order.
        targets: Vec<TargetEntry>,
    }
    /// All servers, in order of their ids; the order of targets in it is the
    /// target order of striped layouts.
    ClusterMap {
        /// Grows at each change of servers, targets or states (not of usage).
        epoch: Epoch,
        /// The servers.
        servers: Vec<ServerEntry>,
    }
}

impl TargetEntry {
    /// When it is known to have been online, the last time included if it is now: that
    /// has no end.
    pub fn online(&self) -> impl Iterator<Item = (Epoch, Option<Epoch>)> + '_ {
        let past = self.past.iter().rev().take(MAX_PAST);
        let now = self.state.is_online().then_some((self.since, None));
        past.map(|online| (online.from, Some(online.until))).chain(now)
    }
}

impl ClusterMap {
    /// The server of a target.
    pub fn server_of(&self, target: TargetId) -> Option<&ServerEntry> {
        self.servers.iter().find(|s| s.targets.iter().any(|t| t.target == target))
    }

    /// What it says of a target.
    pub fn target(&self, target: TargetId) -> Option<&TargetEntry> {
        self.targets().map(|(_, entry)| entry).find(|entry| entry.target == target)
    }

    /// Every target with its server, in target order.
    pub fn targets(&self) -> impl Iterator<Item = (&ServerEntry, &TargetEntry)> {
        self.servers.iter().flat_map(|s| s.targets.iter().map(move |t| (s, t)))
    }
}
