//! What a copy of a file is like.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// A copy of a file, as it is in a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Bytes.
    pub len: u64,
    /// When it was written last: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// When anything of it was changed last.
    pub changed: (i64, u32),
    /// Which file of which device.
    pub id: (u64, u64),
    /// Permissions.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
}

impl Copy {
    /// Of a file.
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
