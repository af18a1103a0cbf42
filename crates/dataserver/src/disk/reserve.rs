//! Preallocation of disk space (`fallocate`).
//!
//! Invariant: the reserved space of a disk is preallocated only where data already is.
//! Preallocation takes no time, and the space of a removed file is free only a second or two later.
//! So a program that preallocates and removes in a loop must not take space that others need, the
//! log of the metadata server among them.

use std::ops::Range;
use weir_store::{Object, Target};
use weir_types::{Error, ErrorKind, FsUsage, Generation, Result};

/// Bytes that are preallocated between two checks of the free space. Several servers may use the
/// disk.
const STEP_BYTES: u64 = 8 << 20;

/// Preallocates space for a range of an object, a little at a time. Returns the object's length.
///
/// # Errors
/// `NoSpace`, and those of the store. Space that was preallocated before stays so.
pub(crate) fn allocate(
    store: &Target,
    object: &Object,
    range: Range<u64>,
    generation: Generation,
) -> Result<u64> {
    let mut at = range.start;
    loop {
        let len = range.end.saturating_sub(at).min(STEP_BYTES);
        may_reserve(&store.usage()?, object, at, len)?;
        let object_len = object.allocate(at, len, true, generation)?;
        at += len;
        if at >= range.end {
            return Ok(object_len);
        }
    }
}

fn may_reserve(usage: &FsUsage, object: &Object, at: u64, len: u64) -> Result<()> {
    match leaves_some(usage, len) {
        // All of it was written, and has its room.
        Err(_) if object.next_hole(at)? >= at.saturating_add(len) => Ok(()),
        refused => refused,
    }
}

fn leaves_some(usage: &FsUsage, len: u64) -> Result<()> {
    // That is without what is kept.
    let free = usage.free_bytes;
    if free >= len {
        return Ok(());
    }
    let what = format!(
        "{free} bytes are free, but for those that are reserved for nobody: remove something, or \
         add a target"
    );
    Err(Error::new(ErrorKind::NoSpace, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_store::TargetIdentity;
    use weir_types::checksum::crc32c;
    use weir_types::{ColumnIndex, CopyIndex, FileId, ObjectId, SegmentIndex, ServerId, TargetId};

    const BLOCK: usize = 4096;

    #[test]
    fn what_was_written_has_its_room_on_a_full_disk_too() {
        let dir = tempfile::tempdir().unwrap();
        let identity =
            TargetIdentity { cluster: [7; 16], target: TargetId(3), server: ServerId(1) };
        Target::create(dir.path(), identity).unwrap();
        let store = Target::open(dir.path()).unwrap();
        let id = ObjectId {
            file: FileId(1),
            segment: SegmentIndex(0),
            column: ColumnIndex(0),
            copy: CopyIndex(0),
        };
        let object = store.object_or_create(id).unwrap();
        let (block, written) = ([1; BLOCK], 2 * BLOCK as u64);
        let check = crc32c(&block);
        object.write_pieces(&[(0, written)], &[1; 2 * BLOCK], &[check; 2], Generation(0)).unwrap();
        let full = FsUsage { total_bytes: 64 << 20, free_bytes: 0, total_files: 9, free_files: 9 };
        let may = |at, len| may_reserve(&full, &object, at, len).map_err(|error| error.kind);
        assert_eq!((may(0, written), may(100, 5000)), (Ok(()), Ok(())));
        assert_eq!(may(0, written + 1), Err(ErrorKind::NoSpace));
        object.punch(0, BLOCK as u64, Generation(0)).unwrap();
        assert_eq!(may(0, written), Err(ErrorKind::NoSpace), "there is a hole");
        assert_eq!(may(BLOCK as u64, BLOCK as u64), Ok(()));
    }

    #[test]
    fn the_last_of_a_disk_is_reserved_for_nobody() {
        let usage = |total_bytes: u64, free_bytes| FsUsage {
            total_bytes,
            free_bytes,
            total_files: 9,
            free_files: 9,
        };
        assert!(leaves_some(&usage(64 << 20, 8 << 20), 8 << 20).is_ok());
        let refused = leaves_some(&usage(64 << 20, 8 << 20), (8 << 20) + 1).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::NoSpace);
        assert!(leaves_some(&usage(1 << 50, 0), 1).is_err());
    }
}
