//! The result of `weir reduce encode`.

use crate::finding::Finding;
use crate::state::Usage;
use serde::Serialize;

/// The result of encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Encoded {
    /// Sets that were made.
    pub sets: u64,
    /// Files that were encoded.
    pub files: u64,
    /// Copies that were removed.
    pub removed_copies: u64,
    /// Bytes of the removed copies.
    pub removed_bytes: u64,
    /// Sets that were dissolved because enough of their files was removed.
    pub cleaned: u64,
    /// Files that stay as copies until they are older.
    pub waiting: u64,
    /// Bytes of all copies of the waiting files.
    pub waiting_bytes: u64,
    /// Space usage after the command.
    pub usage: Usage,
    /// Findings about files that were not encoded.
    pub left: Vec<Finding>,
}
