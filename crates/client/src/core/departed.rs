//! Files that were closed while answers to opens were on their way: pure.
//!
//! Who writes to a file and closes it takes along what it knew of the size. The
//! answer to an open that the server gave before that, and that comes after it, is out
//! of date, and nobody is left to correct it: an append would go where the other one
//! went.
//!
//! Bounded by the opens that a client has under way at a time (a mount: its threads)
//! and the files that are closed meanwhile, of which each was open.

use std::collections::BTreeMap;
use weir_types::FileId;

/// See the top of the file.
#[derive(Debug, Default)]
pub struct Departed {
    /// Opens whose answers are not dealt with.
    under_way: usize,
    /// The newest change that was known of a file when it was closed.
    changes: BTreeMap<FileId, u64>,
}

impl Departed {
    /// An open is going to be asked for.
    pub fn begin(&mut self) {
        self.under_way += 1;
    }

    /// Its answer has been dealt with.
    pub fn end(&mut self) {
        self.under_way -= 1;
        if self.under_way == 0 {
            *self = Self::default();
        }
    }

    /// A file was closed; this change of it was the newest known.
    pub fn left(&mut self, file: FileId, change: u64) {
        if self.under_way == 0 {
            return;
        }
        let known = self.changes.entry(file).or_default();
        *known = change.max(*known);
    }

    /// Whether the answer to an open that is under way may be from before a file was
    /// closed.
    pub fn is_newer(&self, file: FileId, change: u64) -> bool {
        self.changes.get(&file).is_some_and(|known| *known > change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(7);

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
