//! Messages between data servers and the metadata server.

use crate::map::ServerEntry;
use crate::message::{records, requests};
use crate::ticket::SealedTicket;
use weir_types::{Epoch, FsUsage, ObjectId, TargetId};

records! {
    /// What a target reports.
    TargetReport {
        /// The target.
        target: TargetId,
        /// Its space.
        usage: FsUsage,
        /// Why it is out of service; empty: it is not.
        trouble: String,
        /// Objects that were removed, or were not there, since they were named
        /// in [`HeartbeatReply::remove`].
        removed: Vec<ObjectId>,
    }
    /// Another data server.
    Peer {
        /// Where it is.
        entry: ServerEntry,
        /// A ticket to it, for a data server: with it one may read what a
        /// capability shows the right to, whosever it is, and change nothing.
        ticket: SealedTicket,
    }
    /// What a data server does next.
    HeartbeatReply {
        /// The map's epoch.
        epoch: Epoch,
        /// Objects that no file uses any more.
        remove: Vec<(TargetId, ObjectId)>,
        /// Report again after so long.
        interval_ms: u32,
    }
}

requests! {
    /// A data server says where it is and what it serves.
    RegisterRequest(Register) -> HeartbeatReply {
        /// Where it runs.
        host: String,
        /// `address:port` for TCP.
        tcp: String,
        /// Path of its Unix socket; may be empty.
        unix: String,
        /// Its targets.
        targets: Vec<TargetReport>,
    }
    /// A data server asks for the one that serves a target. `TargetMissing`:
    /// there is none.
    FindPeerRequest(FindPeer) -> Peer {
        /// The target.
        target: TargetId,
    }
    /// A data server lives.
    HeartbeatRequest(Heartbeat) -> HeartbeatReply {
        /// Its targets.
        targets: Vec<TargetReport>,
    }
}
