//! What operations are asked with and answered with: no ABI, no buffers.

use std::time::Duration;
use weir_types::{Attr, FileKind, Timestamp};

/// A file system's own number of a file: 1 is the root; numbers are never reused, so
/// the transport keeps no table of them.
pub type NodeId = u64;

/// The root directory.
pub const ROOT: NodeId = super::abi::ROOT_ID;

/// A name that was found or made, and how long the kernel may believe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file, as the kernel is to name it; mostly `attr.file`.
    pub node: NodeId,
    /// Its attributes.
    pub attr: Attr,
    /// How long the name leads to this file without asking again.
    pub entry_ttl: Duration,
    /// How long the attributes hold without asking again.
    pub attr_ttl: Duration,
}

impl Entry {
    /// An entry whose name and attributes (but of files that may have holes) hold for the same
    /// time, with the file's id for its node id.
    pub fn new(attr: Attr, ttl: Duration) -> Self {
        // What a file takes that may have holes, the kernel asks for when somebody wants to know.
        let attr_ttl = if attr.sparse { Duration::ZERO } else { ttl };
        Self { node: attr.file.0, attr, entry_ttl: ttl, attr_ttl }
    }
}

/// Attributes, and how long the kernel may believe them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The attributes; `attr.file` is the inode number.
    pub attr: Attr,
    /// Bytes of disk that it takes; `None`: as many as its size says.
    pub allocated: Option<u64>,
    /// How long they hold without asking again.
    pub ttl: Duration,
}

/// The answer to STATX: attributes and the time of birth where it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statx {
    /// The attributes.
    pub attributes: Attributes,
    /// When the file was made.
    pub birth: Option<Timestamp>,
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The file system's own handle, handed back with each operation on it.
    pub fh: u64,
    /// Bypass the kernel's page cache: fastest for big streams.
    pub direct_io: bool,
    /// Keep what the page cache holds of the file from earlier opens.
    pub keep_cache: bool,
    /// No seeking.
    pub nonseekable: bool,
    /// Directories: the kernel may cache the listing.
    pub cache_dir: bool,
    /// `close` sends no FLUSH.
    pub noflush: bool,
    /// With `direct_io`: writers of the file need not wait for each other.
    pub parallel_direct_writes: bool,
}

impl Opened {
    /// A handle with the kernel's defaults.
    pub fn new(fh: u64) -> Self {
        Self { fh, ..Self::default() }
    }
}

/// A new time for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the server.
    Now,
    /// This time.
    At(Timestamp),
}

/// What SETATTR changes; absent fields stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits, without the type.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size, bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the contents.
    pub mtime: Option<SetTime>,
    /// Last change of anything (only with the writeback cache).
    pub ctime: Option<Timestamp>,
    /// The open file that `ftruncate` names.
    pub fh: Option<u64>,
    /// Who truncates, as locks count owners.
    pub lock_owner: Option<u64>,
    /// Clear setuid, and setgid if the group may execute.
    pub kill_suidgid: bool,
}

/// How a file is read or written, besides where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoArgs {
    /// The `O_*` flags of the open file as the request was made: `fcntl` may have changed them since
    /// the call began, so that they say nothing of the page cache.
    pub open_flags: u32,
    /// Who reads or writes, as locks count owners: told of what goes past the page cache alone.
    pub lock_owner: Option<u64>,
    /// Writes: from the kernel's page cache, with no known writer.
    pub from_page_cache: bool,
    /// Writes: clear setuid, and setgid if the group may execute.
    pub kill_suidgid: bool,
}

impl IoArgs {
    /// Whether it goes past the kernel's page cache. Else the kernel may hold pages of the range
    /// locked, or in writeback, until it is answered. (Of a file that is open for direct I/O
    /// too: what is mapped is cached.)
    pub(crate) fn is_past_pages(&self) -> bool {
        self.lock_owner.is_some() && !self.from_page_cache
    }

    /// Whether it is for the file system to find where the bytes go: behind the last.
    pub(super) fn appends(&self) -> bool {
        self.open_flags as i32 & libc::O_APPEND != 0 && !self.from_page_cache
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenArgs {
    /// The `O_*` flags; `O_TRUNC` is the file system's task where a file is made.
    pub flags: u32,
}

/// How a file is closed for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReleaseArgs {
    /// The `O_*` flags of the open file.
    pub flags: u32,
    /// Whose locks end with it.
    pub lock_owner: u64,
    /// Drop the owner's flock locks.
    pub flock_unlock: bool,
}

/// The mode of a new file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewMode {
    /// Type and permission bits; the umask is applied unless ACLs are on.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// No lock: releases.
    Unlock,
}

/// A byte-range lock (or, with `flock`, one of the whole file).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX` stands for the end of the file.
    pub end: u64,
    /// Shared, exclusive or none.
    pub kind: LockKind,
    /// The process that asks, or the one that holds it.
    pub pid: u32,
}

/// Who locks what, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockArgs {
    /// The open file.
    pub fh: u64,
    /// Who owns the lock.
    pub owner: u64,
    /// The lock.
    pub lock: Lock,
    /// `flock(2)`, not `fcntl(2)`.
    pub flock: bool,
}

/// One `ioctl(2)` call with data of a size that its number tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlArgs<'a> {
    /// The open file.
    pub fh: u64,
    /// The ioctl's number.
    pub command: u32,
    /// The argument as the caller passed it.
    pub arg: u64,
    /// What the caller hands in.
    pub input: &'a [u8],
    /// The most bytes that may be handed out.
    pub output_bytes: u32,
    /// The file is a directory.
    pub directory: bool,
}

/// The answer to an ioctl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoctlReply {
    /// What `ioctl(2)` returns.
    pub result: i32,
    /// What the caller gets; at most `output_bytes`.
    pub output: Vec<u8>,
}

/// A copy from one open file to another within the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyArgs {
    /// The source's open file.
    pub fh_in: u64,
    /// Where to begin in the source.
    pub offset_in: u64,
    /// The destination.
    pub node_out: NodeId,
    /// The destination's open file.
    pub fh_out: u64,
    /// Where to begin in the destination.
    pub offset_out: u64,
    /// Bytes.
    pub length: u64,
    /// As in `copy_file_range(2)`: none is defined.
    pub flags: u64,
}

/// One entry of a directory listing.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// The file it names, by its inode number.
    pub node: NodeId,
    /// What it names.
    pub kind: FileKind,
    /// The name.
    pub name: &'a [u8],
    /// Where a later readdir goes on after this entry; never 0.
    pub next_offset: u64,
    /// The file, where [`super::DirSink::wants_entries`]; `.` and `..` need none.
    pub entry: Option<&'a Entry>,
}
