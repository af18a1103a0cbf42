//! Messages between data servers and the metadata server.

use crate::map::Standing;
use crate::message::{records, requests};
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
        /// Other targets that have missed something of what this one has, each
        /// with the number of gaps noted for it.
        gaps: Vec<(TargetId, u64)>,
    }
    /// What a data server does next.
    HeartbeatReply {
        /// The map's epoch.
        epoch: Epoch,
        /// Every server acts under this epoch or a later one, or has no lease.
        in_effect: Epoch,
        /// All targets, if the server acts under an older epoch; else none.
        standings: Vec<Standing>,
        /// The server's lease to serve what has several copies, counted from
        /// when it sent the request.
        serve_ms: u32,
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
    /// A data server lives.
    HeartbeatRequest(Heartbeat) -> HeartbeatReply {
        /// The epoch that it acts under; 0: none yet.
        acting: Epoch,
        /// Its targets.
        targets: Vec<TargetReport>,
    }
}
