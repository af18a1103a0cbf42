//! The committed part of the engine: redb.

use crate::directory::{Home, missing};
use crate::engine::{Key, Sequence, Value, Versioned};
use crate::overlay::Overlay;
use crate::pages::{Backend, FirstFault, PageFile};
use redb::{Database, ReadOnlyTable, ReadableDatabase, TableDefinition};
use std::sync::Arc;
use weir_host::thread::uninterrupted;
use weir_types::{Error, ErrorKind, Result};

/// The name of redb's file.
const NAME: &str = "tree.redb";
/// Name of the file while it is being made.
const NEW_NAME: &str = "tree.redb.new";

/// Key → version (8 bytes, little-endian), then the value.
const DATA: TableDefinition<&[u8], &[u8]> = TableDefinition::new("data");
/// Facts about the whole tree: `applied`, the last commit that [`DATA`] holds.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const APPLIED: &str = "applied";
const VERSION_BYTES: usize = 8;

/// Details that redb's errors lack.
#[derive(Clone)]
struct Faults {
    name: Arc<str>,
    first: FirstFault,
}

/// The redb file. Calls into redb are never interrupted in a simulation, because redb holds its own
/// locks.
pub(crate) struct Tree {
    /// `None` only while it is dropped.
    database: Option<Database>,
    pages: Arc<PageFile>,
    faults: Faults,
}

/// What the tree held after one commit: reads do not change under its owner.
pub(crate) struct TreeSnapshot {
    data: ReadOnlyTable<&'static [u8], &'static [u8]>,
    faults: Faults,
}

impl Tree {
    /// Whether the file exists.
    pub fn exists(home: &Home) -> Result<bool> {
        home.exists(NAME)
    }

    /// Makes an empty tree. After a crash there is a complete one or none. Its name becomes durable
    /// together with the next log segment's.
    pub fn create(home: &Home) -> Result<()> {
        Self::create_beside(home, 1 << 20)?.take_place(home)
    }

    /// Makes an empty tree beside an existing one: see [`Tree::take_place`].
    pub fn create_beside(home: &Home, cache_bytes: usize) -> Result<Self> {
        let tree = Self::start(home, PageFile::create(home, NEW_NAME)?, cache_bytes)?;
        tree.apply(&Overlay::default(), Sequence::ZERO)?;
        Ok(tree)
    }

    /// Replaces the existing tree by this one, which is durable. Its name becomes durable together
    /// with the next log segment's.
    pub fn take_place(self, home: &Home) -> Result<()> {
        drop(self);
        home.rename(NEW_NAME, NAME)
    }

    /// Opens the tree with a cache of `cache_bytes`.
    pub fn open(home: &Home, cache_bytes: usize) -> Result<Self> {
        if !Self::exists(home)? {
            return Err(missing(home.display(NAME)));
        }
        let pages = PageFile::open(home, NAME)?;
        if redb::StorageBackend::len(&pages).unwrap_or(0) == 0 {
            // redb would make a new tree.
            return Err(crate::directory::damage(home.display(NAME), 0, "it is empty"));
        }
        Self::start(home, pages, cache_bytes)
    }

    fn start(home: &Home, pages: PageFile, cache_bytes: usize) -> Result<Self> {
        let faults = Faults { name: home.display(NAME).into(), first: pages.first_fault() };
        let mut builder = Database::builder();
        builder.set_cache_size(cache_bytes);
        let pages = Arc::new(pages);
        let backend = Backend(Arc::clone(&pages));
        let database = uninterrupted(|| builder.create_with_backend(backend));
        Ok(Self { database: Some(database.map_err(|e| faults.error(e))?), pages, faults })
    }

    /// The file below redb, for verification.
    pub fn pages(&self) -> &PageFile {
        &self.pages
    }

    fn database(&self) -> Result<&Database, redb::Error> {
        self.database.as_ref().ok_or(redb::Error::DatabaseClosed)
    }

    /// The last commit that the tree holds.
    pub fn applied(&self) -> Result<Sequence> {
        let read = || -> Result<Option<u64>, redb::Error> {
            let table = self.database()?.begin_read()?.open_table(META)?;
            Ok(table.get(APPLIED)?.map(|guard| guard.value()))
        };
        uninterrupted(read).map_err(|e| self.faults.error(e))?.map(Sequence).ok_or_else(|| {
            missing(format!("{}: the row `applied` of the table `meta`", self.faults.name))
        })
    }

    /// The present rows of the tree.
    pub fn snapshot(&self) -> Result<TreeSnapshot> {
        let read =
            || -> Result<_, redb::Error> { Ok(self.database()?.begin_read()?.open_table(DATA)?) };
        let data = uninterrupted(read).map_err(|e| self.faults.error(e))?;
        Ok(TreeSnapshot { data, faults: self.faults.clone() })
    }

    /// Applies a generation of writes durably and atomically. `upto`: its last commit.
    pub fn apply(&self, overlay: &Overlay, upto: Sequence) -> Result<()> {
        let write = || -> Result<(), redb::Error> {
            let mut transaction = self.database()?.begin_write()?;
            // Otherwise each kill would be followed by a walk through the whole file.
            transaction.set_quick_repair(true);
            {
                let mut data = transaction.open_table(DATA)?;
                let mut row = Vec::new();
                for (key, entry) in overlay.iter() {
                    match &entry.value {
                        Some(value) => {
                            row.clear();
                            row.extend_from_slice(&entry.version.0.to_le_bytes());
                            row.extend_from_slice(value);
                            data.insert(&**key, row.as_slice())?;
                        }
                        None => {
                            data.remove(&**key)?;
                        }
                    }
                }
                transaction.open_table(META)?.insert(APPLIED, upto.0)?;
            }
            transaction.commit()?;
            Ok(())
        };
        uninterrupted(write).map_err(|e| self.faults.error(e))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // redb writes a header when it closes.
        uninterrupted(|| drop(self.database.take()));
    }
}

impl TreeSnapshot {
    pub fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        uninterrupted(|| match self.data.get(key).map_err(|e| self.faults.error(e))? {
            Some(row) => parse_row(row.value()).map(Some),
            None => Ok(None),
        })
    }

    /// The rows of `start..end`, in order.
    pub fn range(
        &self,
        start: &[u8],
        end: &[u8],
    ) -> Result<impl Iterator<Item = Result<(Key, Versioned)>> + use<>> {
        let rows = uninterrupted(|| self.data.range(start..end));
        let mut rows = rows.map_err(|e| self.faults.error(e))?;
        let faults = self.faults.clone();
        Ok(std::iter::from_fn(move || {
            let row = uninterrupted(|| rows.next())?;
            Some(
                row.map_err(|e| faults.error(e)).and_then(|(key, value)| {
                    Ok((Key::from(key.value()), parse_row(value.value())?))
                }),
            )
        }))
    }
}

fn parse_row(row: &[u8]) -> Result<Versioned> {
    let (version, value) = row.split_first_chunk::<VERSION_BYTES>().ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "tree.redb: a row of the table `data` is cut short")
    })?;
    let version = Sequence(u64::from_le_bytes(*version));
    Ok(Versioned { value: Value::from(value), version })
}

impl Faults {
    /// redb's error. If a page was damaged, the message says what and where.
    fn error(&self, e: impl Into<redb::Error>) -> Error {
        if let Some(first) = &*self.first.lock() {
            return first.clone();
        }
        let error = match e.into() {
            redb::Error::Io(e) => Error::from(e),
            e @ redb::Error::Corrupted(_) => Error::new(ErrorKind::Corrupt, e.to_string()),
            e @ redb::Error::DatabaseAlreadyOpen => Error::new(ErrorKind::Busy, e.to_string()),
            e @ redb::Error::UpgradeRequired(_) => {
                Error::new(ErrorKind::Unsupported, e.to_string())
            }
            e => Error::new(ErrorKind::Io, e.to_string()),
        };
        error.context(&self.name)
    }
}
