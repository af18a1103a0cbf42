//! Targets as people see them, and what administrators order.

use crate::map::TargetState;
use crate::message::{records, requests};
use weir_types::codec::Bytes;
use weir_types::{ColumnIndex, DiskId, FileId, FsUsage, SegmentIndex, ServerId, TargetId};

records! {
    /// What a target has done for clients.
    #[derive(Copy, Default)]
    TargetWork {
        /// Bytes that were read since its server started,
        read_bytes: u64,
        /// and bytes that were written.
        written_bytes: u64,
        /// Requests that wait for its disk,
        queued: u32,
        /// and all that it has not answered.
        in_flight: u32,
        /// Time that a MiB took to be read from its disk since the last report, while there was
        /// something to read, in microseconds; 0: too little was read to say.
        us_per_mib: u32,
        /// In the mean a read of it went on for so much where the one before had ended, in KiB:
        /// a disk that is read in small pieces is not slow for that. 0 if `us_per_mib` is.
        piece_kib: u32,
        /// What `us_per_mib` says, as clients are told, with what is served from memory, or by a trial if
        /// nobody has read of late; 0: not known.
        serves_us_per_mib: u32,
    }
    /// How busy a machine has been since its last report.
    #[derive(Copy, Default)]
    MachineLoad {
        /// Its processors, all of them together, in thousandths.
        cpu_permille: u16,
        /// Bytes a second from other machines,
        received_bytes_per_s: u64,
        /// and to them.
        sent_bytes_per_s: u64,
    }
    /// A target as the metadata server sees it.
    TargetView {
        /// The target.
        target: TargetId,
        /// Its data server.
        server: ServerId,
        /// Where that runs.
        host: String,
        /// Its failure domain; empty: its host.
        domain: String,
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
        /// The disk that it is on, which others may be on too.
        disk: DiskId,
        /// Gaps that others have noted for it, or it for itself: parts of objects
        /// that it lacks, of 1 MiB at the most, or of an object from some place to its end.
        behind: u64,
        /// How many of them it gets in a second, of late.
        behind_per_s: u64,
        /// How long the rest will take at that speed, seconds; 0: not known.
        behind_expected_s: u64,
        /// Why it is out of service; empty: it is not.
        trouble: String,
        /// For how long its disk has been at one operation when it was heard of last,
        /// milliseconds; 0: it does not hang.
        hangs_ms: u64,
        /// Its server has given it up, and begins anew when its disks answer.
        given_up: bool,
        /// What it had done when it was heard of last.
        work: TargetWork,
        /// How busy its server's machine was then.
        machine: MachineLoad,
        /// It has been much slower than others for some time.
        slow: bool,
    }
    /// A part of the list of targets.
    TargetPage {
        /// In the order of their numbers.
        targets: Vec<TargetView>,
        /// Whether the list ends here.
        end: bool,
    }
    /// A column of a file of which no copy is left.
    LostColumn {
        /// The segment.
        segment: SegmentIndex,
        /// The first byte of the file in the segment.
        start: u64,
        /// The column.
        column: ColumnIndex,
        /// Where its copies were.
        targets: Vec<TargetId>,
    }
    /// Some of the columns of a file of which no copy is left.
    LossPage {
        /// In order.
        columns: Vec<LostColumn>,
        /// Go on from this byte of the file; `None`: these were the last.
        next: Option<u64>,
    }
    /// Numbers that nothing has or had, nor any greater one.
    Numbers {
        /// For a data server.
        server: ServerId,
        /// For a target.
        target: TargetId,
    }
    /// How far a look at all layouts, as for the removal of a target, has come.
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
    /// Some of the columns of a file of which all copies were on targets that have been
    /// removed; with `accept` they get new, empty copies, so that they are zeros, and
    /// nobody keeps what was read of the file before (administrators). Logged.
    AcceptLossesRequest(AcceptLosses) -> LossPage {
        /// The file.
        file: FileId,
        /// From this byte on.
        from: u64,
        /// Do it; else only say which.
        accept: bool,
    }
    /// Files that have copies on any of some targets, counted a step at a time
    /// (administrators).
    CountCopiesRequest(CountCopies) -> Removal {
        /// The targets.
        targets: Vec<TargetId>,
        /// Go on here; `None`: begin.
        place: Option<RemovalPlace>,
    }
    /// Numbers for a new data server and its targets (administrators).
    FreeNumbersRequest(FreeNumbers) -> Numbers {
    }
    /// Takes a data server out of the cluster for good: its key is refused, and its number
    /// does not come back (administrators). `Busy`: it has targets, or is the last one.
    RemoveServerRequest(RemoveServer) -> () {
        /// The server.
        server: ServerId,
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
