//! The records that the metadata server stores in its engine: keys and values.
//! `docs/format-meta.md` draws every byte.
//!
//! Numbers in keys are big-endian, so that the order of keys is the order of numbers. Every record
//! begins with a version byte; the rest is written by the codec of `weir-types`.

mod cluster;
mod holes;
mod inode;
pub mod key;
mod namespace;
mod quota;
mod session;

pub use cluster::{ClientRecord, FormatRecord, Past, ServerRecord, TargetRecord};
pub use holes::Holes;
pub use inode::{Body, Directory, Inode, RegularFile};
pub use namespace::{DeadList, Dentry, ListEntry, Orphan, SegmentPage, WrittenPage};
pub use quota::{ALL_COUNTED, QuotaRecord};
pub use session::{SessionRecord, SlotRecord};

pub use weir_types::ClientStanding;

use weir_types::{Decode, Encode, Error, ErrorKind, Result};

/// The version that this program writes, and the only one that it reads.
const RECORD_VERSION: u8 = 1;
/// Version of the format record since inodes record where files may have holes. An older program
/// can read none of those.
const FORMAT_VERSION: u8 = 5;
/// The same version with quotas (`p/`). A program that does not count must not change such a store.
const QUOTA_FORMAT_VERSION: u8 = 6;
/// The same versions since parities were wished for some file. A program that does not know them
/// would take the records of such files for broken ones.
const PARITY_FORMAT_VERSION: u8 = 7;
const QUOTA_PARITY_FORMAT_VERSION: u8 = 8;
/// The same versions since two copies beside parities were wished for some file.
const MIRROR_FORMAT_VERSION: u8 = 9;
const QUOTA_MIRROR_FORMAT_VERSION: u8 = 10;
/// Version since inodes have a time of birth and access control lists at their end.
const WITH_LONGER_INODES: u8 = 3;
/// The same version with quotas.
const WITH_LONGER_INODES_AND_QUOTAS: u8 = 4;
/// Version since the directories of files with several names are recorded (`b/`). A program without
/// these records must not change such a store.
const WITH_DIRECTORIES: u8 = 2;

/// The program version that last opened a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// This version, or one with the same records.
    Current,
    /// A version from before inodes recorded holes.
    NoHoles {
        /// Whether it has quotas.
        quotas: bool,
    },
    /// A version from before inodes had optional fields at their end.
    ShorterInodes,
    /// A version from before the directories of files were recorded.
    NoDirectories,
}

/// Encodes a record for the store.
pub fn encode(record: &impl Encode) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    out.push(RECORD_VERSION);
    record.encode(&mut out);
    out
}

/// Decodes a stored record; `what` names it in errors.
///
/// # Errors
/// `Corrupt` for invalid bytes, `Unsupported` if a newer program wrote them.
pub fn decode<T: Decode>(bytes: &[u8], what: &str) -> Result<T> {
    match bytes.split_first() {
        Some((&RECORD_VERSION, rest)) => T::from_bytes(rest)
            .map_err(|e| Error::new(ErrorKind::Corrupt, format!("metadata record {what}: {e}"))),
        Some((version, _)) => Err(other_version(what, *version, &RECORD_VERSION.to_string())),
        None => Err(Error::new(ErrorKind::Corrupt, format!("metadata record {what} is empty"))),
    }
}

fn other_version(what: &str, version: u8, reads: &str) -> Error {
    let message = format!(
        "metadata record {what} has version {version}; this program reads version {reads}: use \
         the release that wrote it, or a newer one"
    );
    Error::new(ErrorKind::Unsupported, message)
}

/// Encodes the format record. `quotas` says that there are any.
pub fn encode_format(record: &FormatRecord, quotas: bool) -> Vec<u8> {
    let mut bytes = encode(record);
    bytes[0] = if quotas { QUOTA_FORMAT_VERSION } else { FORMAT_VERSION };
    bytes
}

/// The format record of a store in which parities are wished from now on, or with `mirrors` two
/// copies beside them; `None` if it says so.
pub fn with_parities(bytes: &[u8], mirrors: bool) -> Option<Vec<u8>> {
    let version = match (*bytes.first()?, mirrors) {
        (FORMAT_VERSION, false) => PARITY_FORMAT_VERSION,
        (QUOTA_FORMAT_VERSION, false) => QUOTA_PARITY_FORMAT_VERSION,
        (FORMAT_VERSION | PARITY_FORMAT_VERSION, true) => MIRROR_FORMAT_VERSION,
        (QUOTA_FORMAT_VERSION | QUOTA_PARITY_FORMAT_VERSION, true) => QUOTA_MIRROR_FORMAT_VERSION,
        _ => return None,
    };
    let mut bytes = bytes.to_vec();
    bytes[0] = version;
    Some(bytes)
}

/// The format record with or without quotas, and with parities and mirrors if `before` has them.
pub fn with_quotas(record: &FormatRecord, quotas: bool, before: Option<&[u8]>) -> Vec<u8> {
    let bytes = encode_format(record, quotas);
    let mirrors = match before.and_then(<[u8]>::first) {
        Some(&(PARITY_FORMAT_VERSION | QUOTA_PARITY_FORMAT_VERSION)) => false,
        Some(&(MIRROR_FORMAT_VERSION | QUOTA_MIRROR_FORMAT_VERSION)) => true,
        _ => return bytes,
    };
    with_parities(&bytes, mirrors).unwrap_or(bytes)
}

/// Decodes the format record, and returns whether the store is up to date.
///
/// # Errors
/// As [`decode`].
pub fn decode_format(bytes: &[u8]) -> Result<(FormatRecord, Age)> {
    const WHAT: &str = "of the format";
    let age = match bytes.first() {
        Some(&(FORMAT_VERSION..=QUOTA_MIRROR_FORMAT_VERSION)) => Age::Current,
        Some(&WITH_LONGER_INODES) => Age::NoHoles { quotas: false },
        Some(&WITH_LONGER_INODES_AND_QUOTAS) => Age::NoHoles { quotas: true },
        Some(&WITH_DIRECTORIES) => Age::ShorterInodes,
        Some(&version) if version > QUOTA_MIRROR_FORMAT_VERSION => {
            let reads = format!("{RECORD_VERSION} to {QUOTA_MIRROR_FORMAT_VERSION}");
            return Err(other_version(WHAT, version, &reads));
        }
        _ => return Ok((decode(bytes, WHAT)?, Age::NoDirectories)),
    };
    let mut first = bytes.to_vec();
    first[0] = RECORD_VERSION;
    Ok((decode(&first, WHAT)?, age))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::FileId;

    #[test]
    fn the_record_of_the_format_says_how_old_a_store_is() {
        let record = FormatRecord {
            cluster: [7; 16],
            key_check: weir_types::codec::Bytes(vec![1]),
            default_layout: weir_types::LayoutSpec::default(),
        };
        let mut bytes = encode_format(&record, false);
        for (version, age) in [
            (10, Age::Current),
            (9, Age::Current),
            (8, Age::Current),
            (7, Age::Current),
            (6, Age::Current),
            (5, Age::Current),
            (4, Age::NoHoles { quotas: true }),
            (3, Age::NoHoles { quotas: false }),
            (2, Age::ShorterInodes),
            (1, Age::NoDirectories),
        ] {
            bytes[0] = version;
            assert_eq!(decode_format(&bytes).unwrap(), (record.clone(), age));
        }
        bytes[0] = 11;
        let refused = decode_format(&bytes).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Unsupported);
        assert!(refused.message.contains("has version 11; this program reads version 1 to 10"));
        // Parities stay, whatever becomes of quotas.
        let plain = encode_format(&record, false);
        let parities = with_parities(&plain, false).unwrap();
        let both = with_quotas(&record, true, Some(&parities));
        assert_eq!([plain[0], parities[0], both[0]], [5, 7, 8]);
        assert_eq!(with_parities(&encode_format(&record, true), false), Some(both.clone()));
        for known in [&parities, &both] {
            assert_eq!(with_parities(known, false), None);
            let mirrors = with_parities(known, true).unwrap();
            assert_eq!(mirrors[0], known[0] + 2);
            assert_eq!(
                (with_parities(&mirrors, false), with_parities(&mirrors, true)),
                (None, None)
            );
            assert_eq!(with_quotas(&record, false, Some(&mirrors))[0], 9);
            assert_eq!(with_quotas(&record, true, Some(&mirrors))[0], 10);
        }
        assert_eq!(with_parities(&plain, true).unwrap()[0], 9);
        assert_eq!(with_quotas(&record, false, Some(&both)), parities);
        assert_eq!(with_quotas(&record, false, Some(&plain)), plain);
        assert_eq!(with_quotas(&record, true, None), encode_format(&record, true));
    }

    #[test]
    fn a_record_of_another_version_is_refused_by_name() {
        let mut bytes = encode(&FileId(3));
        assert_eq!(decode::<FileId>(&bytes, "x").unwrap(), FileId(3));
        bytes[0] = 2;
        let error = decode::<FileId>(&bytes, "x").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(error.message.contains("version 2"));
        assert_eq!(decode::<FileId>(&[], "x").unwrap_err().kind, ErrorKind::Corrupt);
    }
}
