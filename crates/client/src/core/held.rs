//! The leased ranges of a file, with their modes. Ranges do not overlap, and two that touch differ
//! in mode.

use std::collections::BTreeMap;
use weir_wire::lease::LeaseMode;

/// The leased ranges of one file: first byte, mapped to the first byte after the range and its
/// mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    ranges: BTreeMap<u64, (u64, LeaseMode)>,
}

impl Held {
    /// Whether nothing is leased.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// All ranges, ascending.
    pub fn list(&self) -> impl Iterator<Item = (u64, u64, LeaseMode)> + '_ {
        self.ranges.iter().map(|(start, (end, mode))| (*start, *end, *mode))
    }

    /// Adds a lease. Ranges with a write lease keep it.
    pub fn add(&mut self, start: u64, end: u64, mode: LeaseMode) {
        self.change(start, end, |had| Some(had.map_or(mode, |had| had.max(mode))));
    }

    /// Gives up a lease: a recalled write lease loses all rights, a recalled read lease only the
    /// right to write.
    pub fn give_up(&mut self, start: u64, end: u64, mode: LeaseMode) {
        self.change(start, end, |had| match mode {
            LeaseMode::Write => None,
            LeaseMode::Read => had.map(|_| LeaseMode::Read),
        });
    }

    /// Removes all leases.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// End of the leases from `start` on that allow `mode`, without a gap; `start` if there is
    /// none.
    pub fn reach(&self, start: u64, mode: LeaseMode) -> u64 {
        let first = self.ranges.range(..=start).next_back().map_or(start, |(first, _)| *first);
        let mut reach = start;
        for (first, (end, held)) in self.ranges.range(first..).filter(|(_, (end, _))| *end > start)
        {
            if *first > reach || *held < mode {
                break;
            }
            reach = *end;
        }
        reach
    }

    /// The smallest range that covers all missing bytes of a range.
    pub fn missing(&self, start: u64, end: u64, mode: LeaseMode) -> Option<(u64, u64)> {
        let from = self.reach(start, mode);
        if from >= end {
            return None;
        }
        let mut to = end;
        for (first, (last, held)) in self.ranges.range(from..end).rev() {
            if *last < to || *held < mode {
                break;
            }
            to = *first;
        }
        Some((from, to))
    }

    fn change(
        &mut self,
        start: u64,
        end: u64,
        of: impl Fn(Option<LeaseMode>) -> Option<LeaseMode>,
    ) {
        if start >= end {
            return;
        }
        self.cut(start);
        self.cut(end);
        let inside: Vec<_> =
            self.ranges.range(start..end).map(|(s, (e, m))| (*s, *e, *m)).collect();
        let mut at = start;
        for (first, last, mode) in inside {
            self.put(at, first, of(None));
            self.put(first, last, of(Some(mode)));
            at = last;
        }
        self.put(at, end, of(None));
        self.join(start, end);
    }

    fn put(&mut self, start: u64, end: u64, mode: Option<LeaseMode>) {
        if start >= end {
            return;
        }
        match mode {
            Some(mode) => self.ranges.insert(start, (end, mode)),
            None => self.ranges.remove(&start),
        };
    }

    /// Splits the range that contains `at`.
    fn cut(&mut self, at: u64) {
        if let Some((_, (end, mode))) = self.ranges.range_mut(..at).next_back()
            && *end > at
        {
            let tail = (std::mem::replace(end, at), *mode);
            self.ranges.insert(at, tail);
        }
    }

    /// Merges touching ranges of equal mode in and around a range.
    fn join(&mut self, start: u64, end: u64) {
        let first = self.ranges.range(..start).next_back().map_or(start, |(s, _)| *s);
        let near: Vec<_> = self.ranges.range(first..=end).map(|(s, (e, m))| (*s, *e, *m)).collect();
        let Some(mut last) = near.first().copied() else { return };
        for (s, e, m) in near.into_iter().skip(1) {
            if last.1 == s && last.2 == m {
                self.ranges.remove(&s);
                last.1 = e;
                self.ranges.insert(last.0, (e, m));
            } else {
                last = (s, e, m);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_wire::lease::LeaseMode::{Read, Write};

    #[derive(Clone, Debug)]
    enum Step {
        Add(u64, u64, LeaseMode),
        GiveUp(u64, u64, LeaseMode),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let mode = || prop_oneof![Just(Read), Just(Write)];
        let step = prop_oneof![
            (0..40u64, 0..40u64, mode()).prop_map(|(a, b, m)| Step::Add(a.min(b), a.max(b), m)),
            (0..40u64, 0..40u64, mode()).prop_map(|(a, b, m)| Step::GiveUp(a.min(b), a.max(b), m)),
        ];
        proptest::collection::vec(step, 0..40)
    }

    proptest! {
        /// Against a list of one mode for each byte.
        #[test]
        fn what_is_held_is_what_came_and_was_not_given_up(steps in steps(), from in 0..40u64, to in 0..40u64) {
            let mut held = Held::default();
            let mut bytes = [None::<LeaseMode>; 40];
            for step in steps {
                match step {
                    Step::Add(s, e, m) => {
                        held.add(s, e, m);
                        for b in &mut bytes[s as usize..e as usize] {
                            *b = (*b).max(Some(m));
                        }
                    }
                    Step::GiveUp(s, e, m) => {
                        held.give_up(s, e, m);
                        for b in &mut bytes[s as usize..e as usize] {
                            *b = if m == Write { None } else { b.map(|_| Read) };
                        }
                    }
                }
            }
            let list: Vec<_> = held.list().collect();
            prop_assert!(list.windows(2).all(|w| w[0].1 < w[1].0 || (w[0].1 == w[1].0 && w[0].2 != w[1].2)));
            let mut shown = [None; 40];
            for (s, e, m) in list {
                shown[s as usize..e as usize].fill(Some(m));
            }
            prop_assert_eq!(shown, bytes);
            for mode in [Read, Write] {
                let lacks = |at: u64| bytes[at as usize] < Some(mode);
                let reach = (from..40).find(|at| lacks(*at)).unwrap_or(40);
                prop_assert_eq!(held.reach(from, mode), reach);
                let first = (from..to).find(|at| lacks(*at));
                let last = (from..to).rev().find(|at| lacks(*at));
                prop_assert_eq!(held.missing(from, to.max(from), mode), first.zip(last.map(|l| l + 1)));
            }
        }
    }
}
