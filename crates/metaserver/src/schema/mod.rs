//! What the metadata server keeps in its engine: keys and records. Drawn byte
//! by byte in `docs/format-meta.md`.
//!
//! Numbers in keys are big-endian, so that the order of keys is the order of
//! numbers. Every record begins with a version byte; the rest is written by
//! the codec of `weir-types`.

mod cluster;
mod inode;
pub mod key;
mod namespace;
mod session;

pub use cluster::{ClientRecord, ClientStanding, FormatRecord, ServerRecord, TargetRecord};
pub use inode::{Body, Directory, Inode, RegularFile};
pub use namespace::{DeadList, Dentry, ListEntry, Orphan, SegmentPage, WrittenPage};
pub use session::{SessionRecord, SlotRecord};

use weir_types::{Decode, Encode, Error, ErrorKind, Result};

/// The version that this program writes and the only one that it reads.
const RECORD_VERSION: u8 = 1;

/// A record as it is stored.
pub fn encode(record: &impl Encode) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    out.push(RECORD_VERSION);
    record.encode(&mut out);
    out
}

/// Reads a stored record; `what` names it in errors.
///
/// # Errors
/// `Corrupt` if the bytes make no sense, `Unsupported` if a newer program
/// wrote them.
pub fn decode<T: Decode>(bytes: &[u8], what: &str) -> Result<T> {
    match bytes.split_first() {
        Some((&RECORD_VERSION, rest)) => T::from_bytes(rest)
            .map_err(|e| Error::new(ErrorKind::Corrupt, format!("metadata record {what}: {e}"))),
        Some((version, _)) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "metadata record {what} has version {version}; this program reads version \
                 {RECORD_VERSION}: use the release that wrote it, or a newer one"
            ),
        )),
        None => Err(Error::new(ErrorKind::Corrupt, format!("metadata record {what} is empty"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::FileId;

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
