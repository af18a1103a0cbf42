//! Which targets were given copies of one column together. When a target is lost those that share
//! columns with it make its copies anew: the more evenly these are spread over all others, the sooner that
//! is done (RAID and file systems call it declustering). Chance alone leaves 1.3/sqrt(N)
//! between the furthest of five and the mean, for N copies on each.

use std::collections::BTreeMap;
use weir_types::{Column, TargetId};

/// Of two targets that have been put together so often, each counts half from then on. It bounds
/// how many pairs are remembered, too.
const MAX_COUNTED: u64 = 1 << 16;

/// See the top of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    counts: BTreeMap<(TargetId, TargetId), u64>,
    sum: u64,
}

impl Pairs {
    /// A column has been given these targets.
    pub fn given(&mut self, column: &Column) {
        let targets: Vec<TargetId> = column.copies().map(|(_, target)| target).collect();
        for (at, one) in targets.iter().enumerate() {
            for other in &targets[at + 1..] {
                *self.counts.entry(pair(*one, *other)).or_default() += 1;
                self.sum += 1;
            }
        }
        if self.sum > MAX_COUNTED {
            self.counts.values_mut().for_each(|count| *count /= 2);
            self.counts.retain(|_, count| *count > 0);
            self.sum = self.counts.values().sum();
        }
    }

    /// How often two were given one, of late.
    pub fn together(&self, one: TargetId, other: TargetId) -> u64 {
        self.counts.get(&pair(one, other)).copied().unwrap_or(0)
    }
}

/// What was given before, and what is being given now.
pub(super) struct Together<'a> {
    before: &'a Pairs,
    now: Pairs,
}

impl<'a> Together<'a> {
    pub(super) fn new(before: &'a Pairs) -> Self {
        Self { before, now: Pairs::default() }
    }

    pub(super) fn given(&mut self, column: &Column) {
        self.now.given(column);
    }

    /// How often one target was given a column with any of these.
    pub(super) fn of(&self, target: TargetId, others: impl Iterator<Item = TargetId>) -> u64 {
        let both = |other| self.before.together(target, other) + self.now.together(target, other);
        others.map(both).sum()
    }
}

fn pair(one: TargetId, other: TargetId) -> (TargetId, TargetId) {
    (one.min(other), one.max(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(targets: &[u32]) -> Column {
        Column { targets: targets.iter().map(|target| TargetId(*target)).collect() }
    }

    #[test]
    fn all_pairs_of_a_column_count_in_either_order() {
        let (mut pairs, [one, two, three]) = (Pairs::default(), [1, 2, 3].map(TargetId));
        pairs.given(&column(&[2, 1, 3]));
        pairs.given(&column(&[1, 2]));
        pairs.given(&column(&[1]));
        assert_eq!((pairs.together(one, two), pairs.together(two, one)), (2, 2));
        assert_eq!((pairs.together(three, one), pairs.together(three, two)), (1, 1));
        assert_eq!(pairs.together(one, one), 0);
    }

    #[test]
    fn what_was_long_ago_counts_less_and_is_forgotten() {
        let mut pairs = Pairs::default();
        pairs.given(&column(&[8, 9]));
        (0..2 * MAX_COUNTED).for_each(|_| pairs.given(&column(&[1, 2])));
        assert_eq!(pairs.together(TargetId(8), TargetId(9)), 0);
        assert!(pairs.together(TargetId(1), TargetId(2)) <= MAX_COUNTED);
        assert_eq!(pairs.counts.len(), 1);
    }
}
