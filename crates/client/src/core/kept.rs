//! Cached names and attributes, and when they expire. The time is passed in.

use super::complete::Complete;
use super::listings::Listings;
use super::news::{Asked, Found, News, Numbered};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_host::plant::{Bug, planted};
use weir_types::{Attr, FileId};
use weir_wire::lease::{EventKind, HAS_ALSO, KEEP_ATTRIBUTES, KEEP_NAMES};
use weir_wire::meta::{DirPage, ReaddirRequest};

/// The most entries of each kind. The later used half of them stays.
const MAX_ENTRIES: usize = 65_536;

/// The longest access control list that is cached.
const MAX_ACL_BYTES: usize = 1024;

/// A bounded map of two halves: entries that were not used while the newer half filled up are
/// dropped.
#[derive(Debug)]
struct Recent<K, V> {
    young: BTreeMap<K, V>,
    old: BTreeMap<K, V>,
    /// Whether entries were dropped to make room.
    dropped: bool,
}

impl<K: Ord, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { young: BTreeMap::new(), old: BTreeMap::new(), dropped: false }
    }
}

impl<K: Ord + Clone, V: Clone> Recent<K, V> {
    fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let value = self.old.remove(key)?;
        self.insert(key.clone(), value.clone());
        Some(value)
    }

    fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= MAX_ENTRIES / 2 {
            self.dropped |= !self.old.is_empty();
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

/// Key of a name. The names of a directory are consecutive.
type Name = (FileId, Vec<u8>);

/// How long reported allocated space is believed at first: a writer may have reported its writes
/// before they were sent, and may not report again.
pub const DOUBTFUL: Duration = Duration::from_secs(10);

/// The allocated space of a file, and the state of the file at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Allocated {
    state: (u64, u64),
    bytes: u64,
    /// Whether all servers have reported it.
    certain: bool,
}

#[derive(Clone, Debug)]
struct Until<T> {
    value: T,
    /// Time of expiry; `None` if the entry is valid until an event.
    end: Option<Duration>,
}

impl<T> Until<T> {
    fn at(self, now: Duration) -> Option<T> {
        self.end.is_none_or(|end| now < end).then_some(self.value)
    }
}

/// The cache.
#[derive(Debug, Default)]
pub struct Kept {
    /// Events and changes since replies were made.
    pub news: News,
    /// The file of each name; `None` if the name does not exist.
    names: Recent<Name, Until<Option<FileId>>>,
    /// Directories of which all names are cached.
    complete: Complete,
    /// Directories as they were listed.
    listings: Listings,
    attributes: Recent<FileId, Until<Attr>>,
    /// Allocated space of files that may have holes.
    allocated: Recent<FileId, Until<Allocated>>,
    /// Files without security capabilities.
    bare: Recent<FileId, Until<()>>,
    /// Access control lists, or their absence: the kernel asks for them at each step of a path.
    acls: Recent<FileId, Until<Option<Vec<u8>>>>,
    /// Directories whose entries were used since their last event.
    used: Recent<FileId, ()>,
}

impl Kept {
    /// The file of a name: `Some(None)` if the name does not exist, and `None` if that is unknown.
    pub fn name(&mut self, dir: FileId, name: &[u8], now: Duration) -> Option<Option<FileId>> {
        if self.news.is_changing(dir) {
            return None;
        }
        let found = self.names.get(&(dir, name.to_vec()));
        self.make_good();
        let found = match found {
            Some(found) => found.at(now)?,
            None if self.complete.lacks(dir, name) => None,
            None => return None,
        };
        self.used.insert(dir, ());
        Some(found)
    }

    /// A page of a directory, with the attributes of all its entries if they are asked for.
    pub fn page(&mut self, asked: &ReaddirRequest, now: Duration) -> Option<DirPage> {
        let ReaddirRequest { dir, cookie, last, max_entries, attributes, layouts } = asked;
        // Layouts are not kept.
        if *layouts || self.news.is_changing(*dir) {
            return None;
        }
        let page = self.listings.page(*dir, *cookie, *last)?;
        let mut page =
            Some(page).filter(|page| page.entries.len() <= *max_entries as usize)?.clone();
        for entry in page.entries.iter_mut().filter(|_| *attributes) {
            entry.attr = Some(self.attr(entry.file, now)?);
        }
        self.used.insert(*dir, ());
        Some(page)
    }

    /// The attributes of a file.
    pub fn attr(&mut self, file: FileId, now: Duration) -> Option<Attr> {
        if self.news.is_changing(file) {
            return None;
        }
        self.attributes.get(&file)?.at(now)
    }

    /// Allocated space of a file in this state: the number of its last change, as in its
    /// attributes, and a number of this client's own changes.
    pub fn allocated(&mut self, file: FileId, state: (u64, u64), now: Duration) -> Option<u64> {
        self.attr(file, now).filter(|attr| attr.change == state.0)?;
        let known = self.allocated.get(&file)?.at(now)?;
        (known.state == state).then_some(known.bytes)
    }

    /// Caches the allocated space of a file. `certain` says that all servers have reported it. It
    /// is kept for [`DOUBTFUL`]. If the servers then report the same again, it is kept as long as
    /// the attributes are.
    pub fn keep_allocated(
        &mut self,
        file: FileId,
        state: (u64, u64),
        (bytes, certain): (u64, bool),
        now: Duration,
    ) {
        if self.attributes.get(&file).is_none() {
            return;
        }
        let value = Allocated { state, bytes, certain };
        let same = |known: Until<Allocated>| known.value == value && known.at(now).is_none();
        let again = certain && self.allocated.get(&file).is_some_and(same);
        let end = (!again).then_some(now + DOUBTFUL);
        self.allocated.insert(file, Until { value, end });
    }

    /// Whether a file is known to have no security capabilities.
    pub fn is_bare(&mut self, file: FileId, now: Duration) -> bool {
        !self.news.is_changing(file) && self.bare.get(&file).and_then(|bare| bare.at(now)).is_some()
    }

    /// The access control list of a file; `Some(None)` if it has none.
    pub fn acl(&mut self, file: FileId, now: Duration) -> Option<Option<Vec<u8>>> {
        if self.news.is_changing(file) {
            return None;
        }
        self.acls.get(&file)?.at(now)
    }

    /// Caches the file of a name from a reply. It expires at `end`, whatever the reply allows.
    pub fn keep_name(
        &mut self,
        news: (Asked, Found),
        name: (FileId, &[u8]),
        value: Option<FileId>,
        end: Option<Duration>,
    ) {
        self.keep_name_by(KEEP_NAMES, news, name, value, end);
    }

    /// As [`Kept::keep_name`], for a name that a change has given to a file, or taken from one, in a
    /// directory of which the attributes have come with the reply.
    pub fn keep_changed_name(
        &mut self,
        news: (Asked, Found),
        name: (FileId, &[u8]),
        value: Option<FileId>,
        end: Option<Duration>,
    ) {
        self.keep_name_by(HAS_ALSO, news, name, value, end);
    }

    fn keep_name_by(
        &mut self,
        flag: u8,
        (asked, found): (Asked, Found),
        (dir, name): (FileId, &[u8]),
        value: Option<FileId>,
        end: Option<Duration>,
    ) {
        if self.may_keep(asked, found, dir, flag, end) {
            self.names.insert((dir, name.to_vec()), Until { value, end });
            self.make_good();
            self.complete.is_kept(dir, name);
            self.used.insert(dir, ());
        }
    }

    /// No directory is complete after names were dropped to make room.
    fn make_good(&mut self) {
        if std::mem::take(&mut self.names.dropped) {
            self.complete = Complete::default();
        }
    }

    /// Records that all names of a page of a directory were to be cached: the position where the
    /// page begins, and that of the next one.
    pub fn keep_page(
        &mut self,
        (asked, found): (Asked, Found),
        dir: FileId,
        place: (u64, Option<u64>),
        page: &DirPage,
    ) {
        // (A lease ends by events alone, and a time to live by itself.)
        if self.may_keep(asked, found, dir, KEEP_NAMES, None) {
            self.complete.has_page(dir, place, page.last);
            self.listings.has_page(dir, place, page);
        } else {
            self.complete.drop(dir);
            self.listings.drop(dir);
        }
    }

    /// Records a new, empty directory from a reply.
    pub fn keep_empty(&mut self, (asked, found): (Asked, Found), dir: FileId) {
        if self.may_keep(asked, found, dir, KEEP_ATTRIBUTES, None) {
            self.complete.is_empty(dir);
        }
    }

    /// Caches attributes from a reply.
    pub fn keep_attr(
        &mut self,
        (asked, found): (Asked, Found),
        attr: &Attr,
        end: Option<Duration>,
    ) {
        if self.may_keep(asked, found, attr.file, KEEP_ATTRIBUTES, end) {
            self.attributes.insert(attr.file, Until { value: attr.clone(), end });
        }
    }

    /// Caches attributes of a file or directory that came with the reply to a change. The change was
    /// begun with these files (`begun`), and has ended (`ended`).
    pub fn keep_also(
        &mut self,
        (begun, ended): (Asked, Asked),
        found: Found,
        files: &[FileId],
        attr: &Attr,
        end: Option<Duration>,
    ) {
        let mut asked = ended;
        if !files.contains(&attr.file) {
            // Only the reply says that the change has changed it, too.
            let is_fresh = self.news.is_fresh(begun, found, attr.file);
            self.changed(attr.file);
            if !is_fresh {
                return;
            }
            asked = self.news.asking();
        }
        if self.may_keep(asked, found, attr.file, HAS_ALSO, end) {
            self.attributes.insert(attr.file, Until { value: attr.clone(), end });
        }
    }

    /// Caches that a file has no security capabilities.
    pub fn keep_bare(
        &mut self,
        (asked, found): (Asked, Found),
        file: FileId,
        end: Option<Duration>,
    ) {
        if self.may_keep(asked, found, file, KEEP_ATTRIBUTES, end) {
            self.bare.insert(file, Until { value: (), end });
        }
    }

    /// Caches the access control list of a file, or its absence.
    pub fn keep_acl(
        &mut self,
        (asked, found): (Asked, Found),
        file: FileId,
        value: Option<&[u8]>,
        end: Option<Duration>,
    ) {
        let is_short = value.is_none_or(|value| value.len() <= MAX_ACL_BYTES);
        if is_short && self.may_keep(asked, found, file, KEEP_ATTRIBUTES, end) {
            self.acls.insert(file, Until { value: value.map(<[u8]>::to_vec), end });
        }
    }

    fn may_keep(
        &self,
        asked: Asked,
        found: Found,
        file: FileId,
        flag: u8,
        end: Option<Duration>,
    ) -> bool {
        (end.is_some() || found.keep & flag != 0) && self.news.is_fresh(asked, found, file)
    }

    /// Applies an event. Returns whether nothing is cached of its directory or file now.
    pub fn obey(&mut self, event: Numbered, what: &EventKind) -> bool {
        match what {
            EventKind::Name { .. } | EventKind::Attributes { .. } | EventKind::Removal { .. }
                if planted(Bug::KeepAfterEvent) =>
            {
                false
            }
            EventKind::Name { dir, name } => {
                self.news.event(event, *dir);
                self.attributes.remove(dir);
                let used = self.used.get(dir).is_some();
                self.used.remove(dir);
                if used {
                    self.forget_name(*dir, &name.0);
                } else {
                    self.forget_names(*dir);
                    self.bare.remove(dir);
                    self.acls.remove(dir);
                }
                !used
            }
            EventKind::Attributes { file } | EventKind::Removal { file } => {
                self.news.event(event, *file);
                self.forget(*file);
                self.forget_names(*file);
                true
            }
            // What has not been given up yet is held.
            EventKind::Recall(_) | EventKind::Report { .. } => false,
        }
    }

    /// Drops what is cached of a file or directory, when a change by this client begins and when it
    /// has ended. Changed names are dropped separately.
    pub fn forget(&mut self, file: FileId) {
        self.attributes.remove(&file);
        self.allocated.remove(&file);
        self.bare.remove(&file);
        self.acls.remove(&file);
    }

    /// Applies a read of a file, which is no change: cached attributes stay, except what `show`
    /// changes.
    pub fn was_accessed(&mut self, file: FileId, show: impl FnOnce(&mut Attr) -> bool) {
        if let Some(mut kept) = self.attributes.get(&file)
            && show(&mut kept.value)
        {
            self.attributes.insert(file, kept);
        }
    }

    /// Records that a change by this client has also changed this file.
    pub fn changed(&mut self, file: FileId) {
        let begun = self.news.begin_change(&[file]);
        self.news.end_change(begun, &[file]);
        self.forget(file);
    }

    /// Drops a name that changes.
    pub fn forget_name(&mut self, dir: FileId, name: &[u8]) {
        self.names.remove(&(dir, name.to_vec()));
        self.complete.except(dir, name);
        self.listings.drop(dir);
    }

    fn forget_names(&mut self, dir: FileId) {
        self.complete.drop(dir);
        self.listings.drop(dir);
        for names in [&mut self.names.young, &mut self.names.old] {
            let from = names.range((dir, Vec::new())..).take_while(|((of, _), _)| *of == dir);
            let of_dir: Vec<_> = from.map(|(name, _)| name.clone()).collect();
            for name in of_dir {
                names.remove(&name);
            }
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.names = Recent::default();
        self.complete = Complete::default();
        self.listings = Listings::default();
        self.attributes = Recent::default();
        self.allocated = Recent::default();
        self.bare = Recent::default();
        self.acls = Recent::default();
        self.used = Recent::default();
    }
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
