//! The record of a quota: limits and use.

use weir_types::codec::{DecodeError, Reader};
use weir_types::{Decode, Encode, FileId};
use weir_wire::quota::QuotaLimits;

/// [`QuotaRecord::counted_to`] when all files have been counted.
pub const ALL_COUNTED: FileId = FileId(u64::MAX);

/// A stored quota. `used_*` are the sums over all inodes with ids below `counted_to`, at any
/// moment, in every transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaRecord {
    /// Limits.
    pub limits: QuotaLimits,
    /// Used bytes. Sparse files can have 4 EiB each, so that 64 bits do not hold their sum.
    pub used_bytes: u128,
    /// Number of files.
    pub used_files: u64,
    /// Files from this id on are not counted yet.
    pub counted_to: FileId,
}

impl Encode for QuotaRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        self.limits.encode(out);
        self.used_bytes.to_le_bytes().encode(out);
        self.used_files.encode(out);
        self.counted_to.encode(out);
    }
}

impl Decode for QuotaRecord {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            limits: Decode::decode(r)?,
            used_bytes: u128::from_le_bytes(Decode::decode(r)?),
            used_files: Decode::decode(r)?,
            counted_to: Decode::decode(r)?,
        })
    }
}
