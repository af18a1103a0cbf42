//! The attributes of one copy of a file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The attributes of one copy of a file, as found in a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Length, bytes.
    pub len: u64,
    /// Modification time (mtime): seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Change time (ctime): seconds since 1970, and nanoseconds.
    pub changed: (i64, u32),
    /// Device and inode number.
    pub id: (u64, u64),
    /// Permissions.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
}

impl Copy {
    /// Takes the attributes from the metadata of a file.
    pub fn of(meta: &Metadata) -> Self {
        Self {
            len: meta.len(),
            modified: (meta.mtime(), u32::try_from(meta.mtime_nsec()).unwrap_or(0)),
            changed: (meta.ctime(), u32::try_from(meta.ctime_nsec()).unwrap_or(0)),
            id: (meta.dev(), meta.ino()),
            mode: meta.mode() & 0o7777,
            owner: (meta.uid(), meta.gid()),
        }
    }
}
