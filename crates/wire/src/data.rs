//! Messages to data servers.

use crate::capability::Capability;
use crate::key::Mac;
use crate::message::{records, requests};
use weir_layout::RegionList;
use weir_types::codec::{Decode, DecodeError, Encode, Reader};
use weir_types::{
    CopyIndex, Epoch, FsUsage, Generation, JobId, ObjectId, Rank, StripeMap, TargetId,
};

/// Flags of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadFlags {
    /// Read under the object's lock and verify every block. A client asks for this after a checksum
    /// did not match, because a writer may have been at work.
    pub locked: bool,
    /// Send no checksums.
    pub unchecked: bool,
    /// Read also bytes that this copy lacks. Another server asks for this and decides by checksums
    /// which bytes are current.
    pub as_is: bool,
    /// The reader is on the machine of the server.
    pub near: bool,
}
/// Flags of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Make the write durable before the reply (O_DSYNC).
    pub sync: bool,
    /// Acknowledge the write before the other copies have it.
    pub later: bool,
}

macro_rules! flags_codec {
    ($name:ident { $($field:ident = $bit:literal),* }) => {
        impl Encode for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                let mut bits = 0u8;
                $(if self.$field { bits |= $bit; })*
                out.push(bits);
            }
        }
        impl Decode for $name {
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let bits = u8::decode(r)?;
                let known = 0 $(| $bit)*;
                if bits & !known != 0 {
                    return Err(DecodeError::BadValue);
                }
                Ok(Self { $($field: bits & $bit != 0),* })
            }
        }
    };
}
flags_codec!(ReadFlags { locked = 1, unchecked = 2, as_is = 4, near = 8 });
flags_codec!(WriteFlags { sync = 1, later = 2 });

/// Kind of damage that verification has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Damage {
    /// Data and its checksum do not match.
    Block,
    /// The header of an object is damaged, or is another object's.
    Header,
    /// Checksums behind the end of an object are not zero.
    BehindEnd,
    /// The place cannot be read.
    Unreadable,
    /// A file among the objects is not an object.
    Stranger,
    /// The superblock of the target is damaged.
    Superblock,
    /// The intent log of the target is damaged.
    IntentLog,
}
weir_types::codec_tag!(Damage {
    Block = 0,
    Header = 1,
    BehindEnd = 2,
    Unreadable = 3,
    Stranger = 4,
    Superblock = 5,
    IntentLog = 6,
});

/// Outcome of a repair of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mended {
    /// Not repaired: there is no other copy.
    No,
    /// Repaired from another copy.
    Done,
    /// Being repaired from another copy.
    UnderWay,
    /// Not repaired although there are other copies.
    Failed,
}
weir_types::codec_tag!(Mended { No = 0, Done = 1, UnderWay = 2, Failed = 3 });

records! {
    /// Names an object and proves the right to use it.
    Access {
        /// The target that stores it.
        target: TargetId,
        /// The object.
        object: ObjectId,
        /// The file's generation as the client knows it. Writes of an older generation are refused.
        generation: Generation,
        /// The client's capability.
        capability: Capability,
        /// The capability's signature for this target.
        mac: Mac,
        /// All copies of the column in the order of the layout, this one too. Empty if there is
        /// only one.
        copies: Vec<CopyAccess>,
        /// Only between data servers: which copy has ordered the change.
        relay: Option<Relay>,
    }
    /// A copy of a column.
    CopyAccess {
        /// The target that stores it.
        target: TargetId,
        /// The capability's signature for this target.
        mac: Mac,
        /// The copy is being filled: it takes all changes, and is not read yet.
        filling: bool,
    }
    /// A change that another data server passes on.
    Relay {
        /// The target of the copy that ordered the change.
        by: TargetId,
        /// The epoch of the order. A change that has waited since before that copy was away is
        /// refused.
        epoch: Epoch,
        /// Targets whose copies do not get the change now. Every copy that applies it notes a gap
        /// for each.
        lacking: Vec<TargetId>,
        /// The change only updates this copy. The other copies are not concerned.
        alone: bool,
        /// The bytes are certainly current. The copy that receives them clears its gap, whatever it
        /// has noted of itself.
        vouched: bool,
        /// Number of the route that the change takes, as counted by the copy that ordered it. A
        /// change on an older route is refused.
        way: u64,
    }
    /// Bytes that the client itself has sent to other copies ([`StageRequest`]).
    Staged {
        /// Number of the staged bytes, unique in their session.
        ticket: u64,
        /// The copies that have the bytes: bit n stands for copy n.
        copies: u16,
    }
    /// Length of an object.
    ObjectLen {
        /// Length, bytes. Bytes beyond it read as zeros.
        len: u64,
    }
    /// State of an object.
    ObjectStat {
        /// Whether it exists.
        exists: bool,
        /// Length, bytes.
        len: u64,
        /// The object's fence. Writes with a lower generation are refused.
        generation: Generation,
        /// Disk space of the data, bytes, approximately. Preallocated space counts. 0 in the reply
        /// to a fence.
        allocated: u64,
    }
    /// A range of one object that is copied to another.
    CopyPiece {
        /// First byte in the source object.
        from: u64,
        /// First byte in the destination object.
        to: u64,
        /// Length, bytes.
        len: u64,
    }
    /// Result of a copy.
    Copied {
        /// Length of the destination object, bytes. 0 if it does not exist, because there was
        /// nothing to write.
        len: u64,
        /// Bytes that were written. The others are holes, as in the source.
        written: u64,
    }
    /// Proves the right of an administrator to all objects of a target.
    AdminAccess {
        /// The target.
        target: TargetId,
        /// The administrator's capability.
        capability: Capability,
        /// The capability's signature for this target.
        mac: Mac,
    }
    /// An object that a target holds.
    ObjectEntry {
        /// The object.
        object: ObjectId,
        /// Length, bytes.
        len: u64,
    }
    /// A page of the objects of a target, in the order of listings: by the hash of the file id,
    /// then by [`ObjectId`].
    ObjectPage {
        /// The objects.
        objects: Vec<ObjectEntry>,
        /// Files among the objects that are not objects, each with the reason.
        strays: Vec<String>,
        /// The object after which the next page begins; `None` at the end.
        next: Option<ObjectId>,
    }
    /// Bytes that the copy of an object on a target does not serve, because another copy has other
    /// bytes there.
    Lacking {
        /// The object.
        object: ObjectId,
        /// First byte, and the first byte after it, of each range. At most
        /// [`weir_types::limits::MAX_LACKING_RANGES`]; the last range may cover others.
        ranges: Vec<(u64, u64)>,
    }
    /// A page of the objects that a target does not serve completely.
    LackingPage {
        /// The objects, in ascending order.
        objects: Vec<Lacking>,
        /// The object with which the next page begins; `None` at the end.
        next: Option<ObjectId>,
    }
    /// Position of a verification.
    ScrubCursor {
        /// The hash directory in progress.
        hash: u16,
        /// The objects of the directory up to this one are verified.
        done: Option<ObjectId>,
        /// Verified bytes of the next object.
        offset: u64,
    }
    /// A place that is not as it was written.
    ScrubFinding {
        /// The object, if the place belongs to one.
        object: Option<ObjectId>,
        /// Path of the file, relative to the target's directory.
        path: String,
        /// First byte, of the object, or else of the file.
        offset: u64,
        /// Length, bytes; 0 for no particular range.
        len: u64,
        /// Kind of damage.
        damage: Damage,
        /// Description for messages.
        what: String,
        /// Outcome of its repair.
        mended: Mended,
    }
    /// Result of one step of a verification.
    ScrubPage {
        /// Places with damage.
        findings: Vec<ScrubFinding>,
        /// Number of objects whose verification ended.
        objects: u64,
        /// Verified bytes.
        bytes: u64,
        /// Where the next step begins; `None` at the end.
        next: Option<ScrubCursor>,
    }
    /// State of one target.
    TargetStatus {
        /// The target.
        target: TargetId,
        /// Path of its directory.
        dir: String,
        /// Space and files.
        usage: FsUsage,
        /// Requests in progress.
        in_flight: u32,
        /// Requests that wait for the disk.
        queue_depth: u32,
        /// Why the target is out of service; empty if it is not.
        trouble: String,
    }
    /// A process of a job that reads from a target.
    ReaderEntry {
        /// The job.
        job: JobId,
        /// Rank of the process in the job.
        rank: Rank,
        /// Progress, in units of 1/2^32.
        progress: u32,
        /// Amount of work, MiB, rounded up.
        work_mib: u32,
        /// Age of the progress, milliseconds.
        age_ms: u32,
        /// Bytes of first copies that it has requested here.
        first_bytes: u64,
        /// Bytes of other copies that it has requested here.
        other_bytes: u64,
        /// Bytes of all these that it has requested from the machine of the target.
        near_bytes: u64,
    }
    /// A page of the processes of jobs that read from a target.
    ReadersPage {
        /// The processes, by job and rank.
        readers: Vec<ReaderEntry>,
        /// Whether this is the last page.
        end: bool,
    }
    /// Counters and state of a server.
    ServerStatus {
        /// Program version.
        version: String,
        /// Milliseconds since the server started.
        uptime_ms: u64,
        /// Number of open connections.
        connections: u32,
        /// Name and value of each counter, sorted by name.
        counters: Vec<(String, u64)>,
        /// Targets of a data server.
        targets: Vec<TargetStatus>,
    }
}

impl AdminAccess {
    /// Takes the proof of an administrator from a request for one object.
    pub fn of(access: &Access) -> Self {
        let Access { target, capability, mac, .. } = access;
        Self { target: *target, capability: capability.clone(), mac: *mac }
    }
}

requests! {
    /// Reads the part of some regions that lies on one column. The regions are relative to the
    /// segment and the same for every server; each server works out its own share. The reply
    /// carries the pieces in order, clipped to the object's length, and one checksum for each block
    /// cut.
    ReadRequest(Read) -> ObjectLen {
        /// The object.
        access: Access,
        /// Striping of the segment. With the object's column it determines the bytes on this
        /// server.
        stripe: StripeMap,
        /// Flags.
        flags: ReadFlags,
        /// Regions of the segment.
        regions: RegionList,
    }
    /// Writes the part of some regions that lies on one column. The payload carries the pieces in
    /// order, with one checksum for each block cut. Between data servers the payload may be missing
    /// if it was staged at the receiving copy.
    WriteRequest(Write) -> ObjectLen {
        /// The object.
        access: Access,
        /// Striping of the segment. With the object's column it determines the bytes on this
        /// server.
        stripe: StripeMap,
        /// Flags.
        flags: WriteFlags,
        /// Regions of the segment.
        regions: RegionList,
        /// Copies at which the client has staged the payload.
        staged: Option<Staged>,
    }
    /// Stages payload and checksums of a write at a copy. The copy that orders the write later
    /// tells it to use them. Nothing is changed. Staged bytes are kept for a short time, if there
    /// is memory.
    StageRequest(Stage) -> () {
        /// The copy that gets the bytes; as for the write.
        access: Access,
        /// As in the write.
        stripe: StripeMap,
        /// As in the write.
        regions: RegionList,
        /// As in the write.
        ticket: u64,
    }
    /// Turns the connection into a tunnel, for a client that cannot reach the server of another
    /// copy. After the reply all bytes on this connection are forwarded to that server, unchanged,
    /// and back. The next frame is the client's handshake with that server.
    ForwardRequest(Forward) -> () {
        /// An object on the asked server. Any right suffices: the other server checks each request
        /// itself.
        access: Access,
        /// The target of the other copy.
        to: TargetId,
    }
    /// Makes an object durable. An object that does not exist is no error: nothing was written to
    /// it.
    SyncRequest(Sync) -> () {
        /// The object.
        access: Access,
    }
    /// Sets an object's length and its fence (`access.generation`).
    TruncateRequest(Truncate) -> ObjectLen {
        /// The object.
        access: Access,
        /// The most bytes that it has afterwards. A truncation never extends an object.
        len: u64,
    }
    /// Asks for length, generation and disk space of an object. An administrator's capability
    /// suffices for the objects of every file.
    StatObjectRequest(StatObject) -> ObjectStat {
        /// The object.
        access: Access,
    }
    /// Lists objects of a target (administrators). Objects that are made or removed meanwhile may
    /// or may not appear; all others appear exactly once.
    ListObjectsRequest(ListObjects) -> ObjectPage {
        /// The target.
        access: AdminAccess,
        /// Objects after this one.
        after: Option<ObjectId>,
        /// The most objects to return.
        max_objects: u32,
    }
    /// Verifies objects of a target: headers, checksums and data
    /// (administrators).
    ScrubRequest(Scrub) -> ScrubPage {
        /// The target.
        access: AdminAccess,
        /// Where to begin; `None`: at the beginning.
        cursor: Option<ScrubCursor>,
        /// Stop after about this many bytes.
        budget_bytes: u32,
    }
    /// Removes objects of a target, durably (administrators). Missing objects are no error.
    RemoveObjectsRequest(RemoveObjects) -> () {
        /// The target.
        access: AdminAccess,
        /// The objects.
        objects: Vec<ObjectId>,
    }
    /// Lists bytes that copies on a target do not serve, because other copies have other bytes
    /// there (administrators).
    ListLackingRequest(ListLacking) -> LackingPage {
        /// The target.
        access: AdminAccess,
        /// Begin with this object.
        from: ObjectId,
        /// The most objects to return.
        max_objects: u32,
    }
    /// Accepts that the bytes which other copies had of a range of an object are lost for good: the
    /// copy here then serves its own bytes (administrators). The acceptance is logged.
    AcceptLossRequest(AcceptLoss) -> () {
        /// The target.
        access: AdminAccess,
        /// The object.
        object: ObjectId,
        /// First byte.
        start: u64,
        /// End, exclusive.
        end: u64,
    }
    /// Punches a hole: makes a range of an object zeros and frees its disk space. The length stays.
    /// An object that does not exist is all zeros already.
    PunchRequest(Punch) -> ObjectLen {
        /// The object; fenced like a write.
        access: Access,
        /// First byte.
        offset: u64,
        /// Length, bytes.
        len: u64,
    }
    /// Preallocates disk space for a range of an object, so that a write there does not fail with a
    /// full disk. The length stays. The object is made if it does not exist.
    AllocateRequest(Allocate) -> ObjectLen {
        /// The object; fenced like a write.
        access: Access,
        /// First byte.
        offset: u64,
        /// Length, bytes, at most [`weir_types::limits::MAX_ALLOCATE_BYTES`].
        len: u64,
    }
    /// Finds the first byte at or after an offset that may be other than zero, or that lies in a
    /// hole (possibly behind the object's end). The reply is `None` if there is no more data.
    SeekRequest(Seek) -> Option<u64> {
        /// The object.
        access: Access,
        /// First byte to look at.
        offset: u64,
        /// Look for a hole instead of data.
        hole: bool,
    }
    /// Raises an object's fence to `access.generation`, durably, unless it is already that high.
    /// The length stays. A missing object is made, empty, so that it refuses older writes too.
    /// `exists` of the reply is always true.
    FenceRequest(Fence) -> ObjectStat {
        /// The object.
        access: Access,
    }
    /// Copies pieces of one object to another. They are verified like a read, fenced and checked
    /// like a write, and holes stay holes. If the source is on another server, this server reads it
    /// there. The error `Unsupported` means that the server cannot copy, and that the client has to
    /// read and write itself.
    CopyRequest(Copy) -> Copied {
        /// The destination.
        access: Access,
        /// The source. Its generation is ignored.
        source: Access,
        /// At most [`weir_types::limits::MAX_COPY_PIECES`], with at most
        /// [`weir_types::limits::MAX_COPY_BYTES`] in all. No piece may read bytes that another
        /// piece writes.
        pieces: Vec<CopyPiece>,
    }
    /// Only between data servers: notes that a copy lacks something. If that copy is the one asked,
    /// it does not serve those bytes until it has received them ([`Relay::alone`]).
    NoteGapRequest(NoteGap) -> () {
        /// The target that notes the gap.
        target: TargetId,
        /// The object, by the id that it has, or would have, on that target.
        object: ObjectId,
        /// The target of the copy that lacks the bytes.
        behind: TargetId,
        /// Index of that copy.
        copy: CopyIndex,
        /// First byte of the object.
        start: u64,
        /// End, exclusive.
        end: u64,
        /// Whether the copy behind has noted the gap itself.
        told: bool,
        /// Whether the copy behind has to refuse the note if it already lacked any of the bytes, or
        /// of the parts around them.
        first: bool,
        /// Whether the bytes have since arrived at the asked copy, which then clears its gap. If
        /// another copy is behind, this only asks whether a gap of it is noted.
        filled: bool,
        /// The epoch of the sender. A receiver with an older map may take the epoch for void, and
        /// refuses the request.
        epoch: Epoch,
    }
    /// Only between data servers: gives a copy the length and the fence of the copy that orders
    /// changes, whatever its own were. A missing object is made, unless it would be empty and
    /// without a fence.
    AlignRequest(Align) -> ObjectLen {
        /// The object and its fence.
        access: Access,
        /// The new length, bytes.
        len: u64,
    }
    /// Checks whether the server is alive.
    PingRequest(Ping) -> () {}
    /// Asks for the load of a target, and for the progress of the other readers of the same job
    /// there, without reading. The reply has them in its header, like the reply to a read. The
    /// error is `TargetMissing` if the server has no such target.
    LoadRequest(Load) -> () {
        /// The target.
        target: TargetId,
        /// Whether the sender has its first copy there and reports its progress.
        first: bool,
    }
    /// Asks which processes of jobs read from a target.
    ListReadersRequest(ListReaders) -> ReadersPage {
        /// The target.
        target: TargetId,
        /// Processes after this one.
        after: Option<(JobId, Rank)>,
        /// The most processes to return.
        max_readers: u32,
    }
    /// Asks for counters and state.
    StatusRequest(Status) -> ServerStatus {}
    /// Only between data servers: asks the copy that orders changes to replace rotted blocks of
    /// another copy. The reply comes after that is done.
    RepairRequest(Repair) -> () {
        /// The copy that orders changes.
        access: Access,
        /// Index of the copy with the rotted blocks.
        copy: CopyIndex,
        /// First byte.
        start: u64,
        /// End, exclusive; at most [`weir_types::limits::MAX_REPAIR_BYTES`] after the first byte.
        end: u64,
    }
}
