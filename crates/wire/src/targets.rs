//! The state of targets as shown to users, and orders of administrators.

use crate::map::TargetState;
use crate::message::{records, requests};
use weir_types::codec::Bytes;
use weir_types::{
    ColumnIndex, DiskId, FileId, FsUsage, KeyGeneration, SegmentIndex, ServerId, TargetId,
};

records! {
    /// Work of a target for clients.
    #[derive(Copy, Default)]
    TargetWork {
        /// Bytes read since its server started.
        read_bytes: u64,
        /// Bytes written since its server started.
        written_bytes: u64,
        /// Requests that wait for its disk.
        queued: u32,
        /// Requests in progress.
        in_flight: u32,
        /// Time per MiB of disk reads since the last report, while there were reads, microseconds;
        /// 0 if there were too few.
        us_per_mib: u32,
        /// Mean size of contiguous disk reads, KiB: a disk that is read in small pieces is not slow
        /// for that reason. 0 if `us_per_mib` is 0.
        piece_kib: u32,
        /// Time per MiB as reported to clients, which includes reads from memory, or is measured by
        /// a test read if there were no reads lately; 0 if unknown.
        serves_us_per_mib: u32,
    }
    /// Load of a machine since its last report.
    #[derive(Copy, Default)]
    MachineLoad {
        /// Use of all its processors together, in thousandths.
        cpu_permille: u16,
        /// Bytes per second received from other machines.
        received_bytes_per_s: u64,
        /// Bytes per second sent to other machines.
        sent_bytes_per_s: u64,
    }
    /// A target as the metadata server sees it.
    TargetView {
        /// The target.
        target: TargetId,
        /// Its data server.
        server: ServerId,
        /// Host of the server.
        host: String,
        /// Failure domain of the server; if empty, its host.
        domain: String,
        /// Its state.
        state: TargetState,
        /// Online, but not heard of for longer than half the time after which it counts as offline.
        suspect: bool,
        /// The target is drained: it gets no new data, and its data is moved away.
        draining: bool,
        /// Age of the state, milliseconds; `None` if it is older than the metadata server's
        /// process.
        since_ms: Option<u64>,
        /// Time since the target was last heard of, milliseconds.
        silent_ms: u64,
        /// Time for which the target is still kept offline, because it came and went too often,
        /// milliseconds.
        held_ms: u64,
        /// Space and files, as last reported.
        usage: FsUsage,
        /// The disk of the target. Other targets may be on the same disk.
        disk: DiskId,
        /// Gaps of the target, noted by others or by itself: parts of objects that it lacks. A part
        /// has at most 1 MiB, or extends to the end of an object.
        behind: u64,
        /// Gaps that were filled per second lately.
        behind_per_s: u64,
        /// Time until all gaps are filled at that speed, seconds; 0 if unknown.
        behind_expected_s: u64,
        /// Why the target is out of service; empty if it is not.
        trouble: String,
        /// Duration of its disk's present operation when last reported, milliseconds; 0 if the disk
        /// does not hang.
        hangs_ms: u64,
        /// Its server has given it up, and restarts when its disks answer.
        given_up: bool,
        /// Its work, as last reported.
        work: TargetWork,
        /// Load of its server's machine, as last reported.
        machine: MachineLoad,
        /// The target has been much slower than others for some time.
        slow: bool,
    }
    /// A page of the list of targets.
    TargetPage {
        /// The targets, by ascending id.
        targets: Vec<TargetView>,
        /// Whether this is the last page.
        end: bool,
    }
    /// A column of a file that has lost all copies.
    LostColumn {
        /// The segment.
        segment: SegmentIndex,
        /// First byte of the segment in the file.
        start: u64,
        /// The column.
        column: ColumnIndex,
        /// Targets that had its copies.
        targets: Vec<TargetId>,
    }
    /// A page of the columns of a file that have lost all copies.
    LossPage {
        /// The columns, ascending.
        columns: Vec<LostColumn>,
        /// First byte of the file for the next page; `None` at the end.
        next: Option<u64>,
    }
    /// Free ids: neither they nor any greater id was ever in use.
    Numbers {
        /// Id for a data server.
        server: ServerId,
        /// Id for a target.
        target: TargetId,
    }
    /// New working keys.
    #[derive(Copy)]
    KeyRotation {
        /// Their generation: they sign all capabilities from now on.
        generation: KeyGeneration,
        /// Capabilities of earlier generations count until then, in milliseconds since 1970.
        old_until_unix_ms: u64,
    }
    /// Position in a scan of all layouts, for example during the removal of a target.
    RemovalPlace {
        /// Key of the next metadata record.
        key: Bytes,
        /// The last counted file.
        last: FileId,
        /// Number of counted files.
        files: u64,
    }
    /// Result of one step of the removal of a target.
    Removal {
        /// Number of files found so far that had a copy there.
        files: u64,
        /// Where the next step begins; `None` when the target is removed.
        next: Option<RemovalPlace>,
    }
}

requests! {
    /// Asks for a page of the targets.
    ListTargetsRequest(ListTargets) -> TargetPage {
        /// Targets with greater ids; `None` for all.
        after: Option<TargetId>,
    }
    /// Sets whether a target is drained (administrators).
    SetTargetRequest(SetTarget) -> () {
        /// The target.
        target: TargetId,
        /// Whether to drain it: it gets no new data, and its data is moved away.
        draining: bool,
    }
    /// Asks for the columns of a file whose copies were all on removed targets (administrators).
    /// With `accept` these columns get new, empty copies, which read as zeros, and no client keeps
    /// cached data of the file. The acceptance is logged.
    AcceptLossesRequest(AcceptLosses) -> LossPage {
        /// The file.
        file: FileId,
        /// First byte of the file to look at.
        from: u64,
        /// Whether to make new copies; otherwise they are only listed.
        accept: bool,
    }
    /// Counts the files that have copies on any of some targets, one step at a time
    /// (administrators).
    CountCopiesRequest(CountCopies) -> Removal {
        /// The targets.
        targets: Vec<TargetId>,
        /// Where to begin; `None`: at the beginning.
        place: Option<RemovalPlace>,
    }
    /// Makes new working keys, which sign all capabilities from the reply on (administrators). The
    /// error is `Busy` while capabilities of the last rotation of one of the targets count.
    RotateKeysRequest(RotateKeys) -> KeyRotation {
        /// The target whose earlier keys are to count no more; `None` for all targets.
        target: Option<TargetId>,
        /// Whether they count no more at once, and not when the capabilities that they have signed
        /// have expired.
        now: bool,
        /// Whether the targets' own keys are replaced, too. Their servers get the new keys first; the
        /// rotation follows for each target when its server has confirmed that.
        own: bool,
    }
    /// Asks for ids for a new data server and its targets (administrators).
    FreeNumbersRequest(FreeNumbers) -> Numbers {
    }
    /// Removes a data server from the cluster for good: its key is refused, and its id is not used
    /// again (administrators). The error is `Busy` if it has targets, or is the last server.
    RemoveServerRequest(RemoveServer) -> () {
        /// The server.
        server: ServerId,
    }
    /// Removes a target from the cluster for good, one step at a time: its id is not used again
    /// (administrators). The error is `Busy` if it is in use.
    RemoveTargetRequest(RemoveTarget) -> Removal {
        /// The target.
        target: TargetId,
        /// Remove the target even if files have copies there, which are then lost.
        force: bool,
        /// Where to begin; `None`: at the beginning.
        place: Option<RemovalPlace>,
    }
}
