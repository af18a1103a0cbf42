//! A set of numbers, kept as ranges: the pages that are reserved but hold
//! nothing yet.
//!
//! Invariant: ranges are not empty, do not touch, and `total` is their length.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    ends: BTreeMap<u64, u64>,
    total: u64,
}

impl Ranges {
    /// How many numbers there are.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// How many of `start..end` are in it.
    pub(super) fn count(&self, start: u64, end: u64) -> u64 {
        self.overlapping(start, end)
            .iter()
            .map(|(from, to)| (*to).min(end) - (*from).max(start))
            .sum()
    }

    /// Adds `start..end`.
    pub(super) fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        self.remove(start, end);
        let (mut from, mut to) = (start, end);
        if let Some((&before, &ends)) = self.ends.range(..start).next_back()
            && ends == start
        {
            from = before;
        }
        if let Some(after) = self.ends.remove(&end) {
            to = after;
        }
        self.ends.insert(from, to);
        self.total += end - start;
    }

    /// Takes `start..end` out.
    pub(super) fn remove(&mut self, start: u64, end: u64) {
        for (from, to) in self.overlapping(start, end) {
            self.ends.remove(&from);
            self.total -= to.min(end) - from.max(start);
            if from < start {
                self.ends.insert(from, start);
            }
            if to > end {
                self.ends.insert(end, to);
            }
        }
    }

    fn overlapping(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        if start >= end || self.ends.is_empty() {
            return Vec::new();
        }
        let before = self.ends.range(..start).next_back().filter(|(_, to)| **to > start);
        before
            .into_iter()
            .chain(self.ends.range(start..end))
            .map(|(from, to)| (*from, *to))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_are_a_set() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
        for _ in 0..5_000 {
            let start = rng.u64(0..60);
            let end = start + rng.u64(0..9);
            if rng.bool() {
                ranges.insert(start, end);
                set.extend(start..end);
            } else {
                ranges.remove(start, end);
                set.retain(|n| !(start..end).contains(n));
            }
            assert_eq!(ranges.total(), set.len() as u64);
            let (a, b) = (rng.u64(0..60), rng.u64(0..80));
            assert_eq!(
                ranges.count(a, b),
                set.iter().filter(|n| (a..b).contains(*n)).count() as u64
            );
            let ends: Vec<_> = ranges.ends.iter().collect();
            assert!(ends.windows(2).all(|w| w[0].1 < w[1].0), "ranges that touch are one");
        }
    }
}
