//! Messages between data servers and the metadata server.

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
    /// A data server lives.
    HeartbeatRequest(Heartbeat) -> HeartbeatReply {
        /// Its targets.
        targets: Vec<TargetReport>,
    }
}
