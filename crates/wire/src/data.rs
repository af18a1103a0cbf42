//! Messages to data servers.

use crate::capability::Capability;
use crate::key::Mac;
use crate::message::{records, requests};
use weir_layout::RegionList;
use weir_types::codec::{Decode, DecodeError, Encode, Reader};
use weir_types::{
    CopyIndex, Epoch, FsUsage, Generation, JobId, ObjectId, Rank, StripeMap, TargetId,
};

/// How a read is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadFlags {
    /// Under the object's lock, every block verified: asked for after a
    /// checksum did not match, when a writer may have been at work.
    pub locked: bool,
    /// Send no checksums.
    pub unchecked: bool,
    /// Whatever this copy lacks: another server knows by checksums what of it counts.
    pub as_is: bool,
}
/// How a write is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Durable before the reply (O_DSYNC).
    pub sync: bool,
    /// Acknowledge it before the other copies have it.
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
flags_codec!(ReadFlags { locked = 1, unchecked = 2, as_is = 4 });
flags_codec!(WriteFlags { sync = 1, later = 2 });

/// What verification found wrong in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Damage {
    /// Data and its checksum do not belong together.
    Block,
    /// The header of an object is damaged, or another object's.
    Header,
    /// Checksums behind the end of an object are other than zero.
    BehindEnd,
    /// It cannot be read.
    Unreadable,
    /// Something that is not an object lies among the objects.
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

/// What was done about damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mended {
    /// Nothing: there is no other copy of it.
    No,
    /// It was made good from another copy.
    Done,
    /// It is being made anew from another copy.
    UnderWay,
    /// There are other copies, and it could not be made good.
    Failed,
}
weir_types::codec_tag!(Mended { No = 0, Done = 1, UnderWay = 2, Failed = 3 });

records! {
    /// Names an object and shows the right to use it.
    Access {
        /// The target that stores it.
        target: TargetId,
        /// The object.
        object: ObjectId,
        /// The file's generation as the client knows it: older ones may not write.
        generation: Generation,
        /// What the client may do.
        capability: Capability,
        /// The capability's code for this target.
        mac: Mac,
        /// All copies of the column in the order of the layout, this one too;
        /// none if there is only one.
        copies: Vec<CopyAccess>,
        /// Only between data servers: who has ordered the change.
        relay: Option<Relay>,
    }
    /// A copy of a column.
    CopyAccess {
        /// The target that stores it.
        target: TargetId,
        /// The capability's code for it.
        mac: Mac,
        /// It is being made: it gets all changes, and is not read yet.
        filling: bool,
    }
    /// A change that another server hands on.
    Relay {
        /// The copy that ordered it.
        by: TargetId,
        /// Under which epoch: what has been waiting since before that copy was away is
        /// not done any more.
        epoch: Epoch,
        /// Copies that will not have it for now: whoever has it notes a gap for
        /// each.
        lacking: Vec<TargetId>,
        /// It only brings this copy up to date: no other is concerned.
        alone: bool,
        /// What comes is current for certain: the copy that gets it lacks it no
        /// more, whatever it has noted of itself.
        vouched: bool,
        /// The way that it takes, as the copy that ordered it numbers them: what others
        /// hand on that has come an older way is refused.
        way: u64,
    }
    /// Bytes that the client itself has sent to other copies ([`StageRequest`]).
    Staged {
        /// Under which number, of those of its session.
        ticket: u64,
        /// To which copies: bit n stands for copy n.
        copies: u16,
    }
    /// Length of an object.
    ObjectLen {
        /// Bytes; what lies beyond reads as zeros.
        len: u64,
    }
    /// What is known of an object.
    ObjectStat {
        /// Whether it exists.
        exists: bool,
        /// Bytes.
        len: u64,
        /// Its fence: writes with a lower one are refused.
        generation: Generation,
        /// Bytes of disk that its data takes, about; also room that is reserved. (0 in the
        /// answer to a fence.)
        allocated: u64,
    }
    /// Bytes of one object that go to another.
    CopyPiece {
        /// First byte in the object that is read.
        from: u64,
        /// First byte in the object that is written.
        to: u64,
        /// Bytes.
        len: u64,
    }
    /// What a copy has led to.
    Copied {
        /// Length of the object that was written, bytes; 0 if it is not there,
        /// because there was nothing to write.
        len: u64,
        /// Bytes that were written; the others were holes and are so now.
        written: u64,
    }
    /// Shows the right of an administrator to look at all objects of a target.
    AdminAccess {
        /// The target.
        target: TargetId,
        /// What the client may do.
        capability: Capability,
        /// The capability's code for this target.
        mac: Mac,
    }
    /// An object that a target holds.
    ObjectEntry {
        /// Which.
        object: ObjectId,
        /// Bytes.
        len: u64,
    }
    /// Some objects of a target, in the order of listings: by the hash of the
    /// file id, then by [`ObjectId`].
    ObjectPage {
        /// The objects.
        objects: Vec<ObjectEntry>,
        /// Files among the objects of the target that no object has, with what
        /// is wrong about each.
        strays: Vec<String>,
        /// Continue after this one; `None`: the target has no more.
        next: Option<ObjectId>,
    }
    /// What the copy of an object on a target does not serve, because another copy has
    /// other bytes there.
    Lacking {
        /// The object.
        object: ObjectId,
        /// First byte, and the first one after, of each part; at most
        /// [`weir_types::limits::MAX_LACKING_RANGES`], the last of which may hold
        /// others.
        ranges: Vec<(u64, u64)>,
    }
    /// Some of the objects of a target of which it does not serve all.
    LackingPage {
        /// In the order of their names.
        objects: Vec<Lacking>,
        /// Continue with this one; `None`: there are no more.
        next: Option<ObjectId>,
    }
    /// How far a verification has come.
    ScrubCursor {
        /// The hash directory that is being verified.
        hash: u16,
        /// Its objects up to this one are verified.
        done: Option<ObjectId>,
        /// Bytes of the next one before this one are verified.
        offset: u64,
    }
    /// Something that is not as it was written.
    ScrubFinding {
        /// The object, if it is about one.
        object: Option<ObjectId>,
        /// The file, relative to the target's directory.
        path: String,
        /// First byte: of the object, or else of the file.
        offset: u64,
        /// Bytes; 0: none in particular.
        len: u64,
        /// What is wrong.
        damage: Damage,
        /// In words.
        what: String,
        /// What was done about it.
        mended: Mended,
    }
    /// What a part of a verification led to.
    ScrubPage {
        /// What is wrong.
        findings: Vec<ScrubFinding>,
        /// Objects of which the last byte was verified.
        objects: u64,
        /// Bytes that were verified.
        bytes: u64,
        /// Continue here; `None`: all is verified.
        next: Option<ScrubCursor>,
    }
    /// State of one target.
    TargetStatus {
        /// The target.
        target: TargetId,
        /// Its directory.
        dir: String,
        /// Its space.
        usage: FsUsage,
        /// Requests accepted and not answered.
        in_flight: u32,
        /// Requests waiting for the disk.
        queue_depth: u32,
        /// What is wrong; empty: nothing.
        trouble: String,
    }
    /// A process of a job that reads from a target.
    ReaderEntry {
        /// Its job.
        job: JobId,
        /// Which process.
        rank: Rank,
        /// How far it is, in 1/2^32.
        progress: u32,
        /// What it has to do, MiB, rounded up.
        work_mib: u32,
        /// That was heard so long ago, milliseconds.
        age_ms: u32,
        /// Bytes that it has asked for of first copies here,
        first_bytes: u64,
        /// and of other copies.
        other_bytes: u64,
    }
    /// Some of the processes of jobs that read from a target.
    ReadersPage {
        /// In the order of jobs and ranks.
        readers: Vec<ReaderEntry>,
        /// There are no more.
        end: bool,
    }
    /// Counters and state of a server.
    ServerStatus {
        /// Program version.
        version: String,
        /// Milliseconds since it started.
        uptime_ms: u64,
        /// Open connections.
        connections: u32,
        /// Name and value of each counter, sorted by name.
        counters: Vec<(String, u64)>,
        /// Targets of a data server.
        targets: Vec<TargetStatus>,
    }
}

impl AdminAccess {
    /// The same right as a request to one object shows it.
    pub fn of(access: &Access) -> Self {
        let Access { target, capability, mac, .. } = access;
        Self { target: *target, capability: capability.clone(), mac: *mac }
    }
}

requests! {
    /// Reads the part of some regions that lies on one column. The regions are
    /// relative to the segment and the same for every server; each works out
    /// its own share. The reply carries the pieces in order, clipped to the
    /// object's length, and one checksum for each block cut.
    ReadRequest(Read) -> ObjectLen {
        /// What to read from.
        access: Access,
        /// With the object's column: which bytes are there.
        stripe: StripeMap,
        /// How to read.
        flags: ReadFlags,
        /// Which bytes of the segment.
        regions: RegionList,
    }
    /// Writes the part of some regions that lies on one column; the payload
    /// carries the pieces in order, with one checksum for each block cut. Between data
    /// servers the payload may be missing, if the copy that is asked has had it staged.
    WriteRequest(Write) -> ObjectLen {
        /// What to write to.
        access: Access,
        /// With the object's column: which bytes are there.
        stripe: StripeMap,
        /// How to write.
        flags: WriteFlags,
        /// Which bytes of the segment.
        regions: RegionList,
        /// Which copies have the payload from the client, before they are told to use it.
        staged: Option<Staged>,
    }
    /// Payload and checksums of a write, for a copy that will be told of it by the one
    /// that orders. Nothing is changed. They are kept for a short time, if there is room.
    StageRequest(Stage) -> () {
        /// The copy that is asked; as for the write.
        access: Access,
        /// As in the write.
        stripe: StripeMap,
        /// As in the write.
        regions: RegionList,
        /// As in the write.
        ticket: u64,
    }
    /// For a client that does not reach the server of another copy: when the answer has
    /// come, all that is sent on this connection goes there unchanged, and back. The
    /// next thing on it is the handshake with that server.
    ForwardRequest(Forward) -> () {
        /// The copy that is asked. Any right will do: the other server checks for itself
        /// whatever it is asked.
        access: Access,
        /// The target of the other copy.
        to: TargetId,
    }
    /// Makes an object durable. One that does not exist is no error: nothing
    /// was written to it.
    SyncRequest(Sync) -> () {
        /// Which object.
        access: Access,
    }
    /// Sets an object's length and truncate fence (`access.generation`).
    TruncateRequest(Truncate) -> ObjectLen {
        /// Which object.
        access: Access,
        /// Its length afterwards, at the most: a truncation never extends it.
        len: u64,
    }
    /// Asks for length and generation of an object, and for the room that it takes. An administrator's
    /// capability will do for the objects of every file.
    StatObjectRequest(StatObject) -> ObjectStat {
        /// Which object.
        access: Access,
    }
    /// Lists objects of a target (administrators). Objects that are made or
    /// removed meanwhile may or may not appear; all others appear exactly once.
    ListObjectsRequest(ListObjects) -> ObjectPage {
        /// Whose.
        access: AdminAccess,
        /// Continue after this one.
        after: Option<ObjectId>,
        /// The most objects to return.
        max_objects: u32,
    }
    /// Verifies objects of a target: headers, checksums and data
    /// (administrators).
    ScrubRequest(Scrub) -> ScrubPage {
        /// Whose.
        access: AdminAccess,
        /// Continue here; `None`: begin.
        cursor: Option<ScrubCursor>,
        /// Stop after about so many bytes.
        budget_bytes: u32,
    }
    /// Removes objects of a target, durably (administrators). Those that are
    /// not there are no error.
    RemoveObjectsRequest(RemoveObjects) -> () {
        /// Whose.
        access: AdminAccess,
        /// Which.
        objects: Vec<ObjectId>,
    }
    /// Lists what copies on a target do not serve, because other copies have other
    /// bytes there (administrators).
    ListLackingRequest(ListLacking) -> LackingPage {
        /// Whose.
        access: AdminAccess,
        /// This object and those after it.
        from: ObjectId,
        /// The most objects to return.
        max_objects: u32,
    }
    /// What the other copies had of a range of an object is lost for good: the copy
    /// here serves what it has (administrators). Logged.
    AcceptLossRequest(AcceptLoss) -> () {
        /// Whose.
        access: AdminAccess,
        /// Which object.
        object: ObjectId,
        /// The first byte.
        start: u64,
        /// The first byte after them.
        end: u64,
    }
    /// Makes a range of an object zeros and gives its room back; the length
    /// stays. An object that does not exist is all zeros already.
    PunchRequest(Punch) -> ObjectLen {
        /// Which object; fenced like a write.
        access: Access,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    }
    /// Reserves room for a range of an object, so that writing there does not
    /// find the disk full; the length stays. The object is made if it is not
    /// there.
    AllocateRequest(Allocate) -> ObjectLen {
        /// Which object; fenced like a write.
        access: Access,
        /// First byte.
        offset: u64,
        /// Bytes, at most [`weir_types::limits::MAX_ALLOCATE_BYTES`].
        len: u64,
    }
    /// Finds the first byte at or after an offset of an object that may be
    /// other than zero, or that lies in a hole (also behind the object's end).
    /// `None`: there is no more data.
    SeekRequest(Seek) -> Option<u64> {
        /// Which object.
        access: Access,
        /// Look from here on.
        offset: u64,
        /// Look for a hole, not for data.
        hole: bool,
    }
    /// Raises an object's fence to `access.generation`, durably, unless it is as
    /// high already; the length stays. An object that does not exist is made,
    /// empty, so that it refuses older writes too. `exists` of the reply is
    /// always true.
    FenceRequest(Fence) -> ObjectStat {
        /// Which object.
        access: Access,
    }
    /// Copies pieces of one object to another: verified as when they are read,
    /// fenced and checked as when they are written, holes as holes. If the source
    /// is on another server, this one reads it there. `Unsupported`: it cannot,
    /// and the client has to read and write itself.
    CopyRequest(Copy) -> Copied {
        /// What to write to.
        access: Access,
        /// What to read from; its generation plays no part.
        source: Access,
        /// At most [`weir_types::limits::MAX_COPY_PIECES`], and of all together
        /// [`weir_types::limits::MAX_COPY_BYTES`]. What is written by one piece is
        /// not read by another.
        pieces: Vec<CopyPiece>,
    }
    /// Only between data servers: one notes that a copy lacks something. If that
    /// copy is the one asked, it does not serve those bytes until it has got them
    /// ([`Relay::alone`]).
    NoteGapRequest(NoteGap) -> () {
        /// Who notes it.
        target: TargetId,
        /// The object as the one asked has it, or would have it.
        object: ObjectId,
        /// Who lacks it.
        behind: TargetId,
        /// Which copy that is.
        copy: CopyIndex,
        /// First byte of the object.
        start: u64,
        /// The first byte after what is lacking.
        end: u64,
        /// The copy that lacks it has noted that itself.
        told: bool,
        /// Refused by the one that lacks it if it lacked any of it, or of its parts, before.
        first: bool,
        /// It has got there since, to the copy that is asked: that one lacks it no more. Of
        /// another one: it is only asked whether it was noted that it lacks any of it.
        filled: bool,
        /// The epoch that the one who tells acts under: who has an older map may take
        /// it for void, and refuses it.
        epoch: Epoch,
    }
    /// Only between data servers: gives a copy the length of the one that orders
    /// changes, whatever it was, and its fence. One that does not exist is made,
    /// unless it would be empty and without a fence.
    AlignRequest(Align) -> ObjectLen {
        /// Which object, and its fence.
        access: Access,
        /// Its length afterwards.
        len: u64,
    }
    /// Asks whether the server lives.
    PingRequest(Ping) -> () {}
    /// Asks how busy a target is, and how far others of the same job are that read there, without
    /// reading: the header of the reply says it, as in the reply to a read. `TargetMissing`.
    LoadRequest(Load) -> () {
        /// The target.
        target: TargetId,
        /// Who asks has its first copy there, and says how far it is.
        first: bool,
    }
    /// Asks which processes of jobs read from a target.
    ListReadersRequest(ListReaders) -> ReadersPage {
        /// The target.
        target: TargetId,
        /// Those after this one.
        after: Option<(JobId, Rank)>,
        /// At most so many.
        max_readers: u32,
    }
    /// Asks for counters and state.
    StatusRequest(Status) -> ServerStatus {}
    /// Only between data servers: some blocks of another copy have rotted, and the
    /// one that orders changes is to replace them. It answers when that is done.
    RepairRequest(Repair) -> () {
        /// The copy that orders changes.
        access: Access,
        /// The one that has rotted.
        copy: CopyIndex,
        /// The first byte.
        start: u64,
        /// The first byte after them; at most [`weir_types::limits::MAX_REPAIR_BYTES`].
        end: u64,
    }
}
