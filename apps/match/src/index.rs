//! An index of a file's records by their keys. The records of the first file are looked up in it.

use crate::fields::Record;
use crate::likeness::keys;
use sio::safe::File;
use weir_records::record::RECORD_BYTES;

/// Records per call when a file is read sequentially.
pub const RECORDS_PER_CALL: u64 = 350;
/// Maximum number of records in a file: their numbers have 32 bits.
pub const MAX_RECORDS: u64 = u32::MAX as u64 - 1;
/// Maximum number of records that a record is compared with: the first ones that share a key.
pub const MAX_CANDIDATES: usize = 1000;

/// Number of records in a file.
///
/// # Errors
/// The file does not consist of whole records, or has too many.
pub fn records_of(file: &File, name: &str) -> Result<u64, String> {
    let size = file.size().map_err(|e| e.to_string())?;
    let (records, rest) = (size / RECORD_BYTES as u64, size % RECORD_BYTES as u64);
    match rest {
        0 if records <= MAX_RECORDS => Ok(records),
        0 => Err(format!("{name} has {records} records, the most is {MAX_RECORDS}")),
        _ => Err(format!("{name} does not end with a record: it has {rest} bytes more")),
    }
}

/// Reads records sequentially and passes each to `each`, with its number.
///
/// # Errors
/// The file contains something else than records.
pub fn read_in_order(
    file: &File,
    name: &str,
    range: std::ops::Range<u64>,
    mut each: impl FnMut(u64, &Record<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let mut buffer = vec![0; RECORDS_PER_CALL as usize * RECORD_BYTES];
    let mut next = range.start;
    while next < range.end {
        let count = RECORDS_PER_CALL.min(range.end - next);
        let call = &mut buffer[..count as usize * RECORD_BYTES];
        let read = file.read_at(next * RECORD_BYTES as u64, call).map_err(|e| e.to_string())?;
        if read < call.len() {
            return Err(format!("{name} has become shorter"));
        }
        for (n, bytes) in call.as_chunks::<RECORD_BYTES>().0.iter().enumerate() {
            let number = next + n as u64;
            let record = Record::new(bytes);
            let record = record.map_err(|why| format!("{name}: record {number} {why}"))?;
            each(number, &record)?;
        }
        next += count;
    }
    Ok(())
}

/// The numbers of records by their keys: 12 bytes for each key of a record.
#[derive(Default)]
pub struct Index {
    hashes: Vec<u64>,
    records: Vec<u32>,
}

/// A hash of a key. A collision costs one more comparison of records.
fn hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Index {
    /// Reads a whole file.
    ///
    /// # Errors
    /// Those of [`read_in_order`].
    pub fn of(
        file: &File,
        name: &str,
        records: u64,
        mut seen: impl FnMut(u64),
    ) -> Result<Self, String> {
        let mut entries: Vec<(u64, u32)> = Vec::with_capacity(2 * records as usize);
        read_in_order(file, name, 0..records, |number, record| {
            let found = keys(record).into_iter().flatten();
            entries.extend(found.map(|key| (hash(&key), number as u32)));
            seen(number);
            Ok(())
        })?;
        entries.sort_unstable();
        let (hashes, records) = entries.into_iter().unzip();
        Ok(Self { hashes, records })
    }

    /// The records with a key of this one, in order, each once.
    pub fn candidates(&self, record: &Record<'_>) -> Vec<u32> {
        let mut found = Vec::new();
        for key in keys(record).into_iter().flatten() {
            let hash = hash(&key);
            let begin = self.hashes.partition_point(|of| *of < hash);
            let same = self.hashes[begin..].iter().take_while(|of| **of == hash).count();
            found.extend(self.records[begin..begin + same].iter().take(MAX_CANDIDATES));
        }
        found.sort_unstable();
        found.dedup();
        found.truncate(MAX_CANDIDATES);
        found
    }
}
