//! Files that were closed while answers with attributes were under way. Pure.
//!
//! When a writer closes a file, the client drops what it knew of the file's size. An answer that the
//! server sent before it was told that size, and that arrives after the close, has an old size, and
//! nothing is left to correct it: an append would overwrite the earlier one, and a reader would find
//! less than was written.
//!
//! Bounded by the questions of a client under way (in a mount: its threads) and the files that are
//! closed while the oldest of them is, each of which was open.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_types::FileId;

/// The closed files; see the top of the file.
#[derive(Debug, Default)]
pub struct Departed {
    /// Numbers of questions and closes, in their order.
    last: u64,
    /// Questions whose answers are not handled.
    under_way: BTreeSet<u64>,
    /// The newest change known of each file when it was closed, and the number of the last close.
    changes: BTreeMap<FileId, (u64, u64)>,
    closes: VecDeque<(u64, FileId)>,
}

impl Departed {
    /// Begins a question, before it is sent. Returns its number.
    pub fn begin(&mut self) -> u64 {
        self.last += 1;
        self.under_way.insert(self.last);
        self.last
    }

    /// Ends a question, after its answer was handled.
    pub fn end(&mut self, number: u64) {
        self.under_way.remove(&number);
        let oldest = self.under_way.first().copied();
        while let Some(&(at, file)) = self.closes.front()
            && oldest.is_none_or(|oldest| at < oldest)
        {
            self.closes.pop_front();
            if self.changes.get(&file).is_some_and(|(_, last)| *last == at) {
                self.changes.remove(&file);
            }
        }
    }

    /// Records the close of a file and its newest known change.
    pub fn left(&mut self, file: FileId, change: u64) {
        if self.under_way.is_empty() {
            return;
        }
        self.last += 1;
        let known = self.changes.entry(file).or_default();
        *known = (change.max(known.0), self.last);
        self.closes.push_back((self.last, file));
    }

    /// Whether an answer under way may be older than the close of the file.
    pub fn is_newer(&self, file: FileId, change: u64) -> bool {
        self.changes.get(&file).is_some_and(|(known, _)| *known > change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(7);

    #[test]
    fn what_was_closed_while_a_question_was_under_way_is_remembered_until_that_is_over() {
        let mut departed = Departed::default();
        departed.left(FILE, 9);
        let first = departed.begin();
        assert!(!departed.is_newer(FILE, 3), "closed before it was asked");
        departed.left(FILE, 5);
        departed.left(FILE, 4);
        assert!(departed.is_newer(FILE, 4) && !departed.is_newer(FILE, 5));
        assert!(!departed.is_newer(FileId(8), 0));
        let second = departed.begin();
        departed.end(second);
        assert!(departed.is_newer(FILE, 4), "the other one is under way");
        departed.end(first);
        departed.begin();
        assert!(!departed.is_newer(FILE, 4));
    }

    #[test]
    fn closes_from_before_all_questions_under_way_are_forgotten_though_there_is_always_one() {
        let mut departed = Departed::default();
        let mut before = departed.begin();
        for file in 0..1000 {
            departed.left(FileId(file), 5);
            let next = departed.begin();
            departed.left(FILE, 5);
            departed.end(before);
            before = next;
            assert!(departed.is_newer(FILE, 4), "closed after the question began");
            assert!(departed.changes.len() <= 2 && departed.closes.len() <= 2);
        }
    }
}
