//! Targets as people see them, and what administrators order.

use crate::map::TargetState;
use crate::message::{records, requests};
use weir_types::codec::Bytes;
use weir_types::{FileId, FsUsage, ServerId, TargetId};

records! {
    /// A target as the metadata server sees it.
    TargetView {
        /// The target.
        target: TargetId,
        /// Its data server.
        server: ServerId,
        /// Where that runs.
        host: String,
        /// What it is good for.
        state: TargetState,
        /// Online, and not heard of for longer than half the time after which it
        /// will be offline.
        suspect: bool,
        /// It gets nothing new, and what it has is moved away.
        draining: bool,
        /// For how long its state is what it is, milliseconds; `None`: since before
        /// the metadata server began.
        since_ms: Option<u64>,
        /// When it was heard of last, milliseconds ago.
        silent_ms: u64,
        /// How long it is yet kept from being online, because it came and went too
        /// often; milliseconds.
        held_ms: u64,
        /// Its space when last heard of.
        usage: FsUsage,
        /// Gaps that others have noted for it, or it for itself: parts of objects
        /// that it lacks.
        behind: u64,
        /// Why it is out of service; empty: it is not.
        trouble: String,
    }
    /// A part of the list of targets.
    TargetPage {
        /// In the order of their numbers.
        targets: Vec<TargetView>,
        /// Whether the list ends here.
        end: bool,
    }
    /// How far the removal of a target has come.
    RemovalPlace {
        /// The next record of the metadata.
        key: Bytes,
        /// The last file that was counted.
        last: FileId,
        /// How many files were.
        files: u64,
    }
    /// What a step of the removal of a target led to.
    Removal {
        /// Files so far that had a copy there.
        files: u64,
        /// Go on here; `None`: it is removed.
        next: Option<RemovalPlace>,
    }
}

requests! {
    /// A page of all targets.
    ListTargetsRequest(ListTargets) -> TargetPage {
        /// Those with greater numbers; `None`: from the first on.
        after: Option<TargetId>,
    }
    /// Says whether a target is being drained (administrators).
    SetTargetRequest(SetTarget) -> () {
        /// The target.
        target: TargetId,
        /// It gets nothing new, and what it has is moved away.
        draining: bool,
    }
    /// Takes a target out of the cluster for good, a step at a time: its number does
    /// not come back (administrators). `Busy`: it is in use.
    RemoveTargetRequest(RemoveTarget) -> Removal {
        /// The target.
        target: TargetId,
        /// Though files have copies there, which are lost.
        force: bool,
        /// Go on here; `None`: begin.
        place: Option<RemovalPlace>,
    }
}
