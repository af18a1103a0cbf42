//! Copies the bytes of a file with one or several threads. Holes are skipped. What an earlier run
//! wrote is compared and written again only where it differs.

use super::work::Copier;
use crate::failure::{Done, Failure};
use crate::files::tree::{Sink, Source};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a big file that one thread copies before it takes the next piece.
pub const PIECE_BYTES: u64 = 64 << 20;
/// Bytes of one read and one write: the most that a call sends to each server in one request.
pub const CALL_BYTES: usize = 4 << 20;
/// Threads that copy one big file.
const THREADS_PER_FILE: u64 = 4;

/// A file that is being copied.
pub struct FileCopy<'a> {
    pub source: &'a dyn Source,
    pub sink: &'a dyn Sink,
    /// Bytes that the sink had already.
    pub there: u64,
    /// The offset of the next piece that no thread has taken.
    next: AtomicU64,
    pieces: u64,
    /// The end of the source, as far as is known.
    end: AtomicU64,
}

/// The buffers of a thread: for bytes of the source, and for bytes that the sink has already.
#[derive(Default)]
pub struct Buffers {
    read: Vec<u8>,
    there: Vec<u8>,
}

impl<'a> FileCopy<'a> {
    /// A copy of a source with about `size` bytes.
    pub fn new(source: &'a dyn Source, sink: &'a dyn Sink, there: u64, size: u64) -> Self {
        let pieces = size.div_ceil(PIECE_BYTES).max(1);
        let (next, end) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { source, sink, there, next, pieces, end }
    }

    /// Sets the size of the copy after all bytes are copied. This is needed if the source ends in a
    /// hole, or the sink was longer.
    pub fn end(&self) -> Done {
        let end = self.end.load(Ordering::Relaxed);
        if self.sink.size()? == end { Ok(()) } else { self.sink.set_size(end) }
    }

    fn reached(&self, offset: u64) {
        self.end.fetch_max(offset, Ordering::Relaxed);
    }

    /// Punches a hole into the sink where the source has one.
    fn clear(&self, hole: Range<u64>) -> Done {
        let hole = hole.start..hole.end.min(self.there);
        if hole.is_empty() { Ok(()) } else { self.sink.clear(hole) }
    }

    /// Writes bytes unless the sink has them already.
    fn write(&self, offset: u64, bytes: &[u8], there: &mut Vec<u8>) -> Done {
        if offset < self.there {
            there.resize(CALL_BYTES, 0);
            let n = self.sink.read_at(offset, &mut there[..bytes.len()])?;
            if there[..n] == *bytes {
                return Ok(());
            }
        }
        self.sink.write_at(offset, bytes)
    }
}

impl Copier {
    /// Copies all bytes. [`FileCopy::end`] then sets the size.
    pub fn bytes(&self, copy: &FileCopy<'_>, buffers: &mut Buffers) -> Done {
        let helpers = copy.pieces.min(THREADS_PER_FILE) - 1;
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..helpers)
                .map(|_| scope.spawn(|| self.pieces(copy, &mut Buffers::default())))
                .collect();
            let mine = self.pieces(copy, buffers);
            others.into_iter().fold(mine, |all, other| {
                all.and(other.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked"))))
            })
        })
    }

    /// Copies pieces of a file until all are taken.
    fn pieces(&self, copy: &FileCopy<'_>, buffers: &mut Buffers) -> Done {
        loop {
            let piece = copy.next.fetch_add(1, Ordering::Relaxed);
            if piece >= copy.pieces {
                return Ok(());
            }
            let start = piece * PIECE_BYTES;
            // The last piece continues to the present end of the file.
            let last = piece + 1 == copy.pieces;
            let end = if last { u64::MAX } else { start + PIECE_BYTES };
            self.piece(copy, start..end, buffers)?;
        }
    }

    fn piece(&self, copy: &FileCopy<'_>, piece: Range<u64>, buffers: &mut Buffers) -> Done {
        let mut at = piece.start;
        let mut data = at..at;
        while at < piece.end {
            if let Some(n) = copy.sink.copy_at(copy.source, at, piece.end - at)? {
                if n == 0 {
                    return Ok(());
                }
                at += n;
                copy.reached(at);
                self.progress.done(n);
                continue;
            }
            if at >= data.end {
                // The size is read before the search, so that bytes added later do not count as a
                // hole.
                let size = copy.source.size()?;
                let found = copy.source.next_data(at)?;
                let begins = found.as_ref().map_or(size, |data| data.start).clamp(at, piece.end);
                copy.clear(at..begins)?;
                self.progress.done(begins - at);
                // If the source was cut meanwhile, it ends before this offset.
                if begins > at && (found.is_some() || begins <= size) {
                    copy.reached(begins);
                }
                at = begins;
                let Some(found) = found.filter(|data| data.start < piece.end) else {
                    return Ok(());
                };
                data = found;
            }
            buffers.read.resize(CALL_BYTES, 0);
            let want = data.end.min(piece.end) - at;
            let want = usize::try_from(want).unwrap_or(usize::MAX).min(CALL_BYTES);
            let n = copy.source.read_at(at, &mut buffers.read[..want])?;
            if n == 0 {
                return Ok(());
            }
            copy.write(at, &buffers.read[..n], &mut buffers.there)?;
            at += n as u64;
            copy.reached(at);
            self.progress.done(n as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::local::LocalTree;
    use crate::files::tree::{Making, Take, Tree};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{FileExt, MetadataExt};

    fn copied(from: &std::path::Path, to: &std::path::Path) {
        let size = std::fs::metadata(from).unwrap().len();
        copied_as(from, to, size);
    }

    /// Copies a file that was listed with this size.
    fn copied_as(from: &std::path::Path, to: &std::path::Path, size: u64) {
        let path = |path: &std::path::Path| path.as_os_str().as_bytes().to_vec();
        let source = LocalTree.open(&path(from), None).unwrap();
        let (sink, there) = match LocalTree.take_over(&path(to), Take::GoOn).unwrap() {
            Some(sink) => {
                let there = sink.size().unwrap();
                (sink, there)
            }
            None => {
                let making = Making { mode: 0o600, like: None, locked: true };
                (LocalTree.create(&path(to), &making).unwrap(), 0)
            }
        };
        let copy = FileCopy::new(&*source, &*sink, there, size);
        Copier::for_test().bytes(&copy, &mut Buffers::default()).unwrap();
        copy.end().unwrap();
    }

    #[test]
    fn a_source_that_was_cut_gives_a_copy_as_long_as_what_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        for size in [0, 5, PIECE_BYTES, PIECE_BYTES + 1] {
            std::fs::File::create(&from).unwrap().set_len(size).unwrap();
            copied_as(&from, &to, 5 * PIECE_BYTES);
            assert_eq!(std::fs::metadata(&to).unwrap().len(), size);
        }
        std::fs::write(&from, "data").unwrap();
        copied_as(&from, &to, 5 * PIECE_BYTES);
        assert_eq!(std::fs::read(&to).unwrap(), b"data");
    }

    #[test]
    fn files_of_proc_that_do_not_say_where_their_data_is_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (std::path::Path::new("/proc/version"), dir.path().join("to"));
        copied(from, &to);
        assert_eq!(std::fs::read(from).unwrap(), std::fs::read(&to).unwrap());
    }

    #[test]
    fn a_big_file_is_copied_whole_by_several_threads() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let bytes: Vec<u8> = (0..2 * PIECE_BYTES + 12_345).map(|i| (i / 7 % 251) as u8).collect();
        std::fs::write(&from, &bytes).unwrap();
        copied(&from, &to);
        assert!(std::fs::read(&to).unwrap() == bytes);
    }

    #[test]
    fn holes_stay_holes_and_what_is_there_is_made_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let file = std::fs::File::create(&from).unwrap();
        file.write_all_at(&[1; 9000], 3 << 20).unwrap();
        file.write_all_at(&[2; 7], 200 << 20).unwrap();
        file.set_len(300 << 20).unwrap();
        copied(&from, &to);
        assert!(std::fs::read(&to).unwrap() == std::fs::read(&from).unwrap());
        assert!(std::fs::metadata(&to).unwrap().blocks() * 512 < 1 << 20);
        // The existing file has wrong bytes in a hole and in data, and is too long.
        let there = std::fs::OpenOptions::new().write(true).open(&to).unwrap();
        there.write_all_at(&[9; 5000], 1 << 20).unwrap();
        there.write_all_at(&[9; 1], (3 << 20) + 5).unwrap();
        there.set_len(301 << 20).unwrap();
        copied(&from, &to);
        assert!(std::fs::read(&to).unwrap() == std::fs::read(&from).unwrap());
        assert!(std::fs::metadata(&to).unwrap().blocks() * 512 < 1 << 20);
    }
}
