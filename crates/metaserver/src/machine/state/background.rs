//! Background work in the namespace that is still to be done. All of it is recorded in the store, so
//! that none is forgotten; the state in memory only says where to look.

use std::collections::{BTreeMap, VecDeque};
use weir_types::{FileId, SessionId, TargetId};

/// Pending work.
#[derive(Debug)]
pub struct Background {
    /// Files without names that are not open any more.
    pub collect: VecDeque<FileId>,
    /// Ended sessions.
    pub ended: VecDeque<SessionId>,
    /// Whether there may be dead lists.
    pub dead_lists: bool,
    /// Where the next garbage of each target begins.
    pub garbage_from: BTreeMap<TargetId, Vec<u8>>,
    /// Whether the store may have files without names that are not in memory.
    pub orphans_unknown: bool,
    /// Whether clients may still report their open files.
    pub settling: bool,
    /// Whether the last step counted for quotas.
    pub counted: bool,
}

impl Default for Background {
    fn default() -> Self {
        Self {
            collect: VecDeque::new(),
            ended: VecDeque::new(),
            dead_lists: true,
            garbage_from: BTreeMap::new(),
            orphans_unknown: true,
            settling: true,
            counted: false,
        }
    }
}

impl Background {
    /// Adds a file without a name that is not open any more.
    pub fn collect(&mut self, file: FileId) {
        self.collect.push_back(file);
    }

    /// Searches the store again for work that a transaction may have left.
    pub fn look_again(&mut self) {
        self.dead_lists = true;
        self.orphans_unknown = true;
    }

    /// Whether nothing is to be done, and nothing to be searched for.
    pub fn is_idle(&self) -> bool {
        let unknown = self.dead_lists || self.orphans_unknown;
        self.collect.is_empty() && self.ended.is_empty() && !unknown
    }
}
