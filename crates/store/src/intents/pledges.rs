//! Pieces of objects that stay marked over checkpoints, without I/O.

use super::sector::Record;
use super::table::GRANULE;
use std::collections::BTreeMap;
use weir_types::ObjectId;

/// The most marks of one pledge. Beyond it one mark covers everything between its first and last
/// piece.
const MAX_MARKS: usize = 4;

/// The existing pledges, by number.
#[derive(Debug, Default)]
pub(super) struct Pledges {
    living: BTreeMap<u64, Pledged>,
    next: u64,
    /// Number of marks of all pledges together.
    marks: usize,
}

#[derive(Debug)]
struct Pledged {
    id: ObjectId,
    /// Ranges of granules.
    ranges: Vec<(u64, u64)>,
    /// The era in which the ranges were marked.
    era: u64,
}

impl Pledges {
    /// Adds a pledge of pieces `(offset, length)` of an object of length `len`. Returns `None` if
    /// there would be more than `limit` marks.
    pub(super) fn add(
        &mut self,
        id: ObjectId,
        pieces: &[(u64, u64)],
        len: u64,
        era: u64,
        limit: usize,
    ) -> Option<u64> {
        let ranges = granules(pieces, len);
        if self.marks + ranges.len() > limit {
            return None;
        }
        self.marks += ranges.len();
        self.next += 1;
        self.living.insert(self.next, Pledged { id, ranges, era });
        Some(self.next)
    }

    pub(super) fn remove(&mut self, number: u64) {
        if let Some(pledged) = self.living.remove(&number) {
            self.marks -= pledged.ranges.len();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.living.is_empty()
    }

    /// Marks of pledges that were last marked before this era.
    pub(super) fn since_before(&self, era: u64) -> Vec<Record> {
        let before = self.living.values().filter(|pledged| pledged.era < era);
        let marks = before.flat_map(|Pledged { id, ranges, .. }| {
            ranges.iter().map(|&(first, end)| Record::Range { id: *id, first, end })
        });
        let mut marks: Vec<Record> = marks.collect();
        marks.sort_unstable();
        marks.dedup();
        marks
    }
}

/// The ranges of granules of pieces, in ascending order. If the pieces extend the object, the last
/// range has no end.
fn granules(pieces: &[(u64, u64)], len: u64) -> Vec<(u64, u64)> {
    let of_piece = |&(start, bytes): &(u64, u64)| {
        let end = start + bytes;
        (start / GRANULE, if end > len { u64::MAX } else { end.div_ceil(GRANULE) })
    };
    let mut all: Vec<_> = pieces.iter().filter(|piece| piece.1 > 0).map(of_piece).collect();
    all.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (first, end) in all {
        match ranges.last_mut() {
            Some(last) if first <= last.1 => last.1 = last.1.max(end),
            _ => ranges.push((first, end)),
        }
    }
    match (ranges.first(), ranges.last()) {
        (Some(&(first, _)), Some(&(_, end))) if ranges.len() > MAX_MARKS => vec![(first, end)],
        _ => ranges,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex};

    const ID: ObjectId = ObjectId {
        file: FileId(1),
        segment: SegmentIndex(0),
        column: ColumnIndex(0),
        copy: CopyIndex(0),
    };

    #[test]
    fn pieces_become_few_ranges_of_granules() {
        let g = GRANULE;
        assert_eq!(granules(&[(g, 1), (0, 1), (5 * g, g + 1)], 10 * g), [(0, 2), (5, 7)]);
        assert_eq!(granules(&[(g, 1), (0, 0)], g), [(1, u64::MAX)], "it grows");
        let many: Vec<_> = (0..9).map(|i| (2 * i * g, 1)).collect();
        assert_eq!(granules(&many, 100 * g), [(0, 17)]);
    }

    #[test]
    fn only_what_lives_and_is_since_before_is_marked_anew() {
        let mut pledges = Pledges::default();
        let first = pledges.add(ID, &[(0, 1)], 10, 1, 2).unwrap();
        pledges.add(ID, &[(0, 1)], 10, 2, 2).unwrap();
        assert_eq!(pledges.add(ID, &[(0, 1)], 10, 2, 2), None, "too many");
        let mark = Record::Range { id: ID, first: 0, end: 1 };
        assert_eq!(pledges.since_before(2), [mark]);
        assert_eq!(pledges.since_before(3), [mark]);
        pledges.remove(first);
        assert_eq!(pledges.since_before(2), []);
        pledges.remove(first);
        assert!(!pledges.is_empty());
    }
}
