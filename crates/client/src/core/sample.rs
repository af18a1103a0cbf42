//! Sample data for tests.

use weir_types::{Attr, Extras, FileId, FileKind, Generation, Timestamp};

/// Attributes of a file with this size, last changed by its change of this number and at a matching
/// time.
pub(crate) fn attr(file: FileId, change: u64, size: u64) -> Attr {
    let time = Timestamp(change as i64 * 10);
    Attr {
        file,
        kind: FileKind::File,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size,
        atime: time,
        mtime: time,
        ctime: time,
        change,
        generation: Generation(1),
        preferred_io_bytes: 4096,
        birth: None,
        extras: Extras::default(),
        sparse: false,
    }
}
