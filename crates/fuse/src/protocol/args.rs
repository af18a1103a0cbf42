//! Arguments and results of operations, without ABI or buffers.

use std::time::Duration;
use weir_types::{Attr, FileKind, Timestamp};

/// The file system's own number of a file: 1 is the root. Numbers are never reused, so the
/// transport keeps no table of them.
pub type NodeId = u64;

/// The root directory.
pub const ROOT: NodeId = crate::protocol::abi::ROOT_ID;

/// A found or new name, and how long the kernel may cache it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Node id for the kernel; usually `attr.file`.
    pub node: NodeId,
    /// Its attributes.
    pub attr: Attr,
    /// How long the name is valid without another request.
    pub entry_ttl: Duration,
    /// How long the attributes are valid without another request.
    pub attr_ttl: Duration,
}

impl Entry {
    /// An entry whose name and attributes are valid for the same time (except attributes of files
    /// that may have holes), with the file's id as its node id.
    pub fn new(attr: Attr, ttl: Duration) -> Self {
        // What a file takes that may have holes, the kernel asks for when somebody wants to know.
        let attr_ttl = if attr.sparse { Duration::ZERO } else { ttl };
        Self { node: attr.file.0, attr, entry_ttl: ttl, attr_ttl }
    }
}

/// Attributes, and how long the kernel may cache them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The attributes; `attr.file` is the inode number.
    pub attr: Attr,
    /// Allocated bytes of disk; `None` if they equal its size.
    pub allocated: Option<u64>,
    /// How long they are valid without another request.
    pub ttl: Duration,
}

/// The reply to STATX: attributes, and the time of birth if it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statx {
    /// The attributes.
    pub attributes: Attributes,
    /// Time of birth.
    pub birth: Option<Timestamp>,
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The file system's handle, passed to each operation on it.
    pub fh: u64,
    /// Bypass the kernel's page cache: fastest for large streams.
    pub direct_io: bool,
    /// Keep pages of the file from earlier opens.
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
    /// The present time of the server.
    Now,
    /// This time.
    At(Timestamp),
}

/// Changes of SETATTR; absent fields stay.
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
    /// The open file of an `ftruncate`.
    pub fh: Option<u64>,
    /// Lock owner that truncates.
    pub lock_owner: Option<u64>,
    /// Clear setuid, and setgid if the group may execute.
    pub kill_suidgid: bool,
}

/// How a file is read or written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoArgs {
    /// The `O_*` flags of the open file at the time of the request. `fcntl` may have changed them
    /// since the call began, so they say nothing of the page cache.
    pub open_flags: u32,
    /// Lock owner that reads or writes; only for requests that bypass the page cache.
    pub lock_owner: Option<u64>,
    /// Writes: from the kernel's page cache, with an unknown writer.
    pub from_page_cache: bool,
    /// Writes: clear setuid, and setgid if the group may execute.
    pub kill_suidgid: bool,
}

impl IoArgs {
    /// Whether it bypasses the kernel's page cache. Otherwise the kernel may hold pages of the
    /// range locked, or in writeback, until the reply. (Also for a file that is open for direct
    /// I/O: mapped pages are cached.)
    pub fn is_past_pages(&self) -> bool {
        self.lock_owner.is_some() && !self.from_page_cache
    }

    /// Whether the file system has to find the offset: the end of the file.
    pub(crate) fn appends(&self) -> bool {
        self.open_flags as i32 & libc::O_APPEND != 0 && !self.from_page_cache
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenArgs {
    /// The `O_*` flags. `O_TRUNC` is the file system's task when a file is made.
    pub flags: u32,
}

/// How the last descriptor of a file is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReleaseArgs {
    /// The `O_*` flags of the open file.
    pub flags: u32,
    /// Owner whose locks end with it.
    pub lock_owner: u64,
    /// Drop the owner's flock locks.
    pub flock_unlock: bool,
}

/// The mode of a new file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewMode {
    /// Type and permission bits. The umask is applied already unless ACLs are on.
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
    /// The process that asks, or the holder.
    pub pid: u32,
}

/// The owner and the lock of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockArgs {
    /// The open file.
    pub fh: u64,
    /// Owner of the lock.
    pub owner: u64,
    /// The lock.
    pub lock: Lock,
    /// `flock(2)`, not `fcntl(2)`.
    pub flock: bool,
}

/// An `ioctl(2)` call with data of the size in its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlArgs<'a> {
    /// The open file.
    pub fh: u64,
    /// The ioctl's number.
    pub command: u32,
    /// The argument as the caller passed it.
    pub arg: u64,
    /// Data from the caller.
    pub input: &'a [u8],
    /// The most bytes for the caller.
    pub output_bytes: u32,
    /// Whether the file is a directory.
    pub directory: bool,
}

/// The answer to an ioctl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoctlReply {
    /// Return value of `ioctl(2)`.
    pub result: i32,
    /// Data for the caller; at most `output_bytes`.
    pub output: Vec<u8>,
}

/// A copy from one open file to another within the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyArgs {
    /// The source's open file.
    pub fh_in: u64,
    /// First byte in the source.
    pub offset_in: u64,
    /// The destination.
    pub node_out: NodeId,
    /// The destination's open file.
    pub fh_out: u64,
    /// First byte in the destination.
    pub offset_out: u64,
    /// Bytes.
    pub length: u64,
    /// Flags of `copy_file_range(2)`; none is defined.
    pub flags: u64,
}

/// One entry of a directory listing.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Inode number of the file.
    pub node: NodeId,
    /// Kind of the file.
    pub kind: FileKind,
    /// The name.
    pub name: &'a [u8],
    /// Offset of the next readdir after this entry; never 0.
    pub next_offset: u64,
    /// The file, if [`crate::DirSink::wants_entries`]; `.` and `..` need none.
    pub entry: Option<&'a Entry>,
}
