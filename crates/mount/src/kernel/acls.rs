//! Files of which the kernel may have an access control list, or know that there is none.
//!
//! The table is bounded: beyond [`MAX_ACLS`] the oldest entry is dropped. The root is never
//! dropped: each path begins there.

use std::collections::{BTreeMap, HashMap};
use weir_fuse::NodeId;
use weir_types::FileId;

/// The most entries: as many as the client caches attributes.
pub(crate) const MAX_ACLS: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct KernelAcls {
    /// Node ids of each file, and when the kernel was first told.
    files: HashMap<FileId, (u64, Vec<NodeId>)>,
    by_age: BTreeMap<u64, FileId>,
    next: u64,
}

impl KernelAcls {
    /// Records that the kernel is about to be told of a list. Returns the nodes of another file,
    /// which it has to drop, if there are too many.
    pub(crate) fn told(&mut self, file: FileId, node: NodeId) -> Vec<NodeId> {
        let mut forgotten = Vec::new();
        if !self.files.contains_key(&file) {
            if self.files.len() >= MAX_ACLS
                && let Some((_, oldest)) = self.by_age.pop_first()
            {
                forgotten = self.files.remove(&oldest).map(|(_, nodes)| nodes).unwrap_or_default();
            }
            if file != FileId::ROOT {
                self.next += 1;
                self.by_age.insert(self.next, file);
            }
            self.files.insert(file, (self.next, Vec::new()));
        }
        if let Some((_, nodes)) = self.files.get_mut(&file)
            && !nodes.contains(&node)
        {
            nodes.push(node);
        }
        forgotten
    }

    /// Removes a file and returns its nodes.
    pub(crate) fn take(&mut self, file: FileId) -> Vec<NodeId> {
        let Some((age, nodes)) = self.files.remove(&file) else { return Vec::new() };
        if self.by_age.get(&age) == Some(&file) {
            self.by_age.remove(&age);
        }
        nodes
    }

    /// Empties the table and returns all nodes.
    pub(crate) fn take_all(&mut self) -> Vec<NodeId> {
        let Self { files, by_age, .. } = self;
        by_age.clear();
        files.drain().flat_map(|(_, (_, nodes))| nodes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_was_told_longest_ago_makes_room_and_never_the_root() {
        let mut acls = KernelAcls::default();
        assert_eq!(acls.told(FileId::ROOT, 1), []);
        for n in 2..=MAX_ACLS as u64 {
            assert_eq!(acls.told(FileId(n), n), []);
        }
        assert_eq!(acls.told(FileId(7), 7_000_000), [], "it is there under two numbers");
        assert_eq!(acls.take(FileId(2)), [2]);
        assert_eq!(acls.told(FileId(2), 2), []);
        assert_eq!(acls.told(FileId(1 << 40), 1 << 40), [3]);
        assert_eq!(acls.take(FileId(7)), [7, 7_000_000]);
        let mut all = acls.take_all();
        all.sort_unstable();
        assert_eq!((all.len(), all[0], all[1]), (MAX_ACLS - 1, 1, 2));
        assert_eq!(acls.take(FileId::ROOT), []);
    }
}
