//! Reading from all disks at the same time: each file of a set is read by a thread of its own, and
//! jobs on different targets run in parallel.

use crate::failure::{Done, Failure};
use crate::stream::{PIECE_BYTES, Step, Watch, read_piece};
use blake3::{Hash, Hasher};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle, scope};

/// Pieces of a file that were read and wait for the encoder.
const AHEAD: usize = 2;

/// A file that is read and hashed by its thread.
pub struct Stream<'scope> {
    pieces: Receiver<Done<Vec<u8>>>,
    reader: ScopedJoinHandle<'scope, Hash>,
}

impl<'scope> Stream<'scope> {
    /// Begins to read at most `len` bytes. The receiver that is returned disconnects when the
    /// reading has ended.
    pub fn begin<'file: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        (mut file, path): (&'file File, &'file Path),
        len: u64,
    ) -> (Self, Receiver<()>) {
        let ((send, pieces), (reads, end)) = (sync_channel(AHEAD), sync_channel(0));
        let reader = scope.spawn(move || {
            let _reads: SyncSender<()> = reads;
            let (mut hasher, mut left) = (Hasher::new(), len);
            while left > 0 {
                let mut piece = vec![0; left.min(PIECE_BYTES as u64) as usize];
                let read = read_piece(&mut file, path, &mut piece).map(|count| {
                    piece.truncate(count);
                    hasher.update(&piece);
                    left = if count < PIECE_BYTES { 0 } else { left - count as u64 };
                    piece
                });
                let has_failed = read.is_err();
                // Nobody receives it when the work has ended early.
                if send.send(read).is_err() || has_failed {
                    break;
                }
            }
            hasher.finalize()
        });
        (Self { pieces, reader }, end)
    }

    /// The next piece, which is shorter only at the end; nothing after it.
    pub fn next(&self) -> Done<Vec<u8>> {
        self.pieces.recv().unwrap_or_else(|_| Ok(Vec::new()))
    }

    /// The hash of the bytes that were read. Call it after the last piece was taken.
    pub fn hash(self) -> Hash {
        drop(self.pieces);
        joined(self.reader)
    }
}

/// Calls `act` for all elements in parallel; fails if one call fails.
pub fn at_once<J: Sync>(all: &[J], act: impl Fn(&J) -> Done + Sync) -> Done {
    let act = &act;
    scope(|scope| {
        let threads: Vec<_> = all.iter().map(|one| scope.spawn(move || act(one))).collect();
        threads.into_iter().map(joined).fold(Ok(()), Done::and)
    })
}

/// Runs jobs: those of one key one after another, those of different keys in parallel.
pub fn on_each<K: Ord, J: Send, T: Send>(
    jobs: BTreeMap<K, Vec<J>>,
    run: impl Fn(J, Watch<'_>) -> T + Sync,
    watch: Watch<'_>,
) -> Done<Vec<T>> {
    let (told, steps) = sync_channel(jobs.len());
    let is_over = AtomicBool::new(false);
    let (run, is_over) = (&run, &is_over);
    scope(|scope| {
        let begin = |jobs: Vec<J>| {
            let told = told.clone();
            scope.spawn(move || {
                let mut watch = |step: Step| match told.send(step) {
                    Ok(()) if !is_over.load(Relaxed) => Ok(()),
                    _ => Err(Failure::other("stopped")),
                };
                jobs.into_iter().map(|job| run(job, &mut watch)).collect::<Vec<T>>()
            })
        };
        let workers: Vec<_> = jobs.into_values().map(begin).collect();
        drop(told);
        let mut watched = Ok(());
        for step in steps {
            if watched.is_ok() {
                watched = watch(step);
                is_over.store(watched.is_err(), Relaxed);
            }
        }
        let done = workers.into_iter().flat_map(joined).collect();
        watched.map(|()| done)
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    #[test]
    fn a_file_is_read_to_its_end_and_no_further_than_it_is_asked_to() {
        let bytes: Vec<u8> = (0..2 * PIECE_BYTES + 7).map(|i| (i % 251) as u8).collect();
        for asked in [0, 5, PIECE_BYTES, 2 * PIECE_BYTES + 7, 5 * PIECE_BYTES] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            file.rewind().unwrap();
            let (read, hash) = scope(|scope| {
                let (stream, end) = Stream::begin(scope, (&file, Path::new("file")), asked as u64);
                let mut read = Vec::new();
                loop {
                    let piece = stream.next().unwrap();
                    if piece.is_empty() {
                        end.recv().unwrap_err();
                        return (read, stream.hash());
                    }
                    read.extend(piece);
                }
            });
            assert!(read == bytes[..asked.min(bytes.len())], "{asked}");
            assert_eq!(hash, blake3::hash(&read));
        }
    }

    #[test]
    fn all_targets_work_and_all_end_when_somebody_says_so() {
        let jobs = || (0..4).map(|i| (i, vec![i, 10 + i])).collect::<BTreeMap<_, _>>();
        let run = |job: u32, watch: Watch<'_>| watch(Step::Read(job.into())).map(|()| job);
        let mut seen = 0;
        let count = &mut |step| {
            seen += if let Step::Read(bytes) = step { bytes } else { 0 };
            Ok(())
        };
        let done = on_each(jobs(), run, count).unwrap();
        let done: Vec<u32> = done.into_iter().map(Done::unwrap).collect();
        assert_eq!((done, seen), (vec![0, 10, 1, 11, 2, 12, 3, 13], 52));
        let stop = &mut |_| Err(Failure::other("enough"));
        let stopped = on_each(jobs(), run, stop).unwrap_err();
        assert_eq!(stopped.to_string(), "enough");
        assert!(on_each(BTreeMap::<u32, _>::new(), run, stop).unwrap().is_empty());
    }
}
