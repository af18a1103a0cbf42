//! Room that is reserved for files (`fallocate`).
//!
//! Invariant: the last of a disk is reserved for nobody. Reserving takes no time, and what a removed
//! file had comes back within a second or two: who reserves and removes in a loop must not take what
//! others need to go on, the metadata server's log among them.

use std::ops::Range;
use weir_store::{Object, Target};
use weir_types::{Error, ErrorKind, FsUsage, Generation, Result};

/// Such a part of a disk is left,
const KEPT_PART: u64 = 64;
/// and no more than so much.
const MAX_KEPT_BYTES: u64 = 1 << 30;
/// What is reserved between two looks at the disk, which several servers may have.
const STEP_BYTES: u64 = 8 << 20;

/// Reserves room for a range of an object, a little at a time. Returns the object's length.
///
/// # Errors
/// `NoSpace`, and those of the store: what was reserved stays so.
pub(crate) fn allocate(
    store: &Target,
    object: &Object,
    range: Range<u64>,
    generation: Generation,
) -> Result<u64> {
    let mut at = range.start;
    loop {
        let len = range.end.saturating_sub(at).min(STEP_BYTES);
        leaves_some(&store.usage()?, len)?;
        let object_len = object.allocate(at, len, true, generation)?;
        at += len;
        if at >= range.end {
            return Ok(object_len);
        }
    }
}

fn leaves_some(usage: &FsUsage, len: u64) -> Result<()> {
    let kept = (usage.total_bytes / KEPT_PART).min(MAX_KEPT_BYTES);
    if usage.free_bytes.saturating_sub(kept) >= len {
        return Ok(());
    }
    let free = usage.free_bytes;
    let what = format!(
        "{free} bytes are free, and the last {kept} are reserved for nobody: remove something, or \
         add a target"
    );
    Err(Error::new(ErrorKind::NoSpace, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_disk_is_reserved_for_nobody() {
        let usage = |total_bytes, free_bytes| FsUsage {
            total_bytes,
            free_bytes,
            total_files: 9,
            free_files: 9,
        };
        assert!(leaves_some(&usage(64 << 20, 9 << 20), 8 << 20).is_ok());
        let refused = leaves_some(&usage(64 << 20, 9 << 20), (8 << 20) + 1).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::NoSpace);
        assert!(leaves_some(&usage(1 << 50, 3 << 30), 2 << 30).is_ok());
        assert!(leaves_some(&usage(1 << 50, 0), 1).is_err());
    }
}
