//! Reserved space of a disk, for a server's notes about data, for removals, and for a metadata
//! server on the same disk. Writes of data get `NoSpace` while this space is still free.

use crate::backing::Backing;
use crate::geometry::{Run, data_position};
use crate::object::Object;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_host::fs::Space;
use weir_types::room::{FILES_KEPT_FROM_DATA, KEPT_FROM_DATA};
use weir_types::{ErrorKind, FsUsage, ObjectId, Result};

/// The most objects that are made between two checks of the free inodes.
const MAX_STEP_FILES: u64 = 1024;

/// Other processes write to the disk too. So between two checks of the free space at most this
/// fraction, 1 / 16, of it is written.
const PART_OF_FREE: u64 = 16;
/// The most bytes that are written between two checks of the free space.
const MAX_STEP_BYTES: u64 = 64 << 20;

/// Bytes that may be written, or objects that may be made, before the free space is checked again.
#[derive(Debug, Default)]
pub(crate) struct Room(AtomicU64);

impl Room {
    /// Takes this many; `false`: not enough are left.
    fn take(&self, wanted: u64) -> bool {
        let rest = |left: u64| left.checked_sub(wanted);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_ok()
    }
}

/// Reserved bytes of a disk.
pub(crate) fn kept(space: &Space) -> u64 {
    KEPT_FROM_DATA.of(space.total_bytes)
}

/// Reserved inodes of a disk.
fn kept_files(space: &Space) -> u64 {
    FILES_KEPT_FROM_DATA.min(space.total_files / 8)
}

/// Space that is left for data.
pub(crate) fn usage(space: &Space) -> FsUsage {
    FsUsage {
        total_bytes: space.total_bytes,
        free_bytes: space.free_bytes.saturating_sub(kept(space)),
        total_files: space.total_files,
        free_files: space.free_files.saturating_sub(kept_files(space)),
    }
}

impl Backing {
    /// Refuses to make an object if only reserved inodes are free. An existing object needs none.
    pub(crate) fn check_room_for(&self, id: ObjectId) -> Result<()> {
        if self.files.take(1) {
            return Ok(());
        }
        let failed = |e| self.site.os_error("ask for free files", e);
        let space = self.root.space().map_err(failed)?;
        let free = usage(&space).free_files;
        // Some file systems do not count inodes.
        if space.total_files == 0 || free > 0 {
            let step = if space.total_files == 0 { MAX_STEP_FILES } else { free / PART_OF_FREE };
            self.files.0.store(step.min(MAX_STEP_FILES), Ordering::Relaxed);
            return Ok(());
        }
        if self.directories.open(id, false)?.is_some() {
            return Ok(());
        }
        let what = format!(
            "no room for object {id}: {} more files can be made, and the last {} are kept: remove \
             something, or add a target",
            space.free_files,
            kept_files(&space)
        );
        Err(self.site.error(ErrorKind::NoSpace, what))
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
