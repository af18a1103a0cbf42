//! Makes the metadata of a file system from an export.

use crate::keys::WorkingKeys;
use crate::schema::{self, key};
use std::io::Read;
use std::path::Path;
use weir_host::fs;
use weir_metastore::{Embedded, EmbeddedConfig, Engine, MAX_OPERATIONS, transact};
use weir_types::{Epoch, Error, ErrorKind, Result};

pub use weir_metastore::Sequence;
pub use weir_metastore::export::{ExportHeader, ExportReader, ExportTotals, ExportWriter};

/// Distance of restored file ids and map epochs from those of the export. Data servers and clients
/// may have seen later ones, which must not be used again.
const GAP: u64 = 1 << 40;

/// Result of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Header of the export.
    pub header: ExportHeader,
    /// Totals of the export.
    pub totals: ExportTotals,
}

/// Makes a metadata directory from an export. `dir` must be missing or empty.
///
/// # Errors
/// As [`restore`], and those of the disk, with the path.
pub fn restore_directory(dir: &Path, from: impl Read) -> Result<Restored> {
    let in_dir = |e: Error| e.context(dir.display());
    // Not one that has a file system, and not what is left of one.
    let empty = match fs::Directory::open(dir) {
        Ok(directory) => directory.entries().map(|mut entries| entries.next().is_none()),
        Err(e) if std::io::Error::from(e).kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(e),
    };
    if !empty.map_err(|e| in_dir(std::io::Error::from(e).into()))? {
        return Err(in_dir(not_empty()));
    }
    let mut engine = Embedded::open(dir, EmbeddedConfig::default(), || {}).map_err(in_dir)?;
    let restored = restore(&mut engine, from).map_err(in_dir)?;
    engine.close().map_err(in_dir)?;
    Ok(restored)
}

fn not_empty() -> Error {
    Error::new(ErrorKind::Exists, "the directory is not empty: import into a new one")
}

/// Writes the records of an export into an empty engine, and waits until they are durable. No
/// server starts on an interrupted restore.
///
/// # Errors
/// `Exists` if the engine is not empty, `Corrupt` if the export is damaged, those of the engine and
/// of `from`.
pub fn restore(engine: &mut dyn Engine, from: impl Read) -> Result<Restored> {
    if engine.sequence() > Sequence::ZERO {
        return Err(not_empty());
    }
    let mut reader = ExportReader::new(from)?;
    let (mut format, mut keys) = (None, WorkingKeys::default());
    while let Some(records) = reader.next_chunk()? {
        let mut rest = &records[..];
        while !rest.is_empty() {
            let count = fitting(rest);
            transact(engine, |tx| {
                for (key, value) in &rest[..count] {
                    match &**key {
                        key::FORMAT => format = Some(value.clone()),
                        key::IDS => tx.put(key, &later_ids(value)?)?,
                        key::MAP_EPOCH => tx.put(key, &later_epoch(value)?)?,
                        // What is imported follows from no journal.
                        key::JOURNAL => {}
                        key::WORKING_KEYS => keys = schema::decode(value, "of working keys")?,
                        _ => tx.put(key, value)?,
                    }
                }
                Ok::<_, Error>(())
            })?;
            rest = &rest[count..];
        }
        engine.flush()?;
        engine.poll()?;
    }
    let format = format.ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "the export holds no file system: use another one")
    })?;
    // Last, so that there is a file system only when all of it is there.
    let keys = schema::encode(&keys.restored()?);
    transact(engine, |tx| {
        tx.put(key::WORKING_KEYS, &keys)?;
        Ok::<_, Error>(tx.put(key::FORMAT, &format)?)
    })?;
    engine.sync()?;
    Ok(Restored { header: reader.header(), totals: reader.totals() })
}

/// Number of these records that fit into one transaction, at least one.
fn fitting(records: &[(weir_metastore::Key, Vec<u8>)]) -> usize {
    let mut bytes = 0;
    let fits = |(key, value): &&(weir_metastore::Key, Vec<u8>)| {
        bytes += key.len() + value.len() + 64;
        bytes <= weir_metastore::MAX_REQUEST_BYTES / 2
    };
    records.iter().take(MAX_OPERATIONS).take_while(fits).count().max(1)
}

fn later_ids(value: &[u8]) -> Result<[u8; 8]> {
    let next = value.try_into().map(u64::from_le_bytes).map_err(|_| {
        Error::new(ErrorKind::Corrupt, "the export's record of reserved ids is not 8 bytes")
    })?;
    Ok(next.checked_add(GAP).ok_or(ErrorKind::NoSpace)?.to_le_bytes())
}

fn later_epoch(value: &[u8]) -> Result<Vec<u8>> {
    let epoch: Epoch = schema::decode(value, "of the map's epoch")?;
    Ok(schema::encode(&Epoch(epoch.0.checked_add(GAP).ok_or(ErrorKind::NoSpace)?)))
}
