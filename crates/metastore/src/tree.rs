//! The committed part of the engine: redb.

use crate::engine::{Key, Sequence, Value, Versioned};
use crate::overlay::Overlay;
use redb::{Database, ReadOnlyTable, ReadableDatabase, TableDefinition};
use std::path::{Path, PathBuf};
use weir_types::{Error, ErrorKind, Result};

/// Key → version (8 bytes, little-endian), then the value.
const DATA: TableDefinition<&[u8], &[u8]> = TableDefinition::new("data");
/// Facts about the whole: `applied`, the last commit that [`DATA`] holds.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const APPLIED: &str = "applied";
const VERSION_BYTES: usize = 8;

/// The redb file.
pub(crate) struct Tree {
    database: Database,
    path: PathBuf,
}

/// What the tree held after one commit: reads do not change under its owner.
pub(crate) struct TreeSnapshot {
    data: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl Tree {
    /// Makes an empty tree at `path`; after a crash there is a whole one or none.
    pub fn create(dir: &Path, path: &Path) -> Result<()> {
        let temporary = path.with_extension("redb.new");
        let io = |e: std::io::Error| Error::from(e).context(temporary.display());
        match std::fs::remove_file(&temporary) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(e)),
            _ => {}
        }
        let database =
            Database::builder().create(&temporary).map_err(|e| tree_error(&temporary, e))?;
        let tree = Self { database, path: temporary.clone() };
        tree.apply(&Overlay::default(), Sequence::ZERO)?;
        drop(tree);
        std::fs::rename(&temporary, path).map_err(io)?;
        crate::directory::sync_directory(dir).map_err(io)
    }

    /// Opens the tree with a cache of so many bytes.
    pub fn open(path: &Path, cache_bytes: usize) -> Result<Self> {
        let database = Database::builder()
            .set_cache_size(cache_bytes)
            .open(path)
            .map_err(|e| tree_error(path, e))?;
        Ok(Self { database, path: path.to_owned() })
    }

    /// The last commit that the tree holds.
    pub fn applied(&self) -> Result<Sequence> {
        let read = || -> Result<Option<u64>, redb::Error> {
            let table = self.database.begin_read()?.open_table(META)?;
            Ok(table.get(APPLIED)?.map(|guard| guard.value()))
        };
        read().map_err(|e| tree_error(&self.path, e))?.map(Sequence).ok_or_else(|| {
            let what = format!("{}: the table `meta` lacks `applied`", self.path.display());
            Error::new(ErrorKind::Corrupt, what)
        })
    }

    /// What the tree holds now.
    pub fn snapshot(&self) -> Result<TreeSnapshot> {
        let read =
            || -> Result<_, redb::Error> { Ok(self.database.begin_read()?.open_table(DATA)?) };
        Ok(TreeSnapshot { data: read().map_err(|e| tree_error(&self.path, e))? })
    }

    /// Takes in a generation of writes, the last of which is `upto`, durably
    /// and as a whole.
    pub fn apply(&self, overlay: &Overlay, upto: Sequence) -> Result<()> {
        let write = || -> Result<(), redb::Error> {
            let mut transaction = self.database.begin_write()?;
            // Otherwise every kill would cost a walk through the whole file.
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
        write().map_err(|e| tree_error(&self.path, e))
    }
}

impl TreeSnapshot {
    pub fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        match self.data.get(key).map_err(read_error)? {
            Some(row) => parse_row(row.value()).map(Some),
            None => Ok(None),
        }
    }

    /// The rows of `start..end`, in order.
    pub fn range(
        &self,
        start: &[u8],
        end: &[u8],
    ) -> Result<impl Iterator<Item = Result<(Key, Versioned)>> + use<>> {
        let rows = self.data.range(start..end).map_err(read_error)?;
        Ok(rows.map(|row| {
            let (key, value) = row.map_err(read_error)?;
            Ok((Key::from(key.value()), parse_row(value.value())?))
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

fn read_error(e: redb::StorageError) -> Error {
    tree_error(Path::new("tree.redb"), e)
}

fn tree_error(path: &Path, e: impl Into<redb::Error>) -> Error {
    let error = match e.into() {
        redb::Error::Io(e) => Error::from(e),
        e @ redb::Error::Corrupted(_) => Error::new(ErrorKind::Corrupt, e.to_string()),
        e @ redb::Error::DatabaseAlreadyOpen => Error::new(ErrorKind::Busy, e.to_string()),
        e @ redb::Error::UpgradeRequired(_) => Error::new(ErrorKind::Unsupported, e.to_string()),
        e => Error::new(ErrorKind::Io, e.to_string()),
    };
    error.context(path.display())
}
