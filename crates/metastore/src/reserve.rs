//! Room that is set aside on the disk: the file `reserve`, which holds nothing. Whoever finds
//! the disk full gives up a piece of it and tries again. It is filled up again when there is
//! room.
//!
//! So what has been begun can be finished, what makes room can be done, and the engine opens, on
//! a disk that others have filled.

use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_host::fs::{Directory, File, OpenHow, Space};
use weir_host::sync::Mutex;
use weir_types::room::{FILES_KEPT_FOR_REMOVALS, KEPT_FOR_REMOVALS, METADATA_RESERVE};

const NAME: &str = "reserve";
/// The number of pieces that the reserve is given up in.
const PIECES: u64 = 16;
/// The number of pieces below which segments of the log have to be short.
const PIECES_FOR_REDB: u64 = 6;
/// A short segment takes at most one part in so many of the reserve that is left. redb needs the
/// rest to take the segment in: it writes whole pages where the log has single rows.
const PART_FOR_LOG: u64 = 32;
/// The most bytes of a short segment. A start, and removals that make room, need little.
const SHORT_SEGMENT_BYTES: u64 = 64 << 10;
/// The room that redb needs for any commit, however small.
const LEAST_FOR_REDB_BYTES: u64 = 512 << 10;
/// The smallest piece.
const MIN_PIECE_BYTES: u64 = 64 << 10;
#[derive(Default)]
struct State {
    /// The file, once it has been opened.
    file: Option<Arc<File>>,
    /// It was filled, and that is not durable yet.
    unsynced: bool,
    /// How large it is to be, bytes.
    full_bytes: u64,
    /// The file system sets no room aside.
    unsupported: bool,
}

/// The reserve of one directory.
pub(crate) struct Reserve {
    directory: Directory,
    /// What it holds, bytes. Changed under the lock.
    held_bytes: AtomicU64,
    state: Mutex<State>,
}

/// What there is for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Enough for what needs room.
    pub ample: bool,
    /// What can be used in all, bytes, with the reserve.
    pub bytes: u64,
}

impl Reserve {
    /// That of a directory, as it was left.
    pub fn open(directory: Directory) -> Self {
        let reserve =
            Self { directory, held_bytes: AtomicU64::new(0), state: Mutex::new(State::default()) };
        let found = || {
            let file = reserve.directory.open_file(NAME, OpenHow::WRITE)?;
            let size = file.size()?;
            // A copy of a directory may have a hole in its place.
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

    /// Does something that may need room. As long as there is none, and something of the reserve
    /// is left, a piece is given up and it is done again; but not where files are lacking.
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

    /// Whether a segment of the log may have so many bytes. What is in the log redb has to take in,
    /// and for that some of the reserve is kept.
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

    /// What there is now. An error means that it is not known.
    pub fn room(&self) -> Result<Room, Errno> {
        let space = self.directory.space()?;
        let held = self.held_bytes.load(Ordering::Relaxed);
        let files = space.total_files == 0 || space.free_files >= FILES_KEPT_FOR_REMOVALS;
        let enough = files && space.free_bytes >= KEPT_FOR_REMOVALS.of(space.total_bytes);
        let ample = enough && held >= self.state.lock().full_bytes;
        Ok(Room { ample, bytes: space.free_bytes.saturating_add(held) })
    }

    /// Fills it up as far as there is room: it comes before everything else. To be called when
    /// something has become free, and now and then.
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
            // There will be room some time; what was taken counts for nothing.
            Err(_) => {
                let cut = state.file.as_ref().map(|file| file.set_len(held));
                if let Some(Err(error)) = cut {
                    tracing::warn!(%error, "cannot give back room on the disk of the metadata");
                }
            }
        }
    }

    /// The file, if it has been filled and is not durable since: to be made so, with its name. A
    /// power cut may else take it away.
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

/// Whether a disk can take no more files, and has room for bytes: the reserve is no help then.
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
