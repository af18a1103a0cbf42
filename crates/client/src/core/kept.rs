//! Cached names and attributes, and when they expire. The time is passed in.

use super::complete::Complete;
use super::news::{Asked, Found, News, Numbered};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_host::plant::{Bug, planted};
use weir_types::{Attr, FileId};
use weir_wire::lease::{EventKind, KEEP_ATTRIBUTES, KEEP_NAMES};

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
        (asked, found): (Asked, Found),
        (dir, name): (FileId, &[u8]),
        value: Option<FileId>,
        end: Option<Duration>,
    ) {
        if self.may_keep(asked, found, dir, KEEP_NAMES, end) {
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
        page: (u64, Option<u64>),
        last: u64,
    ) {
        // (A lease ends by events alone, and a time to live by itself.)
        if self.may_keep(asked, found, dir, KEEP_NAMES, None) {
            self.complete.has_page(dir, page, last);
        } else {
            self.complete.drop(dir);
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
    }

    fn forget_names(&mut self, dir: FileId) {
        self.complete.drop(dir);
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
        self.attributes = Recent::default();
        self.allocated = Recent::default();
        self.bare = Recent::default();
        self.acls = Recent::default();
        self.used = Recent::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use weir_types::codec::Bytes;
    use weir_wire::lease::KEEP_ALL;

    const DIR: FileId = FileId(2);
    const FILE: FileId = FileId(9);
    const NOW: Duration = Duration::from_secs(100);

    fn attr(file: FileId) -> Attr {
        sample::attr(file, 1, 7)
    }

    fn kept() -> (Kept, (Asked, Found)) {
        let mut kept = Kept::default();
        kept.news.begin(1);
        let news = (kept.news.asking(), Found { epoch: 1, events: 0, keep: KEEP_ALL });
        kept.keep_name(news, (DIR, b"a"), Some(FILE), None);
        kept.keep_name(news, (DIR, b"b"), None, None);
        kept.keep_attr(news, &attr(FILE), None);
        kept.keep_attr(news, &attr(DIR), None);
        kept.keep_bare(news, FILE, None);
        kept.keep_acl(news, FILE, Some(b"list"), None);
        kept.keep_acl(news, DIR, None, None);
        (kept, news)
    }

    fn at(number: u64) -> Numbered {
        Numbered { epoch: 1, number }
    }

    fn name(name: &[u8]) -> EventKind {
        EventKind::Name { dir: DIR, name: Bytes(name.to_vec()) }
    }

    #[test]
    fn names_attributes_and_what_is_not_there_are_kept() {
        let (mut kept, _) = kept();
        assert_eq!(kept.name(DIR, b"a", NOW), Some(Some(FILE)));
        assert_eq!(kept.name(DIR, b"b", NOW), Some(None));
        assert_eq!(kept.name(DIR, b"c", NOW), None);
        assert_eq!(kept.attr(FILE, NOW).map(|attr| attr.size), Some(7));
        assert!(kept.is_bare(FILE, NOW) && !kept.is_bare(DIR, NOW));
        kept.clear();
        assert_eq!(kept.name(DIR, b"a", NOW), None);
        assert!(kept.attr(FILE, NOW).is_none());
    }

    #[test]
    fn what_a_file_takes_is_kept_as_long_as_it_is_as_it_was_and_its_attributes_are_kept() {
        let (mut kept, news) = kept();
        let later = NOW + DOUBTFUL;
        kept.keep_allocated(FILE, (1, 5), (4096, true), NOW);
        assert_eq!(kept.allocated(FILE, (1, 5), NOW), Some(4096));
        assert_eq!(kept.allocated(FILE, (1, 6), NOW), None, "changed by us");
        assert_eq!(kept.allocated(FILE, (2, 5), NOW), None, "changed by somebody");
        assert_eq!(kept.allocated(FILE, (1, 5), later - Duration::from_millis(1)), Some(4096));
        assert_eq!(kept.allocated(FILE, (1, 5), later), None, "said once");
        kept.keep_allocated(FILE, (1, 5), (4096, true), later);
        assert_eq!(kept.allocated(FILE, (1, 5), later * 2), Some(4096), "said twice");
        kept.keep_allocated(FILE, (1, 6), (4096, false), NOW);
        kept.keep_allocated(FILE, (1, 6), (4096, false), later);
        assert_eq!(kept.allocated(FILE, (1, 6), later * 2), None, "not all have said it");
        kept.keep_allocated(FILE, (1, 6), (4096, true), NOW);
        kept.keep_allocated(FILE, (1, 6), (8192, true), later);
        assert_eq!(kept.allocated(FILE, (1, 6), later * 2), None, "it was more the second time");
        kept.obey(at(1), &EventKind::Attributes { file: FILE });
        kept.keep_allocated(FILE, (1, 5), (4096, true), NOW);
        kept.keep_attr((kept.news.asking(), news.1), &attr(FILE), None);
        assert_eq!(kept.allocated(FILE, (1, 5), NOW), None, "asked for when nothing was kept");
    }

    #[test]
    fn what_may_not_be_kept_is_not() {
        let (mut kept, (asked, found)) = kept();
        let forbidden = (asked, Found { keep: 0, ..found });
        kept.keep_name(forbidden, (DIR, b"c"), None, None);
        assert_eq!(kept.name(DIR, b"c", NOW), None);
        kept.keep_name(forbidden, (DIR, b"c"), None, Some(NOW));
        assert_eq!(kept.name(DIR, b"c", NOW - Duration::from_millis(1)), Some(None));
        assert_eq!(kept.name(DIR, b"c", NOW), None, "its time is over");
    }

    #[test]
    fn a_name_event_takes_the_name_and_the_attributes_of_the_directory() {
        let (mut kept, _) = kept();
        assert!(!kept.obey(at(1), &name(b"a")));
        assert_eq!(kept.name(DIR, b"a", NOW), None);
        assert!(kept.attr(DIR, NOW).is_none());
        assert_eq!(kept.name(DIR, b"b", NOW), Some(None));
    }

    #[test]
    fn a_directory_that_nobody_asked_of_since_the_last_event_is_forgotten() {
        let (mut kept, news) = kept();
        assert!(!kept.obey(at(1), &name(b"x")));
        assert!(kept.obey(at(2), &name(b"y")), "nothing was answered between the two");
        assert_eq!(kept.name(DIR, b"b", NOW), None);
        assert!(kept.attr(FILE, NOW).is_some(), "of another file");
        kept.keep_name(news, (DIR, b"b"), None, None);
        assert_eq!(kept.name(DIR, b"b", NOW), None, "the answer is older than the event");
    }

    #[test]
    fn what_is_not_in_a_complete_directory_is_known_not_to_be_there() {
        let (mut kept, news) = kept();
        let listed = |kept: &mut Kept, news| {
            kept.keep_name(news, (DIR, b"a"), Some(FILE), None);
            kept.keep_page(news, DIR, (0, None), 1);
        };
        listed(&mut kept, news);
        assert_eq!(kept.name(DIR, b"c", NOW), Some(None));
        assert_eq!(kept.name(DIR, b"a", NOW), Some(Some(FILE)));
        let change = kept.news.begin_change(&[DIR]);
        assert_eq!(kept.name(DIR, b"c", NOW), None, "it is changing");
        let own = kept.news.end_change(change, &[DIR]);
        kept.forget_name(DIR, b"c");
        assert_eq!(kept.name(DIR, b"c", NOW), None, "of what came of it nothing is known");
        kept.keep_name((own, news.1), (DIR, b"c"), Some(FILE), None);
        assert_eq!(kept.name(DIR, b"c", NOW), Some(Some(FILE)));
        assert!(!kept.obey(at(1), &name(b"d")));
        assert_eq!(kept.name(DIR, b"d", NOW), None, "somebody else has made it");
        assert_eq!(kept.name(DIR, b"e", NOW), Some(None));
        listed(&mut kept, news);
        assert_eq!(kept.name(DIR, b"e", NOW), None, "the listing is older than the event");
        let later = (kept.news.asking(), Found { events: 1, ..news.1 });
        listed(&mut kept, later);
        assert_eq!(kept.name(DIR, b"e", NOW), Some(None));
        kept.obey(at(2), &EventKind::Attributes { file: DIR });
        assert_eq!(kept.name(DIR, b"e", NOW), None, "the directory was forgotten");
        let forbidden = (kept.news.asking(), Found { keep: 0, ..later.1 });
        kept.keep_empty(forbidden, FILE);
        assert_eq!(kept.name(FILE, b"e", NOW), None);
        kept.keep_empty((forbidden.0, later.1), FILE);
        assert_eq!(kept.name(FILE, b"e", NOW), Some(None), "a new directory");
        kept.clear();
        assert_eq!(kept.name(FILE, b"e", NOW), None);
    }

    #[test]
    fn no_directory_is_complete_after_names_have_made_room() {
        let (mut kept, news) = kept();
        kept.keep_page(news, DIR, (0, None), 1);
        for number in 2..MAX_ENTRIES {
            assert_eq!(kept.name(DIR, b"c", NOW), Some(None), "{number} are no too many");
            kept.keep_name(news, (FILE, number.to_string().as_bytes()), Some(FILE), None);
        }
        kept.keep_name(news, (FILE, b"one more"), Some(FILE), None);
        assert_eq!(kept.name(DIR, b"c", NOW), None);
    }

    #[test]
    fn an_attributes_event_of_a_directory_takes_all_names() {
        let (mut kept, _) = kept();
        kept.obey(at(1), &EventKind::Attributes { file: FILE });
        assert!(kept.attr(FILE, NOW).is_none() && !kept.is_bare(FILE, NOW));
        assert!(kept.acl(FILE, NOW).is_none());
        assert_eq!(kept.name(DIR, b"a", NOW), Some(Some(FILE)));
        kept.obey(at(2), &EventKind::Attributes { file: DIR });
        assert_eq!(kept.name(DIR, b"a", NOW), None);
    }

    #[test]
    fn while_it_changes_nothing_of_a_file_is_used() {
        let (mut kept, _) = kept();
        assert_eq!(kept.acl(FILE, NOW), Some(Some(b"list".to_vec())));
        assert_eq!(kept.acl(DIR, NOW), Some(None), "it has none");
        let change = kept.news.begin_change(&[DIR, FILE]);
        assert!(kept.acl(FILE, NOW).is_none());
        assert_eq!(kept.name(DIR, b"a", NOW), None);
        assert!(kept.attr(FILE, NOW).is_none() && !kept.is_bare(FILE, NOW));
        kept.news.end_change(change, &[DIR, FILE]);
        assert_eq!(kept.name(DIR, b"a", NOW), Some(Some(FILE)));
    }

    #[test]
    fn an_answer_from_before_a_change_that_concerned_its_file_too_is_not_kept() {
        let (mut kept, (asked, found)) = kept();
        kept.changed(FILE);
        assert!(kept.attr(FILE, NOW).is_none());
        kept.keep_attr((asked, found), &attr(FILE), None);
        assert!(kept.attr(FILE, NOW).is_none());
        kept.keep_attr((kept.news.asking(), found), &attr(FILE), None);
        assert!(kept.attr(FILE, NOW).is_some());
    }

    #[test]
    fn what_is_used_stays_and_memory_is_bounded() {
        let (mut kept, news) = kept();
        for number in 0..3 * MAX_ENTRIES as u64 {
            kept.keep_attr(news, &attr(FileId(1000 + number)), None);
            if number % 1000 == 0 {
                assert!(kept.attr(FILE, NOW).is_some());
            }
        }
        let (young, old) = (kept.attributes.young.len(), kept.attributes.old.len());
        assert!(young + old <= MAX_ENTRIES, "{young} and {old}");
        assert!(kept.attr(DIR, NOW).is_none());
    }
}
