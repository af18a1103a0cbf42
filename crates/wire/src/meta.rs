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

/// A new value for a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present time of the server.
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

/// How `setxattr` treats existing and missing attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// The attribute may or may not exist.
    #[default]
    Any,
    /// The attribute must not exist (`XATTR_CREATE`).
    Create,
    /// The attribute must exist (`XATTR_REPLACE`).
    Replace,
}
weir_types::codec_tag!(XattrMode { Any = 0, Create = 1, Replace = 2 });

/// The extended attribute with a program's privileges (`capabilities(7)`). The kernel asks for it
/// at every write.
pub const CAPABILITY: &[u8] = b"security.capability";

/// Identifies a mutation of a session. The server keeps the result of the last mutation of each
/// slot, so a retry gets that result and is not carried out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutationId {
    /// The slot.
    pub slot: SlotId,
    /// Number of the mutation. It grows by one with each mutation of the slot.
    pub sequence: SlotSequence,
}
weir_types::codec_struct!(MutationId { slot, sequence });

/// Precedes every request to the metadata server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaPrefix {
    /// The user and groups of the caller.
    pub caller: Caller,
    /// Set for requests that change something.
    pub mutation: Option<MutationId>,
}
weir_types::codec_struct!(MetaPrefix { caller, mutation });

records! {
    /// A truncation that may not have reached all objects. A client that opens the file carries it
    /// out first.
    PendingTruncate {
        /// Generation of the fence.
        generation: Generation,
        /// Size to which the file was truncated. [`crate::lease::TO_THE_END`] stands for no
        /// truncation but a writer that died or was cut off: the fence has to reach all objects,
        /// and the file's size follows from their lengths ([`crate::lease::RecoveredRequest`]).
        size: u64,
    }
    /// Speed and load of a target, as last reported.
    #[derive(Copy)]
    TargetLoad {
        /// The target.
        target: TargetId,
        /// Time per MiB while the target is busy, microseconds.
        us_per_mib: u32,
        /// Requests in progress.
        in_flight: u32,
    }
    /// Everything that a client needs to read and write a file.
    OpenFile {
        /// Attributes.
        attr: Attr,
        /// Required visibility of other clients' changes, if the file has such a setting.
        consistency: Option<Consistency>,
        /// The first page of the layout.
        layout: FileLayout,
        /// Whether [`GetLayoutRequest`] has more segments.
        more_segments: bool,
        /// The capability for its objects.
        capability: SignedCapability,
        /// A truncation that has to be finished before the first read or write.
        pending_truncate: Option<PendingTruncate>,
        /// Speeds of the file's targets, if it has several copies and as far as they are known. At
        /// most [`weir_types::limits::MAX_LOADS`]. The first read then goes to the right copy (the
        /// read scheme of CEFT-PVFS, 2.14).
        loads: Vec<TargetLoad>,
    }
    /// One directory entry.
    DirEntry {
        /// The name.
        name: Bytes,
        /// The file of this name.
        file: FileId,
        /// Kind of the file.
        kind: FileKind,
        /// Position after this entry, for the next page.
        cookie: u64,
        /// Attributes of the file, if asked for.
        attr: Option<Attr>,
        /// All segments of a regular file, if asked for, the caller may read it, and they fit.
        layout: Option<FileLayout>,
    }
    /// A page of a directory.
    DirPage {
        /// The entries.
        entries: Vec<DirEntry>,
        /// Whether this is the last page.
        end: bool,
        /// Position of the last name when the listing began. Later names are not in the listing.
        last: u64,
    }
    /// A page of a layout.
    LayoutPage {
        /// The requested segments.
        layout: FileLayout,
        /// Whether there are more.
        more_segments: bool,
        /// The file's generation.
        generation: Generation,
        /// The capability for the file's objects, with signatures for every target of the page.
        capability: SignedCapability,
    }
    /// The columns of a segment in which any byte was written.
    WrittenColumns {
        /// The segment.
        segment: SegmentIndex,
        /// First byte of the segment in the file, by which it is found.
        start: u64,
        /// Bit set: column `c` is bit `c % 8` of byte `c / 8`. Missing bytes count as zeros.
        columns: Bytes,
    }
    /// Reports that a file was read.
    #[derive(Copy)]
    FileAccess {
        /// The file.
        file: FileId,
        /// Time of the read, by the client's clock, which the client has already shown.
        at: Timestamp,
        /// Whether any later time is recorded. Otherwise it is recorded only if the present access
        /// time is not later than the last change, or is a day old (`relatime`).
        always: bool,
    }
    /// Result of an unlink or rename.
    Removed {
        /// Attributes of the file that has lost the name. With nlink 0 it is gone, or will be when
        /// it is closed.
        attr: Option<Attr>,
    }
    /// Position in a snapshot: a byte of the value of the first key that is not smaller than `key`.
    ExportPlace {
        /// The key.
        key: Bytes,
        /// Offset in the value; 0 unless a page ended within the value.
        offset: u64,
    }
    /// A record of the metadata store, or a piece of one.
    ExportRecord {
        /// The key.
        key: Bytes,
        /// The value, or a part of it.
        value: Bytes,
    }
    /// Result of one step of a verification.
    VerifiedMeta {
        /// Descriptions of damage, with file and offset.
        damage: Vec<String>,
        /// Verified bytes.
        bytes: u64,
        /// Where the next step begins; `None` at the end.
        next: Option<u64>,
    }
    /// The record of a client.
    ClientInfo {
        /// The client.
        client: ClientId,
        /// Name for messages. No two clients have the same name, except an empty one.
        name: String,
        /// What the client may do.
        standing: ClientStanding,
        /// Restrictions of the client.
        restrictions: Restrictions,
    }
    /// A page of the list of clients.
    ClientPage {
        /// The clients, by ascending id.
        clients: Vec<ClientInfo>,
        /// Whether this is the last page.
        end: bool,
    }
    /// A page of a snapshot.
    ExportPage {
        /// Number of the snapshot, for the request of the next page.
        snapshot: u64,
        /// Id of the cluster.
        cluster: [u8; 16],
        /// Number of the last operation in the snapshot.
        sequence: u64,
        /// Records, by ascending key.
        records: Vec<ExportRecord>,
        /// Where the next page begins; `None` at the end.
        next: Option<ExportPlace>,
    }
}

requests! {
    /// Asks for the cluster map, if it is newer than the client's.
    GetMapRequest(GetMap) -> Option<ClusterMap> {
        /// Epoch of the client's map; 0 for none.
        have: Epoch,
    }
    /// Asks for tickets for data servers.
    GetTicketsRequest(GetTickets) -> Vec<SealedTicket> {
        /// The servers.
        servers: Vec<ServerId>,
    }
    /// Looks up a name in a directory.
    LookupRequest(Lookup) -> Attr {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Bytes,
    }
    /// Asks for the attributes of a file.
    GetAttrRequest(GetAttr) -> Attr {
        /// The file.
        file: FileId,
    }
    /// Changes attributes. A new size takes effect in the metadata at once, and the client then
    /// applies it to the objects ([`TruncateDoneRequest`]).
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
        /// The name. An empty name makes a regular file without one (O_TMPFILE), which is removed
        /// when it is closed unless a [`LinkRequest`] has given it a name.
        name: Bytes,
        /// Kind of the file: anything but directories and symbolic links.
        kind: FileKind,
        /// Permission bits.
        mode: u16,
        /// Bits that are removed from the mode, unless the directory has a default ACL.
        umask: u16,
        /// Device number of device files.
        rdev: u32,
        /// Fail if the name exists (O_EXCL); otherwise open the existing file.
        exclusive: bool,
        /// Truncate the file if it exists (O_TRUNC). Refused with `Busy` if the session has it open.
        truncate: bool,
        /// Rights to open the file with.
        rights: Rights,
        /// Layout; `None` for the directory's default.
        layout: Option<LayoutSpec>,
    }
    /// Makes a directory.
    MkdirRequest(Mkdir) -> Attr {
        /// The parent directory.
        parent: FileId,
        /// The name.
        name: Bytes,
        /// Permission bits.
        mode: u16,
        /// Bits that are removed from the mode, unless the directory has a default ACL.
        umask: u16,
    }
    /// Removes a name.
    UnlinkRequest(Unlink) -> Removed {
        /// The directory.
        parent: FileId,
        /// The name.
        name: Bytes,
        /// Whether the session keeps the file open if this is the last name of a regular file. The
        /// session then closes it like any other.
        hold: bool,
    }
    /// Removes an empty directory.
    RmdirRequest(Rmdir) -> () {
        /// The parent directory.
        parent: FileId,
        /// The name.
        name: Bytes,
    }
    /// Renames a file or directory, replacing an existing one.
    RenameRequest(Rename) -> Removed {
        /// The old directory.
        parent: FileId,
        /// The old name.
        name: Bytes,
        /// The new directory.
        new_parent: FileId,
        /// The new name.
        new_name: Bytes,
        /// Fail if the new name exists (RENAME_NOREPLACE).
        no_replace: bool,
        /// Swap the two names (RENAME_EXCHANGE).
        exchange: bool,
        /// Leave a character device 0, 0 under the old name (RENAME_WHITEOUT).
        whiteout: bool,
        /// As in [`UnlinkRequest`], for the file that is replaced.
        hold: bool,
    }
    /// Adds a name to a file (hard link).
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
        /// Target of the link.
        target: Bytes,
    }
    /// Asks for the target of a symbolic link.
    ReadlinkRequest(Readlink) -> Bytes {
        /// The link.
        file: FileId,
    }
    /// Asks for a page of a directory.
    ReaddirRequest(Readdir) -> DirPage {
        /// The directory.
        dir: FileId,
        /// Where to continue; 0 for the beginning.
        cookie: u64,
        /// [`DirPage::last`] of the first page; 0 for the first page.
        last: u64,
        /// The most entries to return.
        max_entries: u32,
        /// Whether to return attributes.
        attributes: bool,
        /// Whether to return layouts of the files whose attributes are returned, if the caller may
        /// search the directory. A page that has as many bytes of them as fit ends early.
        layouts: bool,
    }
    /// Asks for the value of an extended attribute.
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
        /// What to do if the attribute exists or not.
        mode: XattrMode,
    }
    /// Asks for the names of all extended attributes.
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
    /// Asks for the space of the file system, or for what the quota of an enclosing directory
    /// leaves.
    StatfsRequest(Statfs) -> FsUsage {
        /// A file or directory in the file system.
        file: FileId,
    }
    /// Opens a file. Its data stays until it is closed, even if its last name is removed.
    OpenRequest(Open) -> OpenFile {
        /// The file.
        file: FileId,
        /// Rights to open the file with.
        rights: Rights,
    }
    /// Closes files in this session, once for each successful open or create.
    CloseRequest(Close) -> () {
        /// The files.
        files: Vec<FileId>,
        /// Files of which a write has failed and may still reach a data server. They are fenced.
        unconfirmed: Vec<FileId>,
        /// Written columns of some of the files that were not reported before, as in
        /// [`CommitSizeRequest`]. At most [`weir_types::limits::MAX_WRITTEN_SEGMENTS`] of all files.
        /// Those of a file that the session does not have open for writing are ignored.
        written: Vec<(FileId, Vec<WrittenColumns>)>,
    }
    /// Reports open files (once for each open) and leases after a restart of the server. The reply
    /// has the leases that are lost.
    ReassertRequest(Reassert) -> Vec<LeaseRange> {
        /// Whether this begins a new report. An earlier report that was interrupted does not count.
        first: bool,
        /// The open files.
        files: Vec<FileId>,
        /// Files that are not open, and are to stay although their last name goes: once for each
        /// hold.
        held: Vec<FileId>,
        /// Leases, each with the generation that it was held under.
        leases: Vec<HeldLease>,
        /// Whether this is the last request of the report, so that the server need not wait for
        /// this session any more.
        last: bool,
    }
    /// Asks for more of a layout.
    GetLayoutRequest(GetLayout) -> LayoutPage {
        /// The file.
        file: FileId,
        /// Begin with the segment of this byte.
        offset: u64,
        /// Rights of the capability in the reply.
        rights: Rights,
    }
    /// Grants segments ahead of a writer until the layout covers `offset`.
    ExtendRequest(Extend) -> LayoutPage {
        /// The file.
        file: FileId,
        /// The byte to cover.
        offset: u64,
        /// First byte to be written. The placement of chunks before it does not matter.
        from: u64,
        /// For files whose chunks go to any target: for each written target, the time until it
        /// could take the next chunk, microseconds. Targets that are not named come first.
        waits: Vec<(TargetId, u64)>,
    }
    /// Reports size and time after writes. The file never shrinks; a report of an old generation is
    /// ignored.
    CommitSizeRequest(CommitSize) -> Attr {
        /// The file.
        file: FileId,
        /// End of the written bytes.
        size: u64,
        /// Generation under which they were written.
        generation: Generation,
        /// Time of the last write.
        mtime: Option<SetTime>,
        /// Written columns that were not reported before. They distinguish a lost object from one
        /// that was never made. At most [`weir_types::limits::MAX_WRITTEN_SEGMENTS`].
        written: Vec<WrittenColumns>,
        /// First byte, and the first byte after it, of ranges whose bytes data servers have all
        /// confirmed under this generation, ascending. At most
        /// [`weir_types::limits::MAX_WRITTEN_RANGES`].
        ranges: Vec<(u64, u64)>,
        /// Announces that the file may get holes, and preallocated space beyond its end. The reply
        /// comes when that is durable; only then may the client make them.
        sparse: bool,
        /// Whether the reply comes when this, and everything before it, is durable.
        durable: bool,
    }
    /// Reports that the truncation with this generation has reached the objects.
    TruncateDoneRequest(TruncateDone) -> () {
        /// The file.
        file: FileId,
        /// Generation of the truncation.
        generation: Generation,
    }
    /// Sets the default layout of a directory, changes the layout of an empty file, or sets the
    /// copies of a file with data. Settings that are not named stay.
    SetLayoutRequest(SetLayout) -> () {
        /// The directory or file.
        file: FileId,
        /// The layout; `None` for the default of the parent directory.
        layout: Option<LayoutSpec>,
    }
    /// Asks for the default layout of new files in a directory.
    GetDefaultLayoutRequest(GetDefaultLayout) -> LayoutSpec {
        /// The directory.
        dir: FileId,
    }
    /// Reports times of reads. A time that is older than the recorded one, or that this client may
    /// not report, is ignored.
    AccessedRequest(Accessed) -> () {
        /// The files, at most [`weir_types::limits::MAX_ACCESSED`].
        files: Vec<FileAccess>,
    }
    /// Makes everything durable that was acknowledged before. The reply comes when that is done.
    SyncMetaRequest(SyncMeta) -> () {}
    /// Asks for a capability for all objects of all targets (administrators).
    AdminCapabilityRequest(AdminCapability) -> SignedCapability {}
    /// Asks how many sessions have each of these files open (administrators). After a restart a
    /// file counts as open until every client has reported its open files.
    CountOpensRequest(CountOpens) -> Vec<u32> {
        /// The files.
        files: Vec<FileId>,
    }
    /// Asks for a page of a snapshot of all metadata (administrators). The server drops a snapshot
    /// that is not asked for, or after an hour.
    ExportMetaRequest(ExportMeta) -> ExportPage {
        /// Number of the snapshot; 0 makes one.
        snapshot: u64,
        /// Where the page begins.
        place: ExportPlace,
    }
    /// Compares some of the metadata server's on-disk data with its checksums, whether or not the
    /// data is cached in memory (administrators).
    VerifyMetaRequest(VerifyMeta) -> VerifiedMeta {
        /// Where to begin; 0 for the beginning.
        place: u64,
    }
    /// Sets what a client may do, from the reply on. Its sessions end, so that none goes on under
    /// the old rights (administrators).
    SetClientRequest(SetClient) -> () {
        /// The new record.
        info: ClientInfo,
    }
    /// Asks for a page of the recorded clients. A client without a record is an ordinary one
    /// without restrictions (administrators).
    ListClientsRequest(ListClients) -> ClientPage {
        /// Clients with greater ids.
        after: ClientId,
    }
    /// Starts or stops balancing: copies are moved until all targets use about the same share of
    /// their space (administrators). Balancing goes on after the reply.
    RebalanceRequest(Rebalance) -> () {
        /// The largest difference of a target from the mean, in percent of its space: 1 to 100.
        within_percent: u8,
        /// Stop balancing, if it is under way.
        stop: bool,
    }
}

impl ExtendRequest {
    /// A request for a file whose chunks are placed independently of the writer's speeds, or when
    /// nothing is known of those.
    pub fn covering(file: FileId, offset: u64) -> Self {
        Self { file, offset, from: offset, waits: Vec::new() }
    }
}
