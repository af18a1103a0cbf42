//! The end of a file whose last writes were refused. The file is shortened again, so that the next
//! append leaves no zeros before it. Pure.

use std::ops::Range;

/// The end of a file that is being written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The file's size when no write was under way, or the end of the bytes confirmed since,
    /// whichever is larger.
    kept: u64,
    /// Range of refused bytes since no write was under way. Each of its bytes was refused.
    refused: Option<Range<u64>>,
}

impl Tail {
    /// Begins a write while no other is under way and the file has `size` bytes.
    pub fn begins(&mut self, size: u64) {
        *self = Self { kept: size, refused: None };
    }

    /// Records that bytes up to here are confirmed.
    pub fn confirmed(&mut self, end: u64) {
        self.kept = self.kept.max(end);
    }

    /// Records that servers have refused all of these bytes, and will not apply them later either.
    pub fn refused(&mut self, range: Range<u64>) {
        self.refused = Some(match self.refused.take().filter(|all| all.end > self.kept) {
            None => range,
            Some(all) if range.start <= all.end && all.start <= range.end => {
                all.start.min(range.start)..all.end.max(range.end)
            }
            // Others may have written between the two: both count as written.
            Some(all) => {
                self.kept = self.kept.max(all.end).max(range.end);
                range
            }
        });
    }

    /// Whether anything was refused.
    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Returns what to cut off when no write is under way any more: the new end of the file, and
    /// the refused bytes that may remain. `size` is the present size, `told` the size that other
    /// clients know. `None` if there is nothing to cut off, or if another client has written behind
    /// it.
    pub fn give_back(&mut self, size: u64, told: u64) -> Option<(u64, Range<u64>)> {
        let refused = self.refused.take()?;
        let end = self.kept.max(told);
        (end < size && refused.end == size).then(|| (end, end.max(refused.start)..size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(steps: impl FnOnce(&mut Tail), size: u64, told: u64) -> Option<(u64, Range<u64>)> {
        let mut tail = Tail::default();
        tail.begins(100);
        steps(&mut tail);
        let found = tail.give_back(size, told);
        assert!(!tail.is_refused());
        found
    }

    #[test]
    fn what_was_refused_at_the_end_is_given_back() {
        assert_eq!(after(|tail| tail.refused(100..150), 150, 100), Some((100, 100..150)));
        let two = |tail: &mut Tail| {
            tail.confirmed(130);
            tail.refused(140..150);
            tail.refused(130..140);
        };
        assert_eq!(after(two, 150, 0), Some((130, 130..150)));
        assert_eq!(after(|tail| tail.refused(50..150), 150, 100), Some((100, 100..150)));
        assert_eq!(after(|tail| tail.refused(140..150), 150, 100), Some((100, 140..150)), "a gap");
    }

    #[test]
    fn nothing_is_given_back_that_others_know_of_or_that_was_written() {
        assert_eq!(after(|_| (), 150, 100), None);
        assert_eq!(after(|tail| tail.refused(100..150), 150, 150), None, "others have seen it");
        assert_eq!(after(|tail| tail.refused(100..150), 200, 100), None, "it goes on behind it");
        assert_eq!(after(|tail| tail.refused(20..60), 100, 100), None, "within the file");
        let behind = |tail: &mut Tail| {
            tail.refused(100..150);
            tail.confirmed(160);
        };
        assert_eq!(after(behind, 160, 100), None);
        let apart = |tail: &mut Tail| {
            tail.refused(100..110);
            tail.refused(140..150);
        };
        assert_eq!(after(apart, 150, 100), None, "whose is what lies between?");
        let written_between = |tail: &mut Tail| {
            tail.refused(100..110);
            tail.confirmed(140);
            tail.refused(140..150);
        };
        assert_eq!(after(written_between, 150, 100), Some((140, 140..150)));
    }
}
