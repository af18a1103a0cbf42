//! Ranges of a file whose bytes data servers have all confirmed. They are reported with the size,
//! so that the metadata server knows where the file has no holes.

use std::collections::{BTreeMap, BTreeSet};
use weir_types::Generation;
use weir_types::limits::MAX_WRITTEN_RANGES;

/// The most remembered ranges. Ranges with the lowest offsets are dropped first: they are the most
/// likely to lie where the file had no holes anyway.
const MAX_RANGES: usize = 256;

/// Ranges that this client has written under one generation of the file. A later truncation may
/// have cut off any of them.
#[derive(Debug, Default)]
pub struct Filled {
    generation: Generation,
    /// First byte of each range, and the first byte after it. Ranges neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
    /// First bytes of the ranges that were not reported in their present form.
    news: BTreeSet<u64>,
}

impl Filled {
    /// Adds a range whose bytes were all written under this generation and confirmed.
    pub fn note(&mut self, generation: Generation, (start, end): (u64, u64)) {
        if generation < self.generation || start >= end {
            return;
        }
        if generation > self.generation {
            *self = Self { generation, ..Self::default() };
        }
        let touching = |(first, after): (&u64, &u64)| (*after >= start).then_some((*first, *after));
        let (mut from, mut to) = (start, end);
        while let Some((first, after)) = self.ranges.range(..=to).next_back().and_then(touching) {
            if first <= start && end <= after {
                return;
            }
            self.ranges.remove(&first);
            self.news.remove(&first);
            (from, to) = (from.min(first), to.max(after));
        }
        self.ranges.insert(from, to);
        self.news.insert(from);
        if self.ranges.len() > MAX_RANGES {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((first, _)) = self.ranges.pop_first() {
            self.news.remove(&first);
        }
    }

    /// Records that the metadata server knows of no holes before this byte. (The range that ends
    /// there is reported again, so that the server knows of it even if it forgets by a power cut.)
    pub fn is_full(&mut self, before: u64) {
        while self.ranges.first_key_value().is_some_and(|(_, after)| *after < before) {
            self.forget_first();
        }
    }

    /// Whether there is something to report.
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// The ranges to report of writes under this generation, as many as one request holds.
    /// Unreported ranges come first.
    pub fn report(&self, generation: Generation) -> Vec<(u64, u64)> {
        if generation != self.generation {
            return Vec::new();
        }
        let new = self.news.iter().take(MAX_WRITTEN_RANGES).copied();
        let known = self.ranges.keys().filter(|start| !self.news.contains(start)).copied();
        let starts: BTreeSet<u64> = new.chain(known).take(MAX_WRITTEN_RANGES).collect();
        let range = |start: u64| self.ranges.get(&start).map(|end| (start, *end));
        starts.into_iter().filter_map(range).collect()
    }

    /// Records that ranges were reported. Returns whether there are more. Ranges of another
    /// generation are not reported.
    pub fn reported(&mut self, report: &[(u64, u64)]) -> bool {
        match report {
            [] => self.news.clear(),
            report => self.news.retain(|start| !report.iter().any(|(first, _)| first == start)),
        }
        self.has_news()
    }

    /// Forgets everything, because the file was emptied.
    pub fn forget(&mut self) {
        self.ranges.clear();
        self.news.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const G: Generation = Generation(3);

    #[test]
    fn ranges_that_touch_are_one_and_a_later_generation_begins_anew() {
        let mut filled = Filled::default();
        for range in [(10, 20), (30, 40), (0, 5), (20, 30)] {
            filled.note(G, range);
        }
        assert_eq!(filled.report(G), [(0, 5), (10, 40)]);
        assert!(!filled.reported(&filled.report(G)));
        filled.note(G, (12, 40));
        assert!(!filled.has_news(), "nothing new");
        filled.note(Generation(2), (5, 10));
        assert_eq!(filled.report(G), [(0, 5), (10, 40)], "it may have been cut off since");
        assert!(filled.report(Generation(4)).is_empty());
        filled.note(Generation(4), (7, 8));
        assert!(filled.has_news() && filled.report(G).is_empty());
        assert_eq!(filled.report(Generation(4)), [(7, 8)]);
    }

    #[test]
    fn of_very_many_ranges_the_last_are_remembered() {
        let mut filled = Filled::default();
        (0..10 * MAX_RANGES as u64).for_each(|n| filled.note(G, (10 * n, 10 * n + 5)));
        assert_eq!(filled.ranges.len(), MAX_RANGES);
        assert_eq!(filled.report(G).len(), MAX_WRITTEN_RANGES);
        let first = 10 * 9 * MAX_RANGES as u64;
        assert_eq!(filled.report(G)[..2], [(first, first + 5), (first + 10, first + 15)]);
    }

    #[test]
    fn what_is_more_than_a_request_holds_is_reported_in_the_next_one_and_once() {
        let mut filled = Filled::default();
        let all: Vec<_> =
            (0..3 * MAX_WRITTEN_RANGES as u64).map(|n| (10 * n, 10 * n + 5)).collect();
        all.iter().for_each(|range| filled.note(G, *range));
        let mut reported = Vec::new();
        loop {
            let report = filled.report(G);
            reported.extend(report.clone());
            if !filled.reported(&report) {
                break;
            }
        }
        assert_eq!(reported, all);
        // What has grown since, and with it what was first.
        filled.note(G, (305, 307));
        let report = filled.report(G);
        assert!(
            report.contains(&(300, 307)) && report.starts_with(&all[..3]) && report.is_sorted()
        );
        assert!(!filled.reported(&report));
        filled.note(G, (317, 318));
        assert!(!filled.reported(&filled.report(Generation(9))) && !filled.has_news());
    }

    #[test]
    fn what_was_full_before_is_not_reported_in_the_place_of_what_is_new() {
        let mut filled = Filled::default();
        let overwritten = (0..2 * MAX_RANGES as u64).map(|n| (100 * n, 100 * n + 9));
        overwritten.for_each(|range| filled.note(G, range));
        let size = 100 * 2 * MAX_RANGES as u64;
        filled.note(G, (size, size + 50));
        filled.is_full(size);
        assert_eq!(filled.report(G), [(size, size + 50)]);
        filled.note(G, (5, 9));
        filled.is_full(size + 50);
        assert_eq!(filled.report(G), [(size, size + 50)], "the one that goes up to the end stays");
    }

    proptest! {
        #[test]
        fn just_what_was_written_is_reported(list in prop::collection::vec((0..60u64, 1..9u64), 0..12)) {
            let (mut filled, mut bytes) = (Filled::default(), [false; 80]);
            for (start, len) in list {
                filled.note(G, (start, start + len));
                bytes[start as usize..(start + len) as usize].fill(true);
            }
            let mut reported = [false; 80];
            let report = filled.report(G);
            prop_assert!(report.windows(2).all(|two| two[0].1 < two[1].0));
            for (start, end) in report {
                reported[start as usize..end as usize].fill(true);
            }
            prop_assert_eq!(reported, bytes);
        }
    }
}
