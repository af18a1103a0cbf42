//! The reserve: disk space that is set aside in the file `reserve`, whose contents do not matter.
//! When a write finds the disk full, a piece of the reserve is freed and the write is tried again.
//! The reserve is filled again when there is space.
//!
//! So on a disk that other programs have filled, an operation that has begun can finish, deletions
//! succeed, and the engine opens.

use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_host::fs::{Directory, File, OpenHow, Space};
use weir_host::sync::Mutex;
use weir_types::room::{FILES_KEPT_FOR_REMOVALS, KEPT_FOR_REMOVALS, METADATA_RESERVE};

const NAME: &str = "reserve";
/// Number of pieces in which the reserve is freed.
const PIECES: u64 = 16;
/// Number of remaining pieces below which segments of the log are kept short.
const PIECES_FOR_REDB: u64 = 6;
/// A short segment takes at most this fraction (one part in so many) of the remaining reserve. redb
/// needs the rest to take the segment in: it writes whole pages for single rows.
const PART_FOR_LOG: u64 = 32;
/// Upper limit of a short segment, bytes. Starting, and deletions that free space, need little.
const SHORT_SEGMENT_BYTES: u64 = 64 << 10;
/// Space that redb needs for any commit, however small.
const LEAST_FOR_REDB_BYTES: u64 = 512 << 10;
/// Smallest piece of the reserve.
const MIN_PIECE_BYTES: u64 = 64 << 10;
#[derive(Default)]
struct State {
    /// The file, once it has been opened.
    file: Option<Arc<File>>,
    /// The file was filled, and is not durable yet.
    unsynced: bool,
    /// Size of the full reserve, bytes.
    full_bytes: u64,
    /// The file system cannot reserve space.
    unsupported: bool,
}

/// The reserve of one directory.
pub(crate) struct Reserve {
    directory: Directory,
    /// Bytes in the reserve. Changed under the lock.
    held_bytes: AtomicU64,
    state: Mutex<State>,
}

/// Available space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Whether there is enough for commits that need space.
    pub ample: bool,
    /// Usable bytes, including the reserve.
    pub bytes: u64,
}

impl Reserve {
    /// Opens the reserve of a directory as it was left.
    pub fn open(directory: Directory) -> Self {
        let reserve =
            Self { directory, held_bytes: AtomicU64::new(0), state: Mutex::new(State::default()) };
        let found = || {
            let file = reserve.directory.open_file(NAME, OpenHow::WRITE)?;
            let size = file.size()?;
            // In a copied directory the file may be a hole.
            let held = if file.has_room(0, size)? { size } else { size.min(file.allocated()?) };
            Ok::<_, Errno>((file, held))
        };
        if let Ok((file, held)) = found() {
            reserve.held_bytes.store(held, Ordering::Relaxed);
            *reserve.state.lock() =
                State { file: Some(Arc::new(file)), full_bytes: held, ..State::default() };
        }
        reserve
    }

    /// Runs an operation that may need space. While it fails for lack of space and the reserve is
    /// not empty, frees a piece and runs it again. A lack of inodes frees nothing.
    pub fn make_room<T>(
        &self,
        mut operation: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        loop {
            match operation() {
                Err(Errno::NOSPC | Errno::DQUOT)
                    if !self.lacks_only_files() && self.give_up_a_piece() => {}
                other => return other,
            }
        }
    }

    fn lacks_only_files(&self) -> bool {
        self.directory.space().is_ok_and(|space| lacks_only_files(&space))
    }

    /// Whether a segment of the log may have this many bytes. redb has to take in the contents of
    /// the log, and a part of the reserve is kept for that.
    pub fn has_room_for_log(&self, segment_bytes: u64) -> bool {
        let enough = || {
            let kept = self.state.lock().full_bytes / PIECES * PIECES_FOR_REDB;
            let held = self.held_bytes.load(Ordering::Relaxed);
            let short = held.saturating_sub(LEAST_FOR_REDB_BYTES) / PART_FOR_LOG;
            held >= kept || segment_bytes <= short.min(SHORT_SEGMENT_BYTES)
        };
        if !enough() {
            self.fill_up();
        }
        enough()
    }

    fn give_up_a_piece(&self) -> bool {
        let state = self.state.lock();
        let held = self.held_bytes.load(Ordering::Relaxed);
        let Some(file) = state.file.as_ref().filter(|_| held > 0) else { return false };
        if held == state.full_bytes {
            tracing::warn!(
                reserve_bytes = held,
                "the disk of the metadata is full: what was set aside on it is used"
            );
        }
        let piece = (state.full_bytes / PIECES).max(MIN_PIECE_BYTES);
        let left = held.saturating_sub(piece);
        let cut = file.set_len(left);
        if cut.is_ok() {
            self.held_bytes.store(left, Ordering::Relaxed);
        }
        cut.is_ok()
    }

    /// The available space. An error means that it is unknown.
    pub fn room(&self) -> Result<Room, Errno> {
        let space = self.directory.space()?;
        let held = self.held_bytes.load(Ordering::Relaxed);
        let files = space.total_files == 0 || space.free_files >= FILES_KEPT_FOR_REMOVALS;
        let enough = files && space.free_bytes >= KEPT_FOR_REMOVALS.of(space.total_bytes);
        let ample = enough && held >= self.state.lock().full_bytes;
        Ok(Room { ample, bytes: space.free_bytes.saturating_add(held) })
    }

    /// Fills the reserve as far as there is space; it has precedence over everything else. Call it
    /// when space may have become free, and from time to time.
    pub fn fill_up(&self) {
        let Ok(space) = self.directory.space() else { return };
        let mut state = self.state.lock();
        let held = self.held_bytes.load(Ordering::Relaxed);
        if state.unsupported {
            return;
        }
        state.full_bytes = METADATA_RESERVE.of(space.total_bytes);
        let to = state.full_bytes.min(held.saturating_add(space.free_bytes));
        if to <= held {
            return;
        }
        match self.fill(&mut state, held, to) {
            Ok(()) => {
                self.held_bytes.store(to, Ordering::Relaxed);
                state.unsynced = true;
            }
            Err(Errno::OPNOTSUPP) => {
                tracing::warn!("the file system of the metadata sets no room aside");
                (state.unsupported, state.full_bytes) = (true, 0);
            }
            // Space may come later. Pieces that were just added do not count.
            Err(_) => {
                let cut = state.file.as_ref().map(|file| file.set_len(held));
                if let Some(Err(error)) = cut {
                    tracing::warn!(%error, "cannot give back room on the disk of the metadata");
                }
            }
        }
    }

    /// The file, if it was filled and is not durable since. The caller syncs it and its name;
    /// otherwise a power cut may remove it.
    pub fn take_unsynced(&self) -> Option<Arc<File>> {
        let mut state = self.state.lock();
        std::mem::take(&mut state.unsynced).then(|| state.file.clone()).flatten()
    }

    fn fill(&self, state: &mut State, from: u64, to: u64) -> Result<(), Errno> {
        let file = match state.file.take() {
            Some(file) => file,
            None => Arc::new(self.directory.open_file(NAME, OpenHow::CREATE)?),
        };
        state.file.insert(file).allocate(from, to - from, false)
    }
}

/// Whether a disk has space, but no free inodes. The reserve does not help then.
fn lacks_only_files(space: &Space) -> bool {
    space.total_files > 0 && space.free_files == 0 && space.free_bytes >= MIN_PIECE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_not_given_up_where_files_are_lacking() {
        let space = |free_bytes, total_files, free_files| Space {
            total_bytes: 1 << 30,
            free_bytes,
            total_files,
            free_files,
        };
        assert!(lacks_only_files(&space(1 << 20, 1000, 0)));
        assert!(!lacks_only_files(&space(4096, 1000, 0)), "bytes are lacking as well");
        assert!(!lacks_only_files(&space(1 << 20, 1000, 1)));
        assert!(!lacks_only_files(&space(1 << 20, 0, 0)), "nobody counts files there");
    }
}
