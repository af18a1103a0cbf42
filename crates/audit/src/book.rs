//! The sums and records of a log. No I/O.

use crate::tally::Hasher;
use crate::{Event, Sum};
use std::collections::{HashMap, VecDeque};
use weir_wire::audit::{AuditPage, AuditRecord, MAX_AUDIT_PAGE};

/// The most sums that are not records yet.
pub(crate) const MAX_OPEN: usize = 1024;
/// A sum becomes a record when nothing was added to it for this time, milliseconds.
const IDLE_MS: u64 = 10_000;
/// A sum becomes a record after this time in any case, milliseconds.
const LONG_MS: u64 = 60_000;

/// The sums and records.
#[derive(Debug)]
pub(crate) struct Book {
    capacity: usize,
    open: HashMap<Event, Sum, Hasher>,
    records: VecDeque<AuditRecord>,
    next: u64,
    /// Number of the last record that was handed out to be written.
    written: u64,
}

impl Book {
    /// A book for this many records, with those that are on disk, by ascending number.
    pub fn new(capacity: usize, records: Vec<AuditRecord>) -> Self {
        let last = records.last().map_or(0, |record| record.number);
        let old = records.len().saturating_sub(capacity);
        let records = records.into_iter().skip(old).collect();
        Self { capacity, open: HashMap::default(), records, next: last + 1, written: last }
    }

    /// Has all records written again.
    pub fn write_anew(&mut self) {
        self.written = 0;
    }

    /// Adds to a sum.
    pub fn add(&mut self, event: Event, sum: Sum) {
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&event) {
            self.close_all();
        }
        self.open.entry(event).and_modify(|old| old.add(sum)).or_insert(sum);
    }

    /// Makes records of what has ended, or has gone on for long.
    pub fn settle(&mut self, now_unix_ms: u64) {
        self.close(|sum| {
            now_unix_ms.saturating_sub(sum.last_unix_ms) >= IDLE_MS
                || now_unix_ms.saturating_sub(sum.first_unix_ms) >= LONG_MS
        });
    }

    /// Makes records of all sums.
    pub fn close_all(&mut self) {
        self.close(|_| true);
    }

    fn close(&mut self, ends: impl Fn(&Sum) -> bool) {
        let mut ended: Vec<(Event, Sum)> = self.open.extract_if(|_, sum| ends(sum)).collect();
        ended.sort_by_key(|(_, sum)| (sum.first_unix_ms, sum.last_unix_ms));
        for (event, sum) in ended {
            self.records.push_back(event.record(self.next, sum));
            self.next += 1;
        }
        self.records.drain(..self.records.len().saturating_sub(self.capacity));
    }

    /// A page of the records after a number. The first one makes records of all sums.
    pub fn page(&mut self, after: u64) -> AuditPage {
        if after == 0 {
            self.close_all();
        }
        let from = self.records.partition_point(|record| record.number <= after);
        let records: Vec<_> = self.records.range(from..).take(MAX_AUDIT_PAGE).cloned().collect();
        let more = from + records.len() < self.records.len();
        AuditPage { records, more }
    }

    /// The records that are not on disk. They count as written from now on.
    pub fn take_unwritten(&mut self) -> Vec<AuditRecord> {
        let from = self.records.partition_point(|record| record.number <= self.written);
        let records: Vec<_> = self.records.range(from..).cloned().collect();
        self.written = self.next - 1;
        records
    }

    /// Has these records written again, from this number on.
    pub fn not_written(&mut self, from: u64) {
        self.written = self.written.min(from - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::codec::Bytes;
    use weir_types::{ClientId, FileId, SessionId};
    use weir_wire::{Op, Rights};

    fn read(file: u64) -> Event {
        Event {
            client: ClientId(1),
            session: SessionId(2),
            user: 1000,
            file: FileId(file),
            op: Op::Read,
            rights: Rights::NONE,
            status: None,
            about: Bytes::default(),
        }
    }

    #[test]
    fn requests_that_are_alike_are_one_record_until_they_end_or_a_minute_is_over() {
        let mut book = Book::new(10, Vec::new());
        for now in 0..5 {
            book.add(read(7), Sum::one(100, now * 1000));
        }
        book.settle(13_999);
        assert!(book.take_unwritten().is_empty(), "it may go on");
        book.settle(14_000);
        let [record] = &book.take_unwritten()[..] else { panic!("not one record") };
        assert_eq!((record.number, record.count, record.bytes), (1, 5, 500));
        assert_eq!((record.first_unix_ms, record.last_unix_ms), (0, 4000));
        assert!(book.take_unwritten().is_empty(), "it is written once");

        (0..61).for_each(|second| book.add(read(8), Sum::one(1, 20_000 + second * 1000)));
        book.settle(80_000);
        assert_eq!(book.page(1).records[0].count, 61, "it goes on for long");
    }

    #[test]
    fn memory_is_bounded_and_the_latest_stay() {
        let mut book = Book::new(1500, Vec::new());
        (0..10_000).for_each(|file| book.add(read(file), Sum::one(1, file)));
        assert!(book.open.len() <= MAX_OPEN && book.records.len() <= 1500);
        let first = book.page(0);
        assert!(first.more && first.records.len() == MAX_AUDIT_PAGE);
        let rest = book.page(first.records.last().unwrap().number);
        assert!(!rest.more);
        let files: Vec<u64> =
            first.records.iter().chain(&rest.records).map(|record| record.file.0).collect();
        assert_eq!(files, (8500..10_000).collect::<Vec<_>>());
    }

    #[test]
    fn what_could_not_be_written_is_written_the_next_time() {
        let mut book = Book::new(10, Vec::new());
        (0..3).for_each(|file| book.add(read(file), Sum::one(1, file)));
        book.settle(60_000);
        assert_eq!(book.take_unwritten().len(), 3);
        book.not_written(2);
        let numbers: Vec<u64> = book.take_unwritten().iter().map(|it| it.number).collect();
        assert_eq!(numbers, [2, 3]);
    }
}
