//! The gap log in memory, without I/O. The table holds durable records only.

use super::record::Record;
use super::{Gap, PART_BYTES, RangeSet};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::Range;
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{CopyIndex, ObjectId, TargetId};

/// The range of all file ids.
pub(super) const ALL_FILES: Range<u64> = 0..u64::MAX;

type Objects = BTreeMap<ObjectId, (CopyIndex, RangeSet)>;

/// Number of parts in a set. A range that is open to the end of the object counts as one part,
/// because the object's end is not known here.
pub(super) fn parts_in(set: &RangeSet) -> u64 {
    let of = |range: Range<u64>| match range.end < MAX_FILE_BYTES {
        true => (range.end - range.start).div_ceil(PART_BYTES),
        false => 1,
    };
    set.iter().map(of).sum()
}

/// All gaps.
#[derive(Debug, Default)]
pub(super) struct Table {
    behind: BTreeMap<TargetId, Objects>,
    /// Files whose gaps are unknown.
    lost: RangeSet,
    /// The run of the machine in which the log was last written.
    run: Option<u128>,
    objects: usize,
    ranges: usize,
}

impl Table {
    pub(super) fn apply(&mut self, record: &Record) {
        match record {
            Record::Note { object, behind, copy, bytes } => {
                self.change((*behind, *object, *copy), |set| set.insert(bytes.clone()));
            }
            Record::Clear { object, behind, copy, bytes } => {
                self.change((*behind, *object, *copy), |set| set.remove(bytes));
            }
            Record::Lost { files } => self.lost.insert(files.clone()),
            Record::Found => self.lost = RangeSet::default(),
            Record::Run { id } => self.run = Some(*id),
        }
    }

    fn change(
        &mut self,
        (behind, object, copy): (TargetId, ObjectId, CopyIndex),
        change: impl FnOnce(&mut RangeSet),
    ) {
        let objects = self.behind.entry(behind).or_default();
        let before = objects.len();
        let (_, set) = objects.entry(object).or_insert_with(|| (copy, RangeSet::default()));
        self.ranges -= set.len();
        change(set);
        self.ranges += set.len();
        if set.is_empty() {
            objects.remove(&object);
        }
        self.objects = self.objects + objects.len() - before;
        if objects.is_empty() {
            self.behind.remove(&behind);
        }
    }

    /// Records that rebuild this table.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let run = self.run.map(|id| Record::Run { id });
        let lost = self.lost.iter().map(|files| Record::Lost { files });
        let gaps = self.behind.iter().flat_map(|(&behind, objects)| {
            objects.iter().flat_map(move |(&object, &(copy, ref set))| {
                set.iter().map(move |bytes| Record::Note { object, behind, copy, bytes })
            })
        });
        run.into_iter().chain(lost).chain(gaps)
    }

    /// Number of pairs of an object and a target that lacks some of it.
    pub(super) fn objects(&self) -> usize {
        self.objects
    }

    /// Number of ranges in all gaps.
    pub(super) fn ranges(&self) -> usize {
        self.ranges
    }

    /// Whether there are no gaps.
    pub(super) fn is_empty(&self) -> bool {
        self.behind.is_empty() && self.lost.is_empty()
    }

    pub(super) fn run(&self) -> Option<u128> {
        self.run
    }

    pub(super) fn lost(&self) -> &RangeSet {
        &self.lost
    }

    pub(super) fn get(&self, behind: TargetId, object: ObjectId) -> Option<&(CopyIndex, RangeSet)> {
        self.behind.get(&behind)?.get(&object)
    }

    /// Targets that lack bytes of an object, each with the index of its copy.
    pub(super) fn behind(&self, object: ObjectId) -> Vec<(TargetId, CopyIndex)> {
        let of_it = |objects: &Objects| objects.get(&object).map(|(copy, _)| *copy);
        let found = self.behind.iter().filter_map(|(t, objects)| of_it(objects).map(|c| (*t, c)));
        found.collect()
    }

    pub(super) fn counts(&self) -> Vec<(TargetId, u64)> {
        self.behind.iter().map(|(target, objects)| (*target, objects.len() as u64)).collect()
    }

    /// For each target that lacks something, the sum of `parts` over its objects. Targets with a
    /// sum of zero are left out.
    pub(super) fn sum(
        &self,
        parts: impl Fn(TargetId, ObjectId, &RangeSet) -> u64,
    ) -> Vec<(TargetId, u64)> {
        let of = |(target, objects): (&TargetId, &Objects)| {
            let all = objects.iter().map(|(object, (_, set))| parts(*target, *object, set));
            (*target, all.sum())
        };
        self.behind.iter().map(of).filter(|(_, sum)| *sum > 0).collect()
    }

    pub(super) fn next(&self, behind: TargetId, after: Option<ObjectId>) -> Option<Gap> {
        let objects = self.behind.get(&behind)?;
        let from = after.map_or(Unbounded, Excluded);
        let (object, (copy, bytes)) = objects.range((from, Unbounded)).next()?;
        Some(Gap { object: *object, copy: *copy, bytes: bytes.clone() })
    }
}
