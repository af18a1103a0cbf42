//! Counts how often two targets hold copies of the same column. When a target is lost, the targets
//! that share columns with it rebuild its copies. The more evenly these are spread over all others,
//! the sooner the rebuild ends (this is called declustering). Random choice alone, with N copies on
//! each target, leaves a difference of 1.3/sqrt(N) between the mean and the furthest of five.

use std::collections::BTreeMap;
use weir_types::{Column, TargetId};

/// When the sum of all counts exceeds this, every count is halved, so that recent columns weigh
/// more. This also bounds the number of pairs in memory.
const MAX_COUNTED: u64 = 1 << 16;

/// Counts of how often two targets were given copies of the same column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    counts: BTreeMap<(TargetId, TargetId), u64>,
    sum: u64,
}

impl Pairs {
    /// Counts a column with these targets.
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

    /// How often two targets were given a column, with recent columns weighted more.
    pub fn together(&self, one: TargetId, other: TargetId) -> u64 {
        self.counts.get(&pair(one, other)).copied().unwrap_or(0)
    }
}

/// The counts so far, and the columns of the layout under construction.
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

    /// How often a target was given a column together with any of the others.
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
