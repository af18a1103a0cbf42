//! Files that were closed while replies to opens were under way. Pure.
//!
//! When a writer closes a file, the client drops what it knew of the file's size. A reply to an
//! open that the server sent before that close, and that arrives after it, has an old size, and
//! nothing is left to correct it: an append would overwrite the earlier one.
//!
//! The same for files that the client itself has cut meanwhile: such a reply has the generation from
//! before, and a write under it is refused as if somebody else had cut the file.
//!
//! Bounded by the opens of a client under way (in a mount: its threads) and the files that are
//! closed or cut meanwhile.

use std::collections::BTreeMap;
use weir_types::{FileId, Generation};

/// The closed files; see the top of the file.
#[derive(Debug, Default)]
pub struct Departed {
    /// Number of opens whose replies are not handled.
    under_way: usize,
    /// The newest change known of each file when it was closed.
    changes: BTreeMap<FileId, u64>,
    /// The generation of each file that was cut.
    cuts: BTreeMap<FileId, Generation>,
}

impl Departed {
    /// Begins an open, before it is requested.
    pub fn begin(&mut self) {
        self.under_way += 1;
    }

    /// Ends an open, after its reply was handled.
    pub fn end(&mut self) {
        self.under_way -= 1;
        if self.under_way == 0 {
            *self = Self::default();
        }
    }

    /// Records the close of a file and its newest known change.
    pub fn left(&mut self, file: FileId, change: u64) {
        if self.under_way == 0 {
            return;
        }
        let known = self.changes.entry(file).or_default();
        *known = change.max(*known);
    }

    /// Records the generation that a cut by this client has given a file.
    pub fn cut(&mut self, file: FileId, generation: Generation) {
        if self.under_way > 0 {
            let known = self.cuts.entry(file).or_insert(generation);
            *known = generation.max(*known);
        }
    }

    /// The generation of the last cut while an open under way may have had its reply.
    pub fn cut_of(&self, file: FileId) -> Option<Generation> {
        self.cuts.get(&file).copied()
    }

    /// Whether a reply to an open under way may be older than the close of the file.
    pub fn is_newer(&self, file: FileId, change: u64) -> bool {
        self.changes.get(&file).is_some_and(|known| *known > change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(7);

    #[test]
    fn what_was_cut_while_an_open_was_under_way_is_remembered_until_that_is_over() {
        let mut departed = Departed::default();
        departed.cut(FILE, Generation(4));
        departed.begin();
        assert_eq!(departed.cut_of(FILE), None, "cut before it was asked");
        departed.cut(FILE, Generation(6));
        departed.cut(FILE, Generation(5));
        assert_eq!(departed.cut_of(FILE), Some(Generation(6)));
        departed.end();
        departed.begin();
        assert_eq!(departed.cut_of(FILE), None);
    }

    #[test]
    fn what_was_closed_while_an_open_was_under_way_is_remembered_until_that_is_over() {
        let mut departed = Departed::default();
        departed.left(FILE, 9);
        departed.begin();
        assert!(!departed.is_newer(FILE, 3), "closed before it was asked");
        departed.left(FILE, 5);
        departed.left(FILE, 4);
        assert!(departed.is_newer(FILE, 4) && !departed.is_newer(FILE, 5));
        assert!(!departed.is_newer(FileId(8), 0));
        departed.begin();
        departed.end();
        assert!(departed.is_newer(FILE, 4), "the other one is under way");
        departed.end();
        departed.begin();
        assert!(!departed.is_newer(FILE, 4));
    }
}
