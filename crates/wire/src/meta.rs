//! Messages of clients to the metadata server.

use crate::capability::{Rights, SignedCapability};
use crate::lease::{HeldLease, LeaseRange};
use crate::map::ClusterMap;
use crate::message::{records, requests};
use crate::ticket::SealedTicket;
use weir_types::codec::{Bytes, Decode, DecodeError, Encode, Reader};
use weir_types::{
    Attr, Caller, ClientId, ClientStanding, Consistency, Epoch, FileId, FileKind, FileLayout,
    FsUsage, Generation, LayoutSpec, Restrictions, SegmentIndex, ServerId, SlotId, SlotSequence,
    TargetId, Timestamp,
};

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock.
    Now,
    /// This time.
    At(Timestamp),
}
impl Encode for SetTime {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            SetTime::Now => out.push(0),
            SetTime::At(time) => {
                out.push(1);
                time.encode(out);
            }
        }
    }
}
impl Decode for SetTime {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(r)? {
            0 => Ok(SetTime::Now),
            1 => Ok(SetTime::At(Decode::decode(r)?)),
            _ => Err(DecodeError::BadValue),
        }
    }
}

/// How `setxattr` treats an attribute that exists or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Either way.
    #[default]
    Any,
    /// Must not exist (`XATTR_CREATE`).
    Create,
    /// Must exist (`XATTR_REPLACE`).
    Replace,
}
weir_types::codec_tag!(XattrMode { Any = 0, Create = 1, Replace = 2 });

/// The extended attribute that says what a program may do beyond others (`capabilities(7)`): the one
/// that the kernel asks for at every write.
pub const CAPABILITY: &[u8] = b"security.capability";

/// Which mutation of a session this is. The server keeps the result of the
/// last one of each slot, so a retry is answered, not done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutationId {
    /// The slot.
    pub slot: SlotId,
    /// Grows by one at each mutation of the slot.
    pub sequence: SlotSequence,
}
weir_types::codec_struct!(MutationId { slot, sequence });

/// What stands in front of every request to the metadata server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaPrefix {
    /// In whose name.
    pub caller: Caller,
    /// For requests that change something.
    pub mutation: Option<MutationId>,
}
weir_types::codec_struct!(MetaPrefix { caller, mutation });

records! {
    /// A truncation that objects may not have seen: whoever opens the file
    /// carries it out first.
    PendingTruncate {
        /// The fence.
        generation: Generation,
        /// The size it cut the file to. [`crate::lease::TO_THE_END`]: no
        /// truncation, but a writer that died or was cut off: the fence goes to
        /// all objects, and the size of the file is what they make
        /// ([`crate::lease::RecoveredRequest`]).
        size: u64,
    }
    /// How fast a target is, as its server has said last.
    #[derive(Copy)]
    TargetLoad {
        /// The target.
        target: TargetId,
        /// Time that a MiB takes there, while it has something to do, microseconds.
        us_per_mib: u32,
        /// Requests that it had not answered.
        in_flight: u32,
    }
    /// Everything needed to read and write a file.
    OpenFile {
        /// Attributes.
        attr: Attr,
        /// How far changes of other clients are to be seen, if the file says so.
        consistency: Option<Consistency>,
        /// The first page of the layout.
        layout: FileLayout,
        /// Whether [`GetLayoutRequest`] has more segments.
        more_segments: bool,
        /// The right to its objects.
        capability: SignedCapability,
        /// What has to be finished before the first read or write.
        pending_truncate: Option<PendingTruncate>,
        /// If there is a choice among copies: of those targets of which it is known how fast they
        /// are, at most [`weir_types::limits::MAX_LOADS`], so that the first read goes to the right one
        /// (the read scheme of CEFT-PVFS, 2.14).
        loads: Vec<TargetLoad>,
    }
    /// One directory entry.
    DirEntry {
        /// The name.
        name: Bytes,
        /// What it stands for.
        file: FileId,
        /// Its kind.
        kind: FileKind,
        /// Continue after this entry from here.
        cookie: u64,
        /// Its attributes, if asked for.
        attr: Option<Attr>,
    }
    /// A part of a directory.
    DirPage {
        /// The entries.
        entries: Vec<DirEntry>,
        /// Whether the listing ends here.
        end: bool,
        /// The position of the last name that there was when the listing began: later ones are
        /// not in it.
        last: u64,
    }
    /// A part of a layout.
    LayoutPage {
        /// The segments asked for.
        layout: FileLayout,
        /// Whether there are more.
        more_segments: bool,
        /// The file's generation.
        generation: Generation,
        /// The right to the file's objects, with codes for every target of the page.
        capability: SignedCapability,
    }
    /// Columns of a segment of which some byte was written.
    WrittenColumns {
        /// The segment.
        segment: SegmentIndex,
        /// Its first byte in the file, by which it is found.
        start: u64,
        /// Column `c` is bit `c % 8` of byte `c / 8`; missing bytes are zeros.
        columns: Bytes,
    }
    /// That a file was read.
    #[derive(Copy)]
    FileAccess {
        /// The file.
        file: FileId,
        /// When, by the clock of the client, which has shown that.
        at: Timestamp,
        /// In any case, if it is later than what is kept; otherwise only if that is not later
        /// than the last change, or a day old (`relatime`).
        always: bool,
    }
    /// What a name stands for after an unlink or rename.
    Removed {
        /// Attributes of the file whose name went (nlink 0: it is gone, or goes
        /// when it is closed).
        attr: Option<Attr>,
    }
    /// Where a snapshot goes on: with this byte of the value of the first key
    /// that is not smaller than this one.
    ExportPlace {
        /// The key.
        key: Bytes,
        /// The byte of its value; 0 unless a page ended inside of it.
        offset: u64,
    }
    /// A record of the metadata store, or a piece of one.
    ExportRecord {
        /// The key.
        key: Bytes,
        /// The value, or what of it fits.
        value: Bytes,
    }
    /// What a step of a verification led to.
    VerifiedMeta {
        /// What does not match, with file and offset.
        damage: Vec<String>,
        /// Bytes that were looked at.
        bytes: u64,
        /// Go on here; `None`: that was all.
        next: Option<u64>,
    }
    /// What is kept of a client.
    ClientInfo {
        /// The client.
        client: ClientId,
        /// For people; no two clients have the same, but for an empty one.
        name: String,
        /// What it may do.
        standing: ClientStanding,
        /// What it is held to.
        restrictions: Restrictions,
    }
    /// A part of the list of clients.
    ClientPage {
        /// In the order of their numbers.
        clients: Vec<ClientInfo>,
        /// Whether the list ends here.
        end: bool,
    }
    /// A page of a snapshot.
    ExportPage {
        /// The number of the snapshot, to ask for the next page.
        snapshot: u64,
        /// The cluster.
        cluster: [u8; 16],
        /// The last operation that the snapshot holds.
        sequence: u64,
        /// Records in the order of their keys.
        records: Vec<ExportRecord>,
        /// Where it goes on; `None`: this was the last page.
        next: Option<ExportPlace>,
    }
}

requests! {
    /// The cluster map, if it is newer.
    GetMapRequest(GetMap) -> Option<ClusterMap> {
        /// The epoch that the client has; 0: none.
        have: Epoch,
    }
    /// Tickets for data servers.
    GetTicketsRequest(GetTickets) -> Vec<SealedTicket> {
        /// Which servers.
        servers: Vec<ServerId>,
    }
    /// Finds a name in a directory.
    LookupRequest(Lookup) -> Attr {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Bytes,
    }
    /// Attributes of a file.
    GetAttrRequest(GetAttr) -> Attr {
        /// The file.
        file: FileId,
    }
    /// Changes attributes; a size takes effect at once in the metadata, and
    /// the client then carries it to the objects ([`TruncateDoneRequest`]).
    SetAttrRequest(SetAttr) -> OpenFile {
        /// The file.
        file: FileId,
        /// Permission bits.
        mode: Option<u16>,
        /// Owner.
        uid: Option<u32>,
        /// Group.
        gid: Option<u32>,
        /// Size, bytes.
        size: Option<u64>,
        /// Access time.
        atime: Option<SetTime>,
        /// Modification time.
        mtime: Option<SetTime>,
    }
    /// Makes a file and opens it, or makes a special file.
    CreateRequest(Create) -> OpenFile {
        /// The directory.
        parent: FileId,
        /// The name; empty: a regular file without one (O_TMPFILE), which goes when it is closed
        /// unless a [`LinkRequest`] has given it one.
        name: Bytes,
        /// What to make: anything but directories and symbolic links.
        kind: FileKind,
        /// Permission bits.
        mode: u16,
        /// Bits that are taken from them, unless the directory has a default ACL.
        umask: u16,
        /// Device number of device files.
        rdev: u32,
        /// Fail if the name exists (O_EXCL); otherwise open what is there.
        exclusive: bool,
        /// Empty the file if it exists (O_TRUNC).
        truncate: bool,
        /// The rights to open it with.
        rights: Rights,
        /// Layout; `None`: the directory's default.
        layout: Option<LayoutSpec>,
    }
    /// Makes a directory.
    MkdirRequest(Mkdir) -> Attr {
        /// The directory to make it in.
        parent: FileId,
        /// The name.
        name: Bytes,
        /// Permission bits.
        mode: u16,
        /// Bits that are taken from them, unless the directory has a default ACL.
        umask: u16,
    }
    /// Removes a name.
    UnlinkRequest(Unlink) -> Removed {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Bytes,
        /// If that is the last name of a regular file, the file is open in this session from
        /// then on, to be closed like any other.
        hold: bool,
    }
    /// Removes an empty directory.
    RmdirRequest(Rmdir) -> () {
        /// The directory it is in.
        parent: FileId,
        /// The name.
        name: Bytes,
    }
    /// Moves a name, over an existing one too.
    RenameRequest(Rename) -> Removed {
        /// From this directory.
        parent: FileId,
        /// This name.
        name: Bytes,
        /// To this directory.
        new_parent: FileId,
        /// Under this name.
        new_name: Bytes,
        /// Fail if the new name exists (RENAME_NOREPLACE).
        no_replace: bool,
        /// Swap the two names (RENAME_EXCHANGE).
        exchange: bool,
        /// Leave a character device 0, 0 under the old name (RENAME_WHITEOUT).
        whiteout: bool,
        /// As for the removal of a name: for what is replaced.
        hold: bool,
    }
    /// Gives a file another name.
    LinkRequest(Link) -> Attr {
        /// The file.
        file: FileId,
        /// The directory of the new name.
        parent: FileId,
        /// The new name.
        name: Bytes,
    }
    /// Makes a symbolic link.
    SymlinkRequest(Symlink) -> Attr {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Bytes,
        /// What the link says.
        target: Bytes,
    }
    /// What a symbolic link says.
    ReadlinkRequest(Readlink) -> Bytes {
        /// The link.
        file: FileId,
    }
    /// A part of a directory.
    ReaddirRequest(Readdir) -> DirPage {
        /// The directory.
        dir: FileId,
        /// Where to continue; 0: at the beginning.
        cookie: u64,
        /// Where the listing ends, as its first page says; 0: it begins.
        last: u64,
        /// The most entries to return.
        max_entries: u32,
        /// Whether to return attributes.
        attributes: bool,
    }
    /// The value of an extended attribute.
    GetXattrRequest(GetXattr) -> Bytes {
        /// The file.
        file: FileId,
        /// The attribute.
        name: Bytes,
    }
    /// Sets an extended attribute.
    SetXattrRequest(SetXattr) -> () {
        /// The file.
        file: FileId,
        /// The attribute.
        name: Bytes,
        /// Its value.
        value: Bytes,
        /// If it exists.
        mode: XattrMode,
    }
    /// The names of all extended attributes.
    ListXattrRequest(ListXattr) -> Vec<Bytes> {
        /// The file.
        file: FileId,
    }
    /// Removes an extended attribute.
    RemoveXattrRequest(RemoveXattr) -> () {
        /// The file.
        file: FileId,
        /// The attribute.
        name: Bytes,
    }
    /// Space of the file system, or what the quota of a directory above leaves of it.
    StatfsRequest(Statfs) -> FsUsage {
        /// The file or directory that is asked about.
        file: FileId,
    }
    /// Opens a file; its name may go, its data stays until it is closed.
    OpenRequest(Open) -> OpenFile {
        /// The file.
        file: FileId,
        /// What for.
        rights: Rights,
    }
    /// Says that files are no longer open in this session (once for each
    /// successful open or create).
    CloseRequest(Close) -> () {
        /// The files.
        files: Vec<FileId>,
        /// Those among them of which a write has failed, and may still reach a
        /// data server: they are fenced.
        unconfirmed: Vec<FileId>,
    }
    /// After the server came back: files that are open, once for each open,
    /// and leases. Answers with the leases that are lost.
    ReassertRequest(Reassert) -> Vec<LeaseRange> {
        /// What was said before, by a run of these requests that broke off, does not
        /// count: the client begins anew.
        first: bool,
        /// The files.
        files: Vec<FileId>,
        /// Leases, each with the generation that it was held under.
        leases: Vec<HeldLease>,
        /// That was all: the server need not wait for more of this session.
        last: bool,
    }
    /// More of a layout.
    GetLayoutRequest(GetLayout) -> LayoutPage {
        /// The file.
        file: FileId,
        /// Begin with the segment that holds this byte.
        offset: u64,
        /// The rights that the capability should have.
        rights: Rights,
    }
    /// Grants segments ahead of a writer until the layout covers `offset`.
    ExtendRequest(Extend) -> LayoutPage {
        /// The file.
        file: FileId,
        /// The byte to cover.
        offset: u64,
        /// What is about to be written begins here: where chunks before it go does not matter.
        from: u64,
        /// Of files whose chunks go wherever they are taken: when each of the targets that was
        /// written to would have the next one, in microseconds from now. Those that are not named
        /// come first.
        waits: Vec<(TargetId, u64)>,
    }
    /// Writing has led to this size and time. Never shrinks the file; a
    /// generation that is out of date is ignored.
    CommitSizeRequest(CommitSize) -> Attr {
        /// The file.
        file: FileId,
        /// The end of what was written.
        size: u64,
        /// The generation that was written under.
        generation: Generation,
        /// When it was last written.
        mtime: Option<SetTime>,
        /// Columns that were written, as far as that was not reported before:
        /// so that an object that is missing can be told from one that was
        /// never made. At most [`weir_types::limits::MAX_WRITTEN_SEGMENTS`].
        written: Vec<WrittenColumns>,
        /// First byte, and the first one after, of ranges of which data servers have confirmed
        /// all bytes under this generation, ascending; at most
        /// [`weir_types::limits::MAX_WRITTEN_RANGES`].
        ranges: Vec<(u64, u64)>,
        /// From now on holes may be anywhere, and room reserved beyond the end: said before they
        /// are made. The answer comes when that is durable.
        sparse: bool,
    }
    /// The truncation with this generation has reached the objects.
    TruncateDoneRequest(TruncateDone) -> () {
        /// The file.
        file: FileId,
        /// Its fence.
        generation: Generation,
    }
    /// Sets the default layout of a directory, lays an empty file out anew, or says which
    /// copies there are to be of a file with data: what is not named of those stays.
    SetLayoutRequest(SetLayout) -> () {
        /// The directory or file.
        file: FileId,
        /// The layout; `None`: back to what the parent's default says.
        layout: Option<LayoutSpec>,
    }
    /// The default layout that new files of a directory get.
    GetDefaultLayoutRequest(GetDefaultLayout) -> LayoutSpec {
        /// The directory.
        dir: FileId,
    }
    /// Says when files were read. What is older than what is known of a file, or may not
    /// be said by this client, is ignored.
    AccessedRequest(Accessed) -> () {
        /// The files, at most [`weir_types::limits::MAX_ACCESSED`].
        files: Vec<FileAccess>,
    }
    /// Returns when all that was acknowledged before is durable.
    SyncMetaRequest(SyncMeta) -> () {}
    /// The right to look at all objects of all targets (administrators).
    AdminCapabilityRequest(AdminCapability) -> SignedCapability {}
    /// How many sessions have each of these files open (administrators). After
    /// a restart a file counts as open until every client has said what it has
    /// open.
    CountOpensRequest(CountOpens) -> Vec<u32> {
        /// The files.
        files: Vec<FileId>,
    }
    /// A page of a snapshot of all metadata (administrators). The snapshot is
    /// forgotten when it is not asked for, or after an hour.
    ExportMetaRequest(ExportMeta) -> ExportPage {
        /// Of this snapshot; 0: make one.
        snapshot: u64,
        /// From here on.
        place: ExportPlace,
    }
    /// Compares some of what the metadata server has on disk with its checksums,
    /// whether or not it is in memory (administrators).
    VerifyMetaRequest(VerifyMeta) -> VerifiedMeta {
        /// From here on; 0: from the beginning.
        place: u64,
    }
    /// Says what a client may do, from the reply on; its sessions end, so that
    /// none goes on under what was said before (administrators).
    SetClientRequest(SetClient) -> () {
        /// What is to be kept.
        info: ClientInfo,
    }
    /// A page of the clients that something is kept of; a client that is not
    /// among them is an ordinary one without restrictions (administrators).
    ListClientsRequest(ListClients) -> ClientPage {
        /// Those with greater numbers.
        after: ClientId,
    }
    /// Copies are moved until all targets use about the same share of their space, or
    /// no longer (administrators). It goes on when the answer is there.
    RebalanceRequest(Rebalance) -> () {
        /// How far a target may be from the mean, in percent of its space: 1 to 100.
        within_percent: u8,
        /// Ends it, if it is under way.
        stop: bool,
    }
}

impl ExtendRequest {
    /// Where chunks go does not depend on who writes them, or nothing is known of that.
    pub fn covering(file: FileId, offset: u64) -> Self {
        Self { file, offset, from: offset, waits: Vec::new() }
    }
}
