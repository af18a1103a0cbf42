//! Directories as they were listed: names in their order. Pure.
//!
//! A listing begins with its first page and goes on with the pages that follow. Any change of a name
//! in its directory ends it.

use std::collections::BTreeMap;
use weir_types::FileId;
use weir_wire::meta::{DirEntry, DirPage};

/// The most entries of all listings. Beyond it all are dropped.
const MAX_ENTRIES: usize = 65_536;

/// The pages of a directory, by the position where each begins.
#[derive(Debug)]
struct Listing {
    /// Where the listing ends, as its first page said.
    last: u64,
    /// Where the next page begins; `None` after the last one.
    next: Option<u64>,
    pages: BTreeMap<u64, DirPage>,
}

/// All listings.
#[derive(Debug, Default)]
pub(super) struct Listings {
    by_dir: BTreeMap<FileId, Listing>,
    entries: usize,
}

impl Listings {
    /// A page of a directory that begins at `cookie`, without attributes. `last` is as in the request.
    pub(super) fn page(&self, dir: FileId, cookie: u64, last: u64) -> Option<&DirPage> {
        let listing = self.by_dir.get(&dir)?;
        let is_of_it = cookie == 0 || last == listing.last;
        listing.pages.get(&cookie).filter(|_| is_of_it)
    }

    /// Records a page: where it begins, and where the next one does (`None`: it is the last one).
    pub(super) fn has_page(
        &mut self,
        dir: FileId,
        (cookie, next): (u64, Option<u64>),
        page: &DirPage,
    ) {
        if cookie == 0 {
            self.drop(dir);
        }
        if self.entries + page.entries.len() > MAX_ENTRIES {
            *self = Self::default();
        }
        let fresh = || Listing { last: page.last, next: Some(0), pages: BTreeMap::new() };
        let listing = match cookie {
            0 => self.by_dir.entry(dir).or_insert_with(fresh),
            _ => match self.by_dir.get_mut(&dir) {
                Some(listing) => listing,
                None => return,
            },
        };
        if (listing.next, listing.last) != (Some(cookie), page.last) {
            return;
        }
        let bare = |entry: &DirEntry| DirEntry { attr: None, layout: None, ..entry.clone() };
        let entries: Vec<DirEntry> = page.entries.iter().map(bare).collect();
        self.entries += entries.len();
        listing.next = next;
        listing.pages.insert(cookie, DirPage { entries, end: page.end, last: page.last });
    }

    /// Forgets the listing of a directory.
    pub(super) fn drop(&mut self, dir: FileId) {
        if let Some(listing) = self.by_dir.remove(&dir) {
            self.entries -= listing.pages.values().map(|page| page.entries.len()).sum::<usize>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::FileKind;

    const DIR: FileId = FileId(2);

    /// A page with one entry for each of these cookies.
    fn page(cookies: &[u64], end: bool, last: u64) -> DirPage {
        let entry = |cookie: &u64| DirEntry {
            name: cookie.to_string().as_bytes().into(),
            file: FileId(100 + cookie),
            kind: FileKind::File,
            cookie: *cookie,
            attr: None,
            layout: None,
        };
        DirPage { entries: cookies.iter().map(entry).collect(), end, last }
    }

    #[test]
    fn pages_that_follow_one_another_are_kept_until_a_name_changes() {
        let mut listings = Listings::default();
        let (first, second) = (page(&[3, 5], false, 9), page(&[9], true, 9));
        listings.has_page(DIR, (5, None), &second);
        assert!(listings.page(DIR, 5, 9).is_none(), "its beginning is not known");
        listings.has_page(DIR, (0, Some(5)), &first);
        listings.has_page(DIR, (7, None), &second);
        listings.has_page(DIR, (5, None), &page(&[9, 11], true, 11));
        assert!(listings.page(DIR, 5, 9).is_none(), "of another listing");
        listings.has_page(DIR, (5, None), &second);
        assert_eq!(listings.page(DIR, 0, 0), Some(&first));
        assert_eq!(listings.page(DIR, 5, 9), Some(&second));
        assert!(listings.page(DIR, 5, 11).is_none(), "who has begun with another one");
        assert!(listings.page(DIR, 3, 9).is_none() && listings.page(FileId(3), 0, 0).is_none());
        listings.drop(DIR);
        assert!(listings.page(DIR, 0, 0).is_none() && listings.entries == 0);
    }

    #[test]
    fn listings_are_bounded() {
        let mut listings = Listings::default();
        let large = page(&(1..=512).collect::<Vec<_>>(), true, 512);
        for dir in 0..2000 {
            listings.has_page(FileId(dir), (0, None), &large);
            listings.has_page(FileId(dir), (0, None), &large);
            assert!(listings.entries <= MAX_ENTRIES);
            assert!(listings.page(FileId(dir), 0, 0).is_some());
        }
        let all = listings.by_dir.values().flat_map(|listing| listing.pages.values());
        assert_eq!(all.map(|page| page.entries.len()).sum::<usize>(), listings.entries);
    }
}
