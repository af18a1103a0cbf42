//! Attributes of files.

use crate::codec::{Decode, DecodeError, Encode, Reader};
use crate::id::{FileId, Generation};
use crate::limits::MAX_GROUPS;

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}
crate::codec_tag!(FileKind {
    File = 0, Directory = 1, Symlink = 2, Fifo = 3, Socket = 4, CharDevice = 5, BlockDevice = 6,
});

impl FileKind {
    /// The `S_IFMT` bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileKind::Fifo => 0o010_000,
            FileKind::CharDevice => 0o020_000,
            FileKind::Directory => 0o040_000,
            FileKind::BlockDevice => 0o060_000,
            FileKind::File => 0o100_000,
            FileKind::Symlink => 0o120_000,
            FileKind::Socket => 0o140_000,
        }
    }

    /// The kind with these `S_IFMT` bits.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o010_000 => FileKind::Fifo,
            0o020_000 => FileKind::CharDevice,
            0o040_000 => FileKind::Directory,
            0o060_000 => FileKind::BlockDevice,
            0o100_000 => FileKind::File,
            0o120_000 => FileKind::Symlink,
            0o140_000 => FileKind::Socket,
            _ => return None,
        })
    }

    /// The `d_type` of a directory entry.
    pub fn dirent_type(self) -> u32 {
        self.mode_bits() >> 12
    }
}

/// A point in time: nanoseconds since 1970, good until the year 2262.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// From seconds and nanoseconds; seconds out of range are clamped.
    pub fn new(seconds: i64, nanos: u32) -> Self {
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(nanos)))
    }
    /// Whole seconds, rounded down.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }
    /// Nanoseconds beyond the whole seconds.
    pub fn nanos(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }
}

/// An access time older than this is updated by a read even if the file has not changed.
const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;

/// Whether a read at that time updates the access time under the rules of `relatime`: if the access
/// time is not later than the last change of contents or attributes, or is a day old.
pub fn access_is_due(
    accessed: Timestamp,
    changed: impl IntoIterator<Item = Timestamp>,
    at: Timestamp,
) -> bool {
    let old = at.0.saturating_sub(accessed.0) >= DAY_NS;
    old || changed.into_iter().any(|change| accessed <= change)
}

impl Encode for Timestamp {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}
impl Decode for Timestamp {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(i64::decode(r)?))
    }
}

/// The attributes of a file (`stat`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The inode number.
    pub file: FileId,
    /// Type of the file.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u16,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of device files.
    pub rdev: u32,
    /// Committed size, bytes.
    pub size: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Grows at each change of the file or directory.
    pub change: u64,
    /// Grows at each truncation; fences older writes.
    pub generation: Generation,
    /// Preferred size of calls, bytes: one whole stripe if the layout is known.
    pub preferred_io_bytes: u32,
    /// Creation time. `None` for files that are older than its recording.
    pub birth: Option<Timestamp>,
    /// Which extended attributes the file has.
    pub extras: Extras,
    /// Whether the file may have unwritten ranges or preallocated space, so that its disk space may
    /// differ from its size. Only data servers know how much it takes.
    pub sparse: bool,
}
crate::codec_struct!(Attr {
    file,
    kind,
    mode,
    nlink,
    uid,
    gid,
    rdev,
    size,
    atime,
    mtime,
    ctime,
    change,
    generation,
    preferred_io_bytes,
    birth,
    extras,
    sparse
});

/// Which extended attributes a file has, so that clients need not ask for missing ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// The file has an extended attribute.
    pub any: bool,
    /// The file has an access control list beyond its permission bits ([`ACL_ACCESS`]).
    pub acl: bool,
    /// The directory has a default access control list for new files ([`ACL_DEFAULT`]).
    pub default_acl: bool,
}
crate::codec_struct!(Extras { any, acl, default_acl });

/// The extended attribute that holds an access control list.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The extended attribute that holds a directory's default access control list.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Space and counts of the whole file system or of one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsUsage {
    /// Total space, bytes.
    pub total_bytes: u64,
    /// Free space for ordinary users, bytes.
    pub free_bytes: u64,
    /// Maximum number of files.
    pub total_files: u64,
    /// Number of further files that can be created.
    pub free_files: u64,
}
crate::codec_struct!(FsUsage { total_bytes, free_bytes, total_files, free_files });

/// The user and groups on whose behalf an operation runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group that new files get.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Caller {
    /// The superuser.
    pub const ROOT: Caller = Caller { uid: 0, gid: 0, groups: Vec::new() };

    /// Whether the caller belongs to the group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
impl Encode for Caller {
    fn encode(&self, out: &mut Vec<u8>) {
        self.uid.encode(out);
        self.gid.encode(out);
        self.groups.encode(out);
    }
}
impl Decode for Caller {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (uid, gid, groups) = (u32::decode(r)?, u32::decode(r)?, Vec::<u32>::decode(r)?);
        if groups.len() > MAX_GROUPS {
            return Err(DecodeError::TooLong);
        }
        Ok(Self { uid, gid, groups })
    }
}
