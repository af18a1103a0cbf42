//! The marks in memory, without I/O. The table holds durable marks only.

use super::sector::Record;
use std::collections::BTreeMap;
use weir_types::limits::BLOCK;
use weir_types::{FileId, ObjectId};

/// The smallest part of an object that is marked, bytes.
pub(crate) const GRANULE: u64 = 1024 * BLOCK;
/// Number of consecutive file ids that share a window.
const WINDOW_FILES: u64 = 1 << 16;
/// The most granules that a sequential overwrite marks ahead: 256 MiB.
const MAX_AHEAD: u64 = 64;

/// The window that marks the young objects of a file.
pub(crate) fn window(file: FileId) -> u64 {
    file.0 / WINDOW_FILES
}

/// The file ids of a window.
pub(crate) fn files_of(window: u64) -> std::ops::Range<u64> {
    let first = window.saturating_mul(WINDOW_FILES);
    first..first.saturating_add(WINDOW_FILES)
}

/// The marked parts of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Marks {
    /// Ranges of granules in ascending order. They do not touch each other.
    ranges: Vec<(u64, u64)>,
    /// The last era in which one of the ranges was written to.
    era: u64,
}

impl Marks {
    fn holds(&self, first: u64, end: u64) -> bool {
        let at = self.ranges.partition_point(|r| r.0 <= first);
        at > 0 && end <= self.ranges[at - 1].1
    }

    fn insert(&mut self, mut first: u64, mut end: u64) {
        self.ranges.retain(|r| {
            let apart = r.1 < first || end < r.0;
            if !apart {
                (first, end) = (first.min(r.0), end.max(r.1));
            }
            apart
        });
        let at = self.ranges.partition_point(|r| r.0 < first);
        self.ranges.insert(at, (first, end));
    }
}

/// Every durable mark, with the last era that needed it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    objects: BTreeMap<ObjectId, Marks>,
    windows: BTreeMap<u64, u64>,
}

impl Table {
    /// Returns the record that a write of bytes `start..end` needs in this era, or nothing if the
    /// bytes are marked. A mark from an earlier era suffices, and is kept for this era.
    pub(crate) fn plan(
        &mut self,
        id: ObjectId,
        (start, end): (u64, u64),
        grows: bool,
        era: u64,
    ) -> Option<Record> {
        let first = start / GRANULE;
        let end = if grows { u64::MAX } else { end.div_ceil(GRANULE) };
        let Some(marks) = self.objects.get_mut(&id) else {
            return Some(Record::Range { id, first, end });
        };
        if marks.holds(first, end) {
            marks.era = era;
            return None;
        }
        if grows {
            return Some(Record::Range { id, first, end });
        }
        // A sequential write: mark as much ahead as it has written so far.
        let before = marks.ranges.iter().find(|r| r.0 < first && first <= r.1);
        if let Some(before) = before {
            let ahead = (before.1 - before.0).min(MAX_AHEAD);
            return Some(Record::Range { id, first: before.1, end: end.max(before.1 + ahead) });
        }
        // Scattered writes in a large object: the more marks there are, the coarser.
        let unit = match marks.ranges.len() {
            0..64 => 1,
            64..256 => 16,
            _ => 256,
        };
        let (first, end) = (first / unit * unit, end.next_multiple_of(unit));
        Some(Record::Range { id, first, end })
    }

    /// Whether the mark exists. If so it is kept for this era.
    pub(crate) fn holds(&mut self, record: &Record, era: u64) -> bool {
        match record {
            Record::Range { id, first, end } => self.objects.get_mut(id).is_some_and(|marks| {
                let holds = marks.holds(*first, *end);
                if holds {
                    marks.era = era;
                }
                holds
            }),
            Record::Window(window) => self.windows.get_mut(window).is_some_and(|last| {
                *last = era;
                true
            }),
        }
    }

    pub(crate) fn insert(&mut self, record: Record, era: u64) {
        match record {
            Record::Range { id, first, end } => {
                let empty = || Marks { ranges: Vec::new(), era };
                let marks = self.objects.entry(id).or_insert_with(empty);
                marks.era = era;
                if !marks.holds(first, end) {
                    marks.insert(first, end);
                }
            }
            Record::Window(window) => {
                self.windows.insert(window, era);
            }
        }
    }

    /// Removes marks that were last needed before this era.
    pub(crate) fn forget_before(&mut self, era: u64) {
        self.objects.retain(|_, marks| marks.era >= era);
        self.windows.retain(|_, last| *last >= era);
    }

    /// All marks.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let windows = self.windows.keys().map(|&window| Record::Window(window));
        let ranges = self.objects.iter().flat_map(|(&id, marks)| {
            marks.ranges.iter().map(move |&(first, end)| Record::Range { id, first, end })
        });
        windows.chain(ranges)
    }

    /// Number of marks.
    pub(crate) fn len(&self) -> usize {
        self.windows.len() + self.objects.values().map(|m| m.ranges.len()).sum::<usize>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty() && self.objects.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{ColumnIndex, CopyIndex, SegmentIndex};

    fn id(file: u64) -> ObjectId {
        ObjectId {
            file: FileId(file),
            segment: SegmentIndex(0),
            column: ColumnIndex(0),
            copy: CopyIndex(0),
        }
    }

    #[test]
    fn what_is_marked_needs_no_mark() {
        let mut table = Table::default();
        let first = table.plan(id(1), (10, 20), false, 1).unwrap();
        assert_eq!(first, Record::Range { id: id(1), first: 0, end: 1 });
        table.insert(first, 1);
        assert_eq!(table.plan(id(1), (0, GRANULE), false, 1), None);
        assert!(table.plan(id(1), (0, GRANULE + 1), false, 1).is_some());
        assert!(table.plan(id(1), (0, 10), true, 1).is_some(), "growth marks everything behind");
        assert!(table.plan(id(2), (0, 10), false, 1).is_some());
        table.insert(Record::Range { id: id(1), first: 0, end: u64::MAX }, 1);
        assert_eq!(table.plan(id(1), (1 << 50, 1 << 51), true, 1), None);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_stream_of_overwrites_takes_few_marks() {
        let (mut table, mut marks) = (Table::default(), 0);
        for i in 0..4096 {
            if let Some(record) = table.plan(id(1), (i << 20, (i + 1) << 20), false, 1) {
                table.insert(record, 1);
                marks += 1;
            }
        }
        assert!(marks < 30, "{marks} marks for 4 GiB");
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn scattered_overwrites_get_coarser_marks() {
        let mut table = Table::default();
        let mut x = 1u64;
        for _ in 0..100_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (x >> 20) % (1 << 40);
            if let Some(record) = table.plan(id(1), (at, at + 4096), false, 1) {
                table.insert(record, 1);
            }
        }
        assert!(table.len() < 2000, "{} ranges", table.len());
    }

    #[test]
    fn only_what_this_era_needed_is_kept() {
        let mut table = Table::default();
        for file in 1..4 {
            table.insert(Record::Range { id: id(file), first: 0, end: 2 }, 1);
        }
        table.insert(Record::Window(7), 1);
        assert_eq!(table.plan(id(2), (0, 10), false, 2), None);
        assert!(table.holds(&Record::Window(7), 2));
        table.forget_before(2);
        let left: Vec<_> = table.records().collect();
        assert_eq!(left, [Record::Window(7), Record::Range { id: id(2), first: 0, end: 2 }]);
    }
}
