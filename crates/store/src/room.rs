//! Reserved space of a disk, for a server's notes about data, for removals, and for a metadata
//! server on the same disk. Writes of data get `NoSpace` while this space is still free.

use crate::geometry::{Run, data_position};
use crate::object::Object;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_host::fs::Space;
use weir_types::room::KEPT_FROM_DATA;
use weir_types::{ErrorKind, FsUsage, Result};

/// Other processes write to the disk too. So between two checks of the free space at most this
/// fraction, 1 / 16, of it is written.
const PART_OF_FREE: u64 = 16;
/// The most bytes that are written between two checks of the free space.
const MAX_STEP_BYTES: u64 = 64 << 20;

/// Bytes that may be written before the free space is checked again.
#[derive(Debug, Default)]
pub(crate) struct Room(AtomicU64);

impl Room {
    /// Takes bytes out of the allowance; `false` if it has fewer.
    fn take(&self, bytes: u64) -> bool {
        let rest = |left: u64| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_ok()
    }
}

/// Reserved bytes of a disk.
pub(crate) fn kept(space: &Space) -> u64 {
    KEPT_FROM_DATA.of(space.total_bytes)
}

/// Space and files of a disk without the reserved space.
pub(crate) fn usage(space: &Space) -> FsUsage {
    FsUsage {
        total_bytes: space.total_bytes,
        free_bytes: space.free_bytes.saturating_sub(kept(space)),
        total_files: space.total_files,
        free_files: space.free_files,
    }
}

impl Object {
    /// Refuses data that would need reserved space. Overwriting written or preallocated bytes needs
    /// no new space.
    pub(crate) fn check_room(&self, pieces: &[(u64, u64)], bytes: u64) -> Result<()> {
        let backing = self.backing();
        if backing.room.take(bytes) {
            return Ok(());
        }
        let space = backing.root.space().map_err(|e| self.os_error("ask for free space", e))?;
        let free = usage(&space).free_bytes;
        if free >= bytes {
            let step = (free / PART_OF_FREE).min(MAX_STEP_BYTES);
            backing.room.0.store(step.saturating_sub(bytes), Ordering::Relaxed);
            return Ok(());
        }
        for run in pieces.iter().flat_map(|&(at, len)| Run::split(at, at + len)) {
            let has_room = self.file.has_room(data_position(run.start), run.len() as u64);
            if !has_room.map_err(|e| self.os_error("ask for its room", e))? {
                let what = format!(
                    "no room for {bytes} bytes: {} bytes are free, and the last {} are kept: \
                     remove something, or add a target",
                    space.free_bytes,
                    kept(&space)
                );
                return Err(self.error(ErrorKind::NoSpace, what));
            }
        }
        Ok(())
    }
}
