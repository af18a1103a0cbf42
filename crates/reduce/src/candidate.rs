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
    /// Bytes.
    pub len: u64,
    /// What it was when it was encoded the last time.
    pub expected: Option<Hash>,
    /// More than the number of any set that it was in.
    pub again: u64,
    /// The sets that it is in, which go.
    pub sets: Vec<SetId>,
}
