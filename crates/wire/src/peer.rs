//! Messages between data servers and the metadata server.

use crate::capability::Capability;
use crate::data::CopyAccess;
use crate::map::{ServerEntry, Standing};
use crate::message::{records, requests};
use crate::targets::{MachineLoad, TargetWork};
use crate::ticket::SealedTicket;
use weir_types::{DiskId, Epoch, FileId, FsUsage, Generation, ObjectId, TargetId};

records! {
    /// What a target reports.
    TargetReport {
        /// The target.
        target: TargetId,
        /// Its space.
        usage: FsUsage,
        /// The disk that it is on, which others may be on too.
        disk: DiskId,
        /// Why it is out of service; empty: it is not.
        trouble: String,
        /// Objects that were removed, or were not there, since they were named
        /// in [`HeartbeatReply::remove`].
        removed: Vec<ObjectId>,
        /// Other targets that have missed something of what this one has, each
        /// with the number of gaps noted for it. Itself is among them if there is
        /// something that it does not serve until it has got it anew; and
        /// [`TargetId::NONE`] if it has lost what it had noted, and so any other may
        /// have missed something.
        gaps: Vec<(TargetId, u64)>,
        /// Copies that have been made as [`HeartbeatReply::fill`] told.
        filled: Vec<Fill>,
        /// Targets that should have taken changes of this one, and could not be
        /// reached for too long.
        unreachable: Vec<TargetId>,
        /// Objects of [`HeartbeatReply::distrust`] that are noted durably as not
        /// current, and not served.
        distrusted: Vec<ObjectId>,
        /// For how long its disk has been at one operation, milliseconds; 0: not so long that
        /// it would be said to hang.
        hangs_ms: u64,
        /// Its server serves nothing of it any more that has several copies, and applies nothing,
        /// until it has begun anew: its disk hangs.
        given_up: bool,
        /// What it has done.
        work: TargetWork,
    }
    /// A copy of a column that is to be made from what a target has; or that is whole, and
    /// it is to be said when it has everything, before another goes.
    Fill {
        /// Where the column is whole: it orders changes.
        from: TargetId,
        /// The object to be made.
        object: ObjectId,
        /// Where.
        to: TargetId,
        /// The file's generation when that was ordered: an order of before is another one.
        generation: Generation,
    }
    /// How the copies of a column are reached.
    Copies {
        /// All of them, in the order of the layout.
        copies: Vec<CopyAccess>,
        /// The file's generation.
        generation: Generation,
        /// Changes of before this generation may know of other copies. It is below that of a
        /// truncation which nobody has finished yet: of the same generation that would count
        /// as done.
        fence: Generation,
        /// The right to read and write them, for servers.
        capability: Capability,
    }
    /// Some of the copies that a target should have.
    CopyPage {
        /// At most [`weir_types::limits::MAX_OBJECT_PAGE`], in order; maybe none.
        objects: Vec<ObjectId>,
        /// Where to go on; `None` at the end.
        next: Option<ObjectId>,
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
        /// Every server acts under this epoch or a later one, or has no lease.
        in_effect: Epoch,
        /// All targets, if the server acts under an older epoch; else none.
        standings: Vec<Standing>,
        /// The server's lease to serve what has several copies, counted from
        /// when it sent the request.
        serve_ms: u32,
        /// Objects that no file uses any more.
        remove: Vec<(TargetId, ObjectId)>,
        /// Copies to be made, until they are reported.
        fill: Vec<Fill>,
        /// Copies that may lack what only a target knew that has been removed, until
        /// they are reported.
        distrust: Vec<(TargetId, ObjectId)>,
        /// Targets to be given up, should their disks hang still: others have what they have.
        give_up: Vec<TargetId>,
        /// Copies are made and brought up to date for this share of the time, percent,
        /// while clients ask for something.
        busy_percent: u8,
        /// Report again after so long.
        interval_ms: u32,
    }
}

requests! {
    /// A data server says where it is and what it serves.
    RegisterRequest(Register) -> HeartbeatReply {
        /// Where it runs.
        host: String,
        /// What it fails with as one, beside others on its host, such as a rack; empty: its
        /// host alone.
        domain: String,
        /// `address:port` for TCP.
        tcp: String,
        /// Path of its Unix socket; may be empty.
        unix: String,
        /// Its process has just started, and has not been answered yet: it has
        /// nothing under way, and no lease.
        first: bool,
        /// The same as long as nothing that was confirmed can have been lost: until
        /// its machine starts anew.
        run: u64,
        /// Its targets.
        targets: Vec<TargetReport>,
    }
    /// A data server asks for the one that serves a target. `TargetMissing`:
    /// there is none.
    FindPeerRequest(FindPeer) -> Peer {
        /// The target.
        target: TargetId,
    }
    /// A data server asks where the copies of columns are; the copy of each object
    /// plays no part. `None`: no file has the object any more.
    FindCopiesRequest(FindCopies) -> Vec<Option<Copies>> {
        /// At most [`weir_types::limits::MAX_FIND_COPIES`].
        objects: Vec<ObjectId>,
    }
    /// A data server has lost what it knew of copies, and asks which it should
    /// have: those of columns of which there are others.
    ListCopiesRequest(ListCopies) -> CopyPage {
        /// A target that it serves.
        target: TargetId,
        /// The first file.
        start: FileId,
        /// The file behind the last one.
        end: FileId,
        /// Those after this one, in the order of their names. It need not exist.
        after: Option<ObjectId>,
    }
    /// A data server lives.
    HeartbeatRequest(Heartbeat) -> HeartbeatReply {
        /// The epoch that it acts under; 0: none yet.
        acting: Epoch,
        /// How busy its machine is.
        machine: MachineLoad,
        /// Its targets.
        targets: Vec<TargetReport>,
    }
}

const RECOVERING: &str = "recovering, ";

/// The [`TargetReport::trouble`] of a target that is being recovered: its server does not serve
/// yet, and so has given it up.
pub fn recovering(percent: u8) -> String {
    format!("{RECOVERING}{percent} %")
}

/// Whether that is what a target is in.
pub fn is_recovering(trouble: &str) -> bool {
    trouble.starts_with(RECOVERING)
}
