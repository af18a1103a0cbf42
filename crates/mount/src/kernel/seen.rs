//! Remembered states of files that were open.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use weir_types::{Attr, FileId};

/// The most files whose last state is remembered, so that their pages may stay cached.
const MAX_SEEN: usize = 1 << 16;

/// State of each file when it was last opened. If it has not changed, the kernel's cached pages are
/// still valid.
#[derive(Default)]
pub(crate) struct Seen {
    changes: Mutex<HashMap<FileId, u64>>,
}

impl Seen {
    /// Whether the file has the last remembered state. Remembers the present one.
    pub(crate) fn same(&self, attr: &Attr) -> bool {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.len() >= MAX_SEEN {
            changes.clear();
        }
        changes.insert(attr.file, attr.change) == Some(attr.change)
    }

    /// Forgets all states.
    pub(crate) fn clear(&self) {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
