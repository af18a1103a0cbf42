//! What is kept of names and attributes, and when that ends. Time comes in.

use super::news::{Asked, Found, News};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_types::{Attr, FileId};
use weir_wire::lease::{EventKind, KEEP_ATTRIBUTES, KEEP_NAMES};

/// Entries of each kind: half of them are those used last.
const MAX_ENTRIES: usize = 65_536;

/// A bounded map: what was not used since as many others as fit half came
/// makes room.
#[derive(Debug)]
struct Recent<K, V> {
    young: BTreeMap<K, V>,
    old: BTreeMap<K, V>,
}

impl<K: Ord, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { young: BTreeMap::new(), old: BTreeMap::new() }
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

/// Names of a directory begin here and end before the same of the next.
type Name = (FileId, Vec<u8>);

#[derive(Clone, Debug)]
struct Until<T> {
    value: T,
    /// `None`: until an event says otherwise.
    end: Option<Duration>,
}

impl<T> Until<T> {
    fn at(self, now: Duration) -> Option<T> {
        self.end.is_none_or(|end| now < end).then_some(self.value)
    }
}

/// What is kept.
#[derive(Debug, Default)]
pub struct Kept {
    /// What happened since answers were found.
    pub news: News,
    /// What a name stands for; `None`: there is no such name.
    names: Recent<Name, Until<Option<FileId>>>,
    attributes: Recent<FileId, Until<Attr>>,
    /// Files that have no security capabilities.
    bare: Recent<FileId, Until<()>>,
    /// Directories from which something was answered since their last event.
    used: Recent<FileId, ()>,
}

impl Kept {
    /// What a name stands for: `Some(None)` if there is no such name, and
    /// `None` if that is not known.
    pub fn name(&mut self, dir: FileId, name: &[u8], now: Duration) -> Option<Option<FileId>> {
        if self.news.is_changing(dir) {
            return None;
        }
        let found = self.names.get(&(dir, name.to_vec()))?.at(now)?;
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

    /// Whether a file is known to have no security capabilities.
    pub fn is_bare(&mut self, file: FileId, now: Duration) -> bool {
        !self.news.is_changing(file) && self.bare.get(&file).and_then(|bare| bare.at(now)).is_some()
    }

    /// An answer said what a name stands for. `end`: keep it so long whatever
    /// the answer allows.
    pub fn keep_name(
        &mut self,
        (asked, found): (Asked, Found),
        (dir, name): (FileId, &[u8]),
        value: Option<FileId>,
        end: Option<Duration>,
    ) {
        if self.may_keep(asked, found, dir, KEEP_NAMES, end) {
            self.names.insert((dir, name.to_vec()), Until { value, end });
            self.used.insert(dir, ());
        }
    }

    /// An answer brought attributes.
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

    /// An answer said that a file has no security capabilities.
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

    /// Obeys an event; whether nothing is kept of its directory or file now.
    pub fn obey(&mut self, number: u64, what: &EventKind) -> bool {
        match what {
            EventKind::Name { dir, name } => {
                self.news.event(number, *dir);
                self.attributes.remove(dir);
                let used = self.used.get(dir).is_some();
                self.used.remove(dir);
                if used {
                    self.names.remove(&(*dir, name.0.clone()));
                } else {
                    self.forget_names(*dir);
                    self.bare.remove(dir);
                }
                !used
            }
            EventKind::Attributes { file } => {
                self.news.event(number, *file);
                self.forget(*file);
                self.forget_names(*file);
                true
            }
            EventKind::Recall(lease) => {
                self.news.recall(number, lease.file);
                false
            }
            EventKind::Report { .. } => false,
        }
    }

    /// A change of ours to these files and directories begins, or has ended:
    /// what was known of them is not true any more. Names that change are
    /// forgotten by themselves.
    pub fn forget(&mut self, file: FileId) {
        self.attributes.remove(&file);
        self.bare.remove(&file);
    }

    /// A name changes.
    pub fn forget_name(&mut self, dir: FileId, name: &[u8]) {
        self.names.remove(&(dir, name.to_vec()));
    }

    fn forget_names(&mut self, dir: FileId) {
        for names in [&mut self.names.young, &mut self.names.old] {
            let from = names.range((dir, Vec::new())..).take_while(|((of, _), _)| *of == dir);
            let of_dir: Vec<_> = from.map(|(name, _)| name.clone()).collect();
            of_dir.iter().for_each(|name| drop(names.remove(name)));
        }
    }

    /// Everything is forgotten.
    pub fn clear(&mut self) {
        self.names = Recent::default();
        self.attributes = Recent::default();
        self.bare = Recent::default();
        self.used = Recent::default();
    }
}
