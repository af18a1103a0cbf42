//! The columns that a writer has written, for the metadata server: a written object that is missing
//! is lost, one that was never written is a hole. Each column is reported once, with the next
//! commit of the size, so a writer that goes on reports nothing new.

use std::collections::BTreeMap;
use weir_types::codec::Bytes;
use weir_types::limits::MAX_WRITTEN_SEGMENTS;
use weir_types::{ColumnIndex, SegmentIndex};
use weir_wire::meta::WrittenColumns;

/// The most segments whose reported columns are remembered. Columns of other segments are reported
/// again, which does no harm.
const MAX_REPORTED: usize = 4096;

/// First byte of a segment in the file, and a bit for each column.
#[derive(Clone, Debug, Default)]
struct Marks {
    start: u64,
    columns: Vec<u8>,
}

impl Marks {
    fn has(&self, column: usize) -> bool {
        self.columns.get(column / 8).is_some_and(|byte| byte & (1 << (column % 8)) != 0)
    }

    fn set(&mut self, column: usize) {
        if self.columns.len() <= column / 8 {
            self.columns.resize(column / 8 + 1, 0);
        }
        self.columns[column / 8] |= 1 << (column % 8);
    }
}

/// The columns of one file that this client has written.
#[derive(Debug, Default)]
pub struct Written {
    reported: BTreeMap<SegmentIndex, Marks>,
    /// Unreported columns.
    new: BTreeMap<SegmentIndex, Marks>,
}

impl Written {
    /// Records that a server has confirmed bytes of a column. `start` is the segment's first byte
    /// in the file.
    pub fn note(&mut self, segment: SegmentIndex, start: u64, column: ColumnIndex) {
        let column = usize::from(column.0);
        if self.reported.get(&segment).is_some_and(|marks| marks.has(column)) {
            return;
        }
        let marks = self.new.entry(segment).or_default();
        marks.start = start;
        marks.set(column);
    }

    /// Reports everything again, because the metadata server has restarted and may have lost the
    /// last report.
    pub fn tell_again(&mut self) {
        for (segment, marks) in std::mem::take(&mut self.reported) {
            let new = self.new.entry(segment).or_default();
            new.start = marks.start;
            (0..marks.columns.len() * 8).filter(|&c| marks.has(c)).for_each(|c| new.set(c));
        }
    }

    /// Takes over the report of another writer of the file.
    pub fn take_over(&mut self, report: &[WrittenColumns]) {
        for entry in report {
            let new = self.new.entry(entry.segment).or_default();
            new.start = entry.start;
            let other = Marks { start: entry.start, columns: entry.columns.to_vec() };
            (0..other.columns.len() * 8).filter(|&c| other.has(c)).for_each(|c| new.set(c));
        }
    }

    /// Whether there is something to report.
    pub fn has_news(&self) -> bool {
        !self.new.is_empty()
    }

    /// The next report, as much as one request holds.
    pub fn report(&self) -> Vec<WrittenColumns> {
        let entry = |(segment, marks): (&SegmentIndex, &Marks)| WrittenColumns {
            segment: *segment,
            start: marks.start,
            columns: Bytes(marks.columns.clone()),
        };
        self.new.iter().take(MAX_WRITTEN_SEGMENTS).map(entry).collect()
    }

    /// Records that columns were reported. Returns whether there are more.
    pub fn reported(&mut self, report: &[WrittenColumns]) -> bool {
        for entry in report {
            let Some(marks) = self.new.remove(&entry.segment) else { continue };
            if self.reported.len() >= MAX_REPORTED {
                self.reported.pop_first();
            }
            let known = self.reported.entry(entry.segment).or_default();
            (0..marks.columns.len() * 8).filter(|&c| marks.has(c)).for_each(|c| known.set(c));
        }
        !self.new.is_empty()
    }

    /// Whether one request holds all that is to be reported.
    pub fn fits(&self) -> bool {
        self.new.len() <= MAX_WRITTEN_SEGMENTS
    }

    /// Forgets everything, because the file was emptied and gets new segments.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_reported_once() {
        let mut written = Written::default();
        let note = |w: &mut Written, column| w.note(SegmentIndex(3), 100, ColumnIndex(column));
        note(&mut written, 0);
        note(&mut written, 9);
        note(&mut written, 9);
        let report = written.report();
        assert_eq!((report.len(), report[0].start, &*report[0].columns), (1, 100, &[1u8, 2][..]));
        assert_eq!(written.report(), report, "a report that is lost is made again");
        assert!(!written.reported(&report));
        note(&mut written, 9);
        assert!(written.report().is_empty());
        note(&mut written, 1);
        assert_eq!(&*written.report()[0].columns, [2]);
        written.tell_again();
        assert_eq!(&*written.report()[0].columns, [3, 2], "a server that has started anew");
        assert!(!written.reported(&written.report()) && !written.has_news());
        written.forget();
        note(&mut written, 9);
        assert_eq!(written.report().len(), 1);
        let mut other = Written::default();
        note(&mut other, 0);
        other.take_over(&written.report());
        assert_eq!(&*other.report()[0].columns, [1, 2], "what an earlier writer has left");
    }

    #[test]
    fn many_segments_take_several_requests_and_bounded_memory() {
        let mut written = Written::default();
        for segment in 0..10_000u32 {
            written.note(SegmentIndex(segment), u64::from(segment), ColumnIndex(0));
        }
        let mut requests = 1;
        while written.reported(&written.report()) {
            requests += 1;
        }
        assert_eq!(requests, 10_000usize.div_ceil(MAX_WRITTEN_SEGMENTS));
        assert!(written.reported.len() <= MAX_REPORTED);
    }
}
