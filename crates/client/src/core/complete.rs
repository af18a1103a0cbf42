//! Directories of which every name is cached: what is not in the cache of such a directory does not exist.
//!
//! A directory is complete when it was made by this client, or when all pages of a listing were
//! cached. From then on each name that leaves the cache by an event or a change of this client's own
//! is an exception until it is cached again. If names leave the cache for want of room, nothing is
//! complete any more.

use std::collections::{BTreeMap, BTreeSet};
use weir_types::FileId;

/// The most directories of each kind. Beyond it all are dropped.
const MAX_DIRECTORIES: usize = 4096;
/// The most exceptions of a directory. Beyond it the directory is dropped.
const MAX_EXCEPTIONS: usize = 256;

/// Names of a directory that are not known.
type Exceptions = BTreeSet<Vec<u8>>;

#[derive(Debug)]
struct Listing {
    /// Where the next page begins.
    next: u64,
    /// Where the listing ends, as its first page said. It tells listings of one directory apart.
    last: u64,
    exceptions: Exceptions,
}

/// All complete directories.
#[derive(Debug, Default)]
pub(super) struct Complete {
    complete: BTreeMap<FileId, Exceptions>,
    /// Directories of which the first pages were cached.
    listings: BTreeMap<FileId, Listing>,
}

impl Complete {
    /// Whether a name that is not cached does not exist.
    pub(super) fn lacks(&self, dir: FileId, name: &[u8]) -> bool {
        // Those are in no listing.
        let is_plain = !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/');
        let is_short = name.len() <= weir_types::limits::MAX_NAME_BYTES;
        let known = self.complete.get(&dir);
        is_plain && is_short && known.is_some_and(|exceptions| !exceptions.contains(name))
    }

    /// Records an empty directory.
    pub(super) fn is_empty(&mut self, dir: FileId) {
        self.insert(dir, Exceptions::new());
    }

    /// Records a page, that is cached, of a listing that ends at `last`: where it begins, and where
    /// the next one does; `None` for the last one.
    pub(super) fn has_page(&mut self, dir: FileId, (cookie, next): (u64, Option<u64>), last: u64) {
        let listing = match (cookie, self.listings.remove(&dir)) {
            (0, _) => Listing { next: 0, last, exceptions: Exceptions::new() },
            (_, Some(listing)) if (listing.next, listing.last) == (cookie, last) => listing,
            _ => return,
        };
        match next {
            None => self.insert(dir, listing.exceptions),
            Some(next) => {
                if self.listings.len() >= MAX_DIRECTORIES {
                    self.listings.clear();
                }
                self.listings.insert(dir, Listing { next, ..listing });
            }
        }
    }

    /// Records that a name is not cached any more, and may exist.
    pub(super) fn except(&mut self, dir: FileId, name: &[u8]) {
        let of_listing = self.listings.get_mut(&dir).map(|listing| &mut listing.exceptions);
        if of_listing.is_some_and(|exceptions| !add(exceptions, name)) {
            self.listings.remove(&dir);
        }
        if self.complete.get_mut(&dir).is_some_and(|exceptions| !add(exceptions, name)) {
            self.complete.remove(&dir);
        }
    }

    /// Records that a name is cached.
    pub(super) fn is_kept(&mut self, dir: FileId, name: &[u8]) {
        if let Some(listing) = self.listings.get_mut(&dir) {
            listing.exceptions.remove(name);
        }
        if let Some(exceptions) = self.complete.get_mut(&dir) {
            exceptions.remove(name);
        }
    }

    /// Records that names of a directory are not cached any more.
    pub(super) fn drop(&mut self, dir: FileId) {
        self.complete.remove(&dir);
        self.listings.remove(&dir);
    }

    fn insert(&mut self, dir: FileId, exceptions: Exceptions) {
        if self.complete.len() >= MAX_DIRECTORIES {
            self.complete.clear();
        }
        self.complete.insert(dir, exceptions);
    }
}

/// Adds a name. Returns `false` if there are too many.
fn add(exceptions: &mut Exceptions, name: &[u8]) -> bool {
    exceptions.insert(name.to_vec());
    exceptions.len() <= MAX_EXCEPTIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: FileId = FileId(2);

    #[test]
    fn a_listing_is_complete_with_its_last_page_but_for_names_that_left_meanwhile() {
        let mut complete = Complete::default();
        complete.has_page(DIR, (0, Some(5)), 10);
        assert!(!complete.lacks(DIR, b"x"));
        complete.except(DIR, b"x");
        complete.has_page(DIR, (7, None), 10);
        complete.has_page(DIR, (5, None), 10);
        assert!(!complete.lacks(DIR, b"y"), "a page is missing");
        complete.has_page(DIR, (0, Some(5)), 10);
        complete.except(DIR, b"x");
        complete.has_page(DIR, (5, Some(9)), 10);
        complete.has_page(DIR, (9, None), 10);
        assert!(complete.lacks(DIR, b"y") && !complete.lacks(DIR, b"x"));
        complete.is_kept(DIR, b"x");
        assert!(complete.lacks(DIR, b"x"), "who asks looks in the cache first");
        complete.drop(DIR);
        assert!(!complete.lacks(DIR, b"y"));
    }

    #[test]
    fn the_end_of_one_listing_does_not_complete_a_later_one() {
        let mut complete = Complete::default();
        complete.has_page(DIR, (0, Some(512)), 600);
        // Another client makes it, and it is in neither of the pages that follow.
        complete.except(DIR, b"x");
        complete.has_page(DIR, (0, Some(512)), 601);
        complete.has_page(DIR, (512, None), 600);
        assert!(!complete.lacks(DIR, b"x") && !complete.lacks(DIR, b"y"));
    }

    #[test]
    fn names_that_no_listing_has_are_never_lacking() {
        let mut complete = Complete::default();
        complete.is_empty(DIR);
        assert!(complete.lacks(DIR, b"x"));
        for name in [&b""[..], b".", b"..", b"a/b", &[b'x'; 256]] {
            assert!(!complete.lacks(DIR, name));
        }
    }

    #[test]
    fn exceptions_and_directories_are_bounded() {
        let mut complete = Complete::default();
        complete.is_empty(DIR);
        (0..MAX_EXCEPTIONS).for_each(|n| complete.except(DIR, n.to_string().as_bytes()));
        assert!(complete.lacks(DIR, b"x"));
        complete.except(DIR, b"one more");
        assert!(!complete.lacks(DIR, b"x"));
        for n in 0..=MAX_DIRECTORIES as u64 {
            complete.is_empty(FileId(n));
            complete.has_page(FileId(n), (0, Some(1)), 2);
        }
        assert_eq!((complete.complete.len(), complete.listings.len()), (1, 1));
    }
}
