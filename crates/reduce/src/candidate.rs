//! Files that may become members of a set.

use crate::copy::Copy;
use crate::record::SetId;
use blake3::Hash;
use std::collections::BTreeMap;
use weir_types::TargetId;

/// A file that may become a member.
#[derive(Clone)]
pub struct Candidate {
    /// Its path in each target.
    pub path: String,
    /// Its copies.
    pub copies: BTreeMap<TargetId, Copy>,
    /// Length of the file, bytes.
    pub len: u64,
    /// The hash of the file when it was last encoded.
    pub expected: Option<Hash>,
    /// More than `again` of every set that has contained the file.
    pub again: u64,
    /// The stale sets that contain the file.
    pub sets: Vec<SetId>,
}
