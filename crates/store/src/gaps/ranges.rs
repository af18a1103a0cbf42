//! A bounded set of byte ranges. When it is full, an insertion may add more than was asked, never
//! less.

use std::ops::Range;

/// The most ranges in one set. Beyond it the two ranges with the smallest hole between them are
/// merged.
const MAX_RANGES: usize = 64;

/// A set of bytes of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Sorted, disjoint, not empty, never touching each other.
    ranges: Vec<Range<u64>>,
}

impl RangeSet {
    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().cloned()
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether the set contains all of a range.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.ranges.iter().any(|r| r.start <= range.start && range.end <= r.end)
    }

    /// Whether the set contains any byte of a range.
    pub fn touches(&self, range: &Range<u64>) -> bool {
        self.ranges.iter().any(|r| r.start.max(range.start) < r.end.min(range.end))
    }

    /// Inserts a range. A full set may grow by more.
    pub fn insert(&mut self, range: Range<u64>) {
        self.merge(range);
        if self.ranges.len() > MAX_RANGES {
            self.coarsen();
        }
    }

    /// Inserts a range exactly, or not at all if the set is full.
    pub fn insert_if_room(&mut self, range: Range<u64>) {
        let before = self.ranges.clone();
        self.merge(range);
        if self.ranges.len() > MAX_RANGES {
            self.ranges = before;
        }
    }

    fn merge(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.ranges.retain(|r| {
            let touches = r.start <= range.end && range.start <= r.end;
            if touches {
                range = range.start.min(r.start)..range.end.max(r.end);
            }
            !touches
        });
        let at = self.ranges.partition_point(|r| r.start < range.start);
        self.ranges.insert(at, range);
    }

    /// Removes a range exactly, if the set has space for the ranges that remain.
    pub fn remove(&mut self, range: &Range<u64>) {
        let left = self.without(range);
        if left.len() <= MAX_RANGES {
            self.ranges = left;
        }
    }

    /// Removes a range. A full set may shrink by more.
    pub fn forget(&mut self, range: &Range<u64>) {
        self.ranges = self.without(range);
        self.ranges.truncate(MAX_RANGES);
    }

    fn without(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut left = Vec::with_capacity(self.ranges.len() + 1);
        for r in &self.ranges {
            let parts = [r.start..r.end.min(range.start), r.start.max(range.end)..r.end];
            let apart = range.is_empty() || r.end <= range.start || range.end <= r.start;
            match apart {
                true => left.push(r.clone()),
                false => left.extend(parts.into_iter().filter(|p| p.start < p.end)),
            }
        }
        left
    }

    fn coarsen(&mut self) {
        let hole = |i: &usize| self.ranges[i + 1].start - self.ranges[*i].end;
        let Some(at) = (0..self.ranges.len() - 1).min_by_key(hole) else { return };
        let next = self.ranges.remove(at + 1);
        self.ranges[at].end = next.end;
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range is meant")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_that_was_put_in_is_lost(
            steps in prop::collection::vec((any::<bool>(), 0u64..600, 0u64..40), 1..300)
        ) {
            let mut set = RangeSet::default();
            let mut model = std::collections::BTreeSet::new();
            for (insert, start, len) in steps {
                let range = start..start + len;
                if insert {
                    set.insert(range.clone());
                    model.extend(range.clone());
                    prop_assert!(set.covers(&range));
                } else {
                    set.remove(&range);
                    range.for_each(|b| { model.remove(&b); });
                }
                for byte in &model {
                    prop_assert!(set.covers(&(*byte..byte + 1)), "{byte}");
                }
                prop_assert!(set.len() <= MAX_RANGES);
                let ranges: Vec<_> = set.iter().collect();
                prop_assert!(ranges.windows(2).all(|w| w[0].end < w[1].start));
            }
        }
    }

    proptest! {
        #[test]
        fn of_what_must_not_be_more_there_is_never_more(
            steps in prop::collection::vec((any::<bool>(), 0u64..600, 0u64..40), 1..300)
        ) {
            let mut set = RangeSet::default();
            let mut model = std::collections::BTreeSet::new();
            for (insert, start, len) in steps {
                let range = start..start + len;
                if insert {
                    set.insert_if_room(range.clone());
                    model.extend(range);
                } else {
                    set.forget(&range);
                    range.for_each(|b| { model.remove(&b); });
                }
                for byte in 0..640 {
                    prop_assert!(!set.covers(&(byte..byte + 1)) || model.contains(&byte), "{byte}");
                }
                prop_assert!(set.len() <= MAX_RANGES);
            }
        }
    }

    #[test]
    fn few_ranges_are_kept_exactly() {
        let mut set = RangeSet::default();
        set.insert(10..20);
        set.insert(30..40);
        set.remove(&(15..35));
        assert_eq!(set.iter().collect::<Vec<_>>(), [10..15, 35..40]);
        set.insert(15..35);
        assert_eq!(set.iter().collect::<Vec<_>>(), [10..40]);
        set.remove(&(0..100));
        assert!(set.is_empty());
    }
}
