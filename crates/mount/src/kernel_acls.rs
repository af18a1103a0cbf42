//! Files of which the kernel may have an access control list, or know that there is none.
//!
//! The table is bounded: for one more than [`MAX_ACLS`] the one that the kernel was told of longest
//! ago is forgotten. The root is never that one: each path begins there.

use crate::fuse::NodeId;
use std::collections::{BTreeMap, HashMap};
use weir_types::FileId;

/// As many as the client keeps attributes of.
pub(crate) const MAX_ACLS: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct KernelAcls {
    /// The numbers under which the kernel has each, and when it was told first.
    files: HashMap<FileId, (u64, Vec<NodeId>)>,
    by_age: BTreeMap<u64, FileId>,
    next: u64,
}

impl KernelAcls {
    /// The kernel is about to be told of a list. Returns the nodes of another file, which it has
    /// to forget, if there are too many.
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

    /// The nodes of a file, which is in the table no more.
    pub(crate) fn take(&mut self, file: FileId) -> Vec<NodeId> {
        let Some((age, nodes)) = self.files.remove(&file) else { return Vec::new() };
        if self.by_age.get(&age) == Some(&file) {
            self.by_age.remove(&age);
        }
        nodes
    }

    /// All nodes; the table is empty then.
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
