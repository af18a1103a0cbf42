//! What encoding has done.

use crate::finding::Finding;
use crate::state::Usage;
use serde::Serialize;

/// What encoding has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Encoded {
    /// Sets that were made.
    pub sets: u64,
    /// Files that were encoded.
    pub files: u64,
    /// Copies that were removed.
    pub removed_copies: u64,
    /// Bytes of these.
    pub removed_bytes: u64,
    /// Sets that are gone since enough of their files was removed.
    pub cleaned: u64,
    /// Files that stay as copies until they are older.
    pub waiting: u64,
    /// Bytes of all copies of these.
    pub waiting_bytes: u64,
    /// How much there is now.
    pub usage: Usage,
    /// What was not encoded, since something is wrong with it.
    pub left: Vec<Finding>,
}
