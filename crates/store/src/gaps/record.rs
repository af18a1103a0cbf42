//! The bytes of the gap log: a head of 64 bytes, then records of 48, little
//! endian, each with a CRC-32C of its own at its end.

use crate::superblock::TargetIdentity;
use std::ops::Range;
use weir_types::checksum::crc32c;
use weir_types::{CopyIndex, Decode, DecodeError, Encode, ObjectId, Reader, TargetId};

const MAGIC: [u8; 8] = *b"WEIRGAP\0";
const VERSION: u32 = 1;
pub(super) const HEAD_BYTES: usize = 64;
pub(super) const RECORD_BYTES: usize = 48;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The other copy has not got these bytes.
    Note,
    /// It has.
    Clear,
}
weir_types::codec_tag!(Kind { Note = 1, Clear = 2 });

/// A change of what another copy lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: Kind,
    /// The object here.
    pub(super) object: ObjectId,
    /// The target of the other copy.
    pub(super) behind: TargetId,
    /// Which copy that is.
    pub(super) copy: CopyIndex,
    pub(super) bytes: Range<u64>,
}

/// The head of the log of a target.
pub(super) fn head(identity: TargetIdentity) -> [u8; HEAD_BYTES] {
    let mut fields = Vec::with_capacity(HEAD_BYTES);
    (MAGIC, (VERSION, 0u32)).encode(&mut fields);
    identity.encode(&mut fields);
    sealed(&fields)
}

fn sealed<const N: usize>(fields: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..fields.len()].copy_from_slice(fields);
    let check = crc32c(&bytes[..N - 4]);
    bytes[N - 4..].copy_from_slice(&check.to_le_bytes());
    bytes
}

fn is_sealed(bytes: &[u8]) -> bool {
    let (body, check) = bytes.split_at(bytes.len() - 4);
    crc32c(body).to_le_bytes() == *check
}

impl Record {
    pub(super) fn to_disk(&self) -> [u8; RECORD_BYTES] {
        let mut fields = Vec::with_capacity(RECORD_BYTES);
        (self.kind, self.object).encode(&mut fields);
        (self.behind, self.copy).encode(&mut fields);
        (self.bytes.start, self.bytes.end).encode(&mut fields);
        sealed(&fields)
    }

    fn from_disk(bytes: &[u8]) -> Option<Self> {
        if !is_sealed(bytes) {
            return None;
        }
        let mut r = Reader::new(&bytes[..bytes.len() - 4]);
        let mut parse = || -> Result<_, DecodeError> {
            let (kind, object) = Decode::decode(&mut r)?;
            let (behind, copy) = Decode::decode(&mut r)?;
            let (start, end): (u64, u64) = Decode::decode(&mut r)?;
            Ok(Self { kind, object, behind, copy, bytes: start..end })
        };
        parse().ok().filter(|record| record.bytes.start < record.bytes.end)
    }
}

/// The records of a log, and how many bytes of it hold them. `None`: it is
/// damaged. (A record at the very end that was not written whole is none.)
pub(super) fn read(bytes: &[u8], identity: TargetIdentity) -> Option<(Vec<Record>, usize)> {
    let (start, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    if start != head(identity) {
        return None;
    }
    let mut records = Vec::with_capacity(rest.len() / RECORD_BYTES);
    for (i, one) in rest.chunks(RECORD_BYTES).enumerate() {
        match (one.len() == RECORD_BYTES).then(|| Record::from_disk(one)).flatten() {
            Some(record) => records.push(record),
            // What follows was never confirmed, or there is a hole in the middle.
            None => {
                let later = &rest[(i * RECORD_BYTES + one.len())..];
                let good = |r: &[u8]| r.len() == RECORD_BYTES && is_sealed(r);
                if later.chunks(RECORD_BYTES).any(good) {
                    return None;
                }
                break;
            }
        }
    }
    let used = HEAD_BYTES + records.len() * RECORD_BYTES;
    Some((records, used))
}
