//! A log that threads share.

use crate::book::Book;
use crate::{Event, Sum, file};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weir_host::fs::Directory;
use weir_host::sync::Mutex;
use weir_wire::audit::AuditPage;

/// The most records of a log.
pub const MAX_RECORDS: usize = 65_536;

/// The audit records of a target, or of a metadata server.
#[derive(Debug, Default)]
pub struct Log {
    /// `None`: nothing is recorded.
    kept: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    book: Mutex<Book>,
    /// Whether the file has more slots than it may, and is written anew.
    anew: AtomicBool,
    /// Whether the disk takes no records, which is said once.
    fails: AtomicBool,
}

impl Log {
    /// The log in a directory, for this many records; with 0 nothing is recorded. A file that cannot
    /// be read is replaced.
    pub fn open(dir: &Path, capacity: usize) -> Self {
        let capacity = capacity.min(MAX_RECORDS);
        if capacity == 0 {
            return Self::default();
        }
        let found = Directory::open(dir).and_then(|dir| file::load(&dir, capacity, MAX_RECORDS));
        let (records, in_place) = found.unwrap_or_else(|error| {
            tracing::warn!("{}: the audit records are not readable: {error}", dir.display());
            (Vec::new(), false)
        });
        let mut book = Book::new(capacity, records);
        if !in_place {
            book.write_anew();
        }
        let (anew, fails) = (AtomicBool::new(!in_place), AtomicBool::new(false));
        Self { kept: Some(Kept { book: Mutex::new(book), anew, fails }) }
    }

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.kept.is_some()
    }

    /// Adds sums of a tally.
    pub fn add(&self, sums: impl IntoIterator<Item = (Event, Sum)>) {
        if let Some(kept) = &self.kept {
            let mut book = kept.book.lock();
            sums.into_iter().for_each(|(event, sum)| book.add(event, sum));
        }
    }

    /// A page of the records after a number; 0: from the first on, and with all that was added so
    /// far.
    pub fn page(&self, after: u64) -> AuditPage {
        match &self.kept {
            Some(kept) => kept.book.lock().page(after),
            None => AuditPage { records: Vec::new(), more: false },
        }
    }

    /// Makes records of what has ended, and writes them to the file in `dir`. It may wait for the
    /// disk. It does not sync: a power cut may take the latest records away.
    pub fn write(&self, dir: &Path, now_unix_ms: u64) {
        if let Some(kept) = &self.kept {
            kept.book.lock().settle(now_unix_ms);
            kept.write(dir);
        }
    }

    /// Makes records of everything, and writes them: when the server ends.
    pub fn finish(&self, dir: &Path) {
        if let Some(kept) = &self.kept {
            kept.book.lock().close_all();
            kept.write(dir);
        }
    }
}

impl Kept {
    fn write(&self, dir: &Path) {
        let records = self.book.lock().take_unwritten();
        let Some((_, first)) = records.first() else { return };
        let anew = self.anew.load(Relaxed);
        let directory = Directory::open(dir);
        match directory.and_then(|dir| file::write(&dir, &records, anew)) {
            Ok(()) => {
                self.anew.store(false, Relaxed);
                self.fails.store(false, Relaxed);
            }
            Err(error) => {
                self.book.lock().not_written(first.number);
                if !self.fails.swap(true, Relaxed) {
                    tracing::warn!("{}: no audit records are written: {error}", dir.display());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::codec::Bytes;
    use weir_types::{ClientId, FileId, SessionId};
    use weir_wire::{Op, Rights};

    fn event(file: u64) -> Event {
        Event {
            client: ClientId(1),
            session: SessionId(2),
            user: 1000,
            file: FileId(file),
            op: Op::Write,
            rights: Rights::NONE,
            status: None,
            about: Bytes::default(),
        }
    }

    fn files(log: &Log) -> Vec<u64> {
        log.page(0).records.iter().map(|record| record.file.0).collect()
    }

    #[test]
    fn what_was_written_is_there_after_a_restart_also_with_another_capacity() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(dir.path(), 8);
        log.add((0..20).map(|n| (event(n), Sum::one(n, n))));
        log.write(dir.path(), 1_000_000);
        let log = Log::open(dir.path(), 8);
        assert_eq!(files(&log), (12..20).collect::<Vec<_>>());
        log.add([(event(77), Sum::one(1, 1))]);
        log.finish(dir.path());
        let log = Log::open(dir.path(), 3);
        assert_eq!(files(&log), [18, 19, 77]);
        log.add([(event(78), Sum::one(1, 1))]);
        log.write(dir.path(), 1_000_000);
        assert_eq!(files(&Log::open(dir.path(), 3)), [19, 77, 78]);
        assert!(files(&Log::open(dir.path(), 0)).is_empty(), "it is switched off");
    }

    #[test]
    fn a_disk_that_takes_nothing_costs_no_record() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(dir.path(), 8);
        log.add([(event(1), Sum::one(1, 1))]);
        log.write(&dir.path().join("gone"), 1_000_000);
        log.write(dir.path(), 1_000_000);
        assert_eq!(files(&Log::open(dir.path(), 8)), [1]);
    }
}
