//! The cluster map: which servers and targets there are.

use crate::message::records;
use weir_types::limits::MAX_PAST;
use weir_types::{DiskId, Epoch, FsUsage, ServerId, TargetId};

/// State of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetState {
    /// The target serves everything.
    Online,
    /// Its server was not heard of for too long.
    Offline,
    /// The target is read-only: its disk has failed, is read-only, or could not be opened. It
    /// serves what can still be read.
    OutOfService,
    /// The target is back and receives what it has missed. It takes writes, and serves reads only
    /// of columns with a single copy.
    Syncing,
    /// Online, but not heard of for a while. Only shown to people.
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
    /// Whether the target serves everything.
    pub fn is_online(self) -> bool {
        matches!(self, TargetState::Online | TargetState::Suspect)
    }
}

/// A period in which a target was online.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Online {
    /// Epoch at which it came online.
    pub from: Epoch,
    /// Epoch at which it went offline, or came online again without some of its data.
    pub until: Epoch,
}
weir_types::codec_struct!(Online { from, until });

records! {
    /// What a data server has to know of a target, its own or another's.
    Standing {
        /// The target.
        target: TargetId,
        /// Its state.
        state: TargetState,
        /// The epoch at which it came online; if it is not online, the epoch at which it went
        /// offline.
        since: Epoch,
        /// The target is not online, and may have lost confirmed changes since it went offline.
        forgot: bool,
    }
    /// A target in the cluster map.
    TargetEntry {
        /// The target.
        target: TargetId,
        /// Its state.
        state: TargetState,
        /// The epoch at which it came online; if it is not online, the epoch at which it went
        /// offline.
        since: Epoch,
        /// Earlier periods in which it was online, the latest last, at most [`MAX_PAST`].
        past: Vec<Online>,
        /// The target has kept everything that it confirmed from this epoch on. Before, its machine
        /// was restarted or its disk has failed.
        anew: Epoch,
        /// The target is drained: it gets no new data, and its data is moved away.
        draining: bool,
        /// Space and files, as last reported.
        usage: FsUsage,
        /// The disk of the target. Other targets may be on the same disk.
        disk: DiskId,
    }
    /// A data server in the cluster map.
    ServerEntry {
        /// The server.
        server: ServerId,
        /// Its host, for locality and for messages.
        host: String,
        /// Its failure domain; if empty, its host.
        domain: String,
        /// `address:port` for TCP.
        tcp: String,
        /// Path of its Unix socket, for clients on the same host; may be empty.
        unix: String,
        /// Its targets, by ascending id.
        targets: Vec<TargetEntry>,
    }
    /// All servers, by ascending id. The order of targets in the map is the target order of striped
    /// layouts.
    ClusterMap {
        /// Epoch of the map. It grows with each change of servers, targets or states (not of
        /// usage).
        epoch: Epoch,
        /// The servers.
        servers: Vec<ServerEntry>,
    }
}

impl TargetEntry {
    /// Periods in which the target is known to have been online. If it is online now, the last
    /// period has no end.
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

    /// The entry of a target.
    pub fn target(&self, target: TargetId) -> Option<&TargetEntry> {
        self.targets().map(|(_, entry)| entry).find(|entry| entry.target == target)
    }

    /// Every target with its server, in target order.
    pub fn targets(&self) -> impl Iterator<Item = (&ServerEntry, &TargetEntry)> {
        self.servers.iter().flat_map(|s| s.targets.iter().map(move |t| (s, t)))
    }
}
