//! Node ids of directories.
//!
//! The number of a file is its id, and usually so is a directory's. But the kernel assumes that a
//! directory is at one place, and if it finds one elsewhere (another mount has moved it) it moves
//! its own entry there. For that it needs locks that it cannot wait for: a `rename` that finds one
//! fails with `ESTALE`, because it holds them itself. So a directory that is found in another
//! directory than the kernel has it in gets one more number, an alias: to the kernel it is another
//! directory, with the same inode number. Programs with the old one open go on using it.
//!
//! Entries are kept for each directory that the kernel has not dropped, so the kernel bounds them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_fuse::NodeId;
use weir_types::{Attr, FileId, FileKind};

/// Bit in the numbers of aliases. File ids are always below it.
const ALIAS: NodeId = 1 << 63;
/// The most directories of a path that are looked at.
const MAX_ABOVE: usize = 256;

/// A name in a directory of the kernel.
type Name = (NodeId, Box<[u8]>);

/// The kernel's place of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Unknown: it was found by its number, and may get any place.
    Nowhere,
    /// In this directory. The name is unknown if another directory was found there since.
    In(NodeId, Option<Box<[u8]>>),
    /// Removed by this kernel.
    Removed,
}

/// A number of a directory that the kernel knows.
#[derive(Debug)]
struct Held {
    node: NodeId,
    place: Place,
    lookups: u64,
}

impl Held {
    fn is_in(&self, dir: NodeId) -> bool {
        matches!(self.place, Place::In(parent, _) if parent == dir)
    }

    fn is_at(&self, dir: NodeId, name: &[u8]) -> bool {
        matches!(&self.place, Place::In(parent, Some(at)) if *parent == dir && **at == *name)
    }
}

#[derive(Debug, Default)]
struct Table {
    held: HashMap<FileId, Vec<Held>>,
    /// The directory of each alias.
    aliases: HashMap<NodeId, FileId>,
    /// The last result under each name.
    at: HashMap<Name, (FileId, NodeId)>,
    /// Last told attributes of each known directory, and of files that the kernel has removed and
    /// not dropped.
    last: HashMap<FileId, Attr>,
    given: u64,
}

/// All directories that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    table: Mutex<Table>,
}

impl Nodes {
    /// The file of a node id; `None` if it was dropped.
    pub(crate) fn file(&self, node: NodeId) -> Option<FileId> {
        if node & ALIAS == 0 {
            return Some(FileId(node));
        }
        self.lock().file(node)
    }

    /// The parent of a directory according to the kernel; for the root, itself.
    pub(crate) fn parent(&self, node: NodeId) -> Option<FileId> {
        if node == FileId::ROOT.0 {
            return Some(FileId::ROOT);
        }
        self.lock().parent(node)
    }

    /// The directory of a node id, the one that the kernel has it in, and so on, at most
    /// [`MAX_ABOVE`].
    pub(crate) fn above(&self, node: NodeId) -> Vec<FileId> {
        let table = self.lock();
        let up = |node: &NodeId| match table.place(*node)? {
            Place::In(parent, _) => Some(*parent),
            Place::Nowhere | Place::Removed => None,
        };
        let nodes = std::iter::successors(Some(node), up).take(MAX_ABOVE);
        nodes.map_while(|node| table.file(node)).collect()
    }

    /// The node id of a directory that the kernel is told to be at this place.
    pub(crate) fn found(&self, dir: &Attr, parent: NodeId, name: &[u8]) -> NodeId {
        let mut table = self.lock();
        table.last.insert(dir.file, dir.clone());
        table.found(dir.file, parent, name)
    }

    /// The node id of a directory that the kernel is told of without a place.
    pub(crate) fn found_by_number(&self, dir: &Attr, node: Option<NodeId>) -> NodeId {
        let mut table = self.lock();
        if dir.file != FileId::ROOT {
            table.last.insert(dir.file, dir.clone());
        }
        table.found_by_number(dir.file, node)
    }

    /// Records told attributes of a file, if the kernel has it as a directory.
    pub(crate) fn is_told(&self, attr: &Attr) {
        if attr.kind == FileKind::Directory
            && let Some(last) = self.lock().last.get_mut(&attr.file)
        {
            last.clone_from(attr);
        }
    }

    /// Whether the kernel has a directory under this number.
    pub(crate) fn is_known(&self, node: NodeId) -> bool {
        let table = self.lock();
        let file = table.file(node);
        node == FileId::ROOT.0
            || file
                .and_then(|file| table.held.get(&file))
                .is_some_and(|held| held.iter().any(|held| held.node == node))
    }

    /// Whether the kernel has a directory under several numbers.
    pub(crate) fn has_several(&self, file: FileId) -> bool {
        self.lock().held.get(&file).is_some_and(|held| held.len() > 1)
    }

    /// Whether the kernel has the file as a directory.
    pub(crate) fn is_directory(&self, file: FileId) -> bool {
        self.lock().held.contains_key(&file)
    }

    /// Records that the kernel has dropped this many lookups of a node id.
    pub(crate) fn forget(&self, node: NodeId, lookups: u64) {
        self.lock().forget(node, lookups);
    }

    /// Records that the kernel is told of its rename, replacing or exchanging.
    pub(crate) fn moved(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), exchange: bool) {
        self.lock().moved(from, to, exchange);
    }

    /// Records that a name of a file was removed here. The kernel still has the file until it
    /// reports the drop.
    pub(crate) fn has_lost_a_name(&self, left: Attr) {
        if left.nlink == 0 && left.kind != FileKind::Directory {
            self.lock().last.insert(left.file, left);
        }
    }

    /// Last attributes of a file that was removed here, or of a directory that was removed on any
    /// mount.
    pub(crate) fn gone(&self, file: FileId) -> Option<Attr> {
        let last = self.lock().last.get(&file).cloned();
        last.map(|last| Attr { nlink: 0, ..last })
    }

    /// Changes those attributes, because nothing else is left to change.
    pub(crate) fn change_gone(&self, file: FileId, change: impl FnOnce(&mut Attr)) -> Option<Attr> {
        let mut table = self.lock();
        let last = table.last.get_mut(&file)?;
        last.nlink = 0;
        change(last);
        Some(last.clone())
    }

    /// Records that the kernel is told of its removal of a directory. Returns that directory, if the
    /// kernel knew it.
    pub(crate) fn removed(&self, parent: NodeId, name: &[u8]) -> Option<FileId> {
        let mut table = self.lock();
        let gone = table.at.get(&(parent, name.into())).copied()?;
        table.put(gone, Place::Removed);
        Some(gone.0)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn file(&self, node: NodeId) -> Option<FileId> {
        if node & ALIAS == 0 { Some(FileId(node)) } else { self.aliases.get(&node).copied() }
    }

    fn parent(&self, node: NodeId) -> Option<FileId> {
        match self.place(node)? {
            Place::In(parent, _) => self.file(*parent),
            Place::Nowhere | Place::Removed => None,
        }
    }

    fn place(&self, node: NodeId) -> Option<&Place> {
        let held = self.held.get(&self.file(node)?)?;
        Some(&held.iter().find(|held| held.node == node)?.place)
    }

    fn found(&mut self, file: FileId, parent: NodeId, name: &[u8]) -> NodeId {
        let held = self.held.entry(file).or_default();
        if let Some(there) = held.iter_mut().find(|held| held.is_at(parent, name)) {
            there.lookups += 1;
            return there.node;
        }
        // Within one directory the kernel needs no locks to move what it has.
        let near = held.iter().position(|held| held.is_in(parent));
        let near = near.or_else(|| held.iter().position(|held| held.place == Place::Nowhere));
        let node = match near.and_then(|near| held.get_mut(near)) {
            Some(near) => {
                near.lookups += 1;
                near.node
            }
            None => self.add(file),
        };
        self.put((file, node), Place::In(parent, Some(name.into())));
        node
    }

    fn found_by_number(&mut self, file: FileId, node: Option<NodeId>) -> NodeId {
        if file == FileId::ROOT {
            return file.0;
        }
        let held = self.held.entry(file).or_default();
        match held.iter_mut().find(|held| node.is_none_or(|node| node == held.node)) {
            Some(held) => {
                held.lookups += 1;
                held.node
            }
            None => self.add(file),
        }
    }

    /// Adds a number for a directory, without a place.
    fn add(&mut self, file: FileId) -> NodeId {
        let held = self.held.entry(file).or_default();
        let node = if held.iter().any(|held| held.node == file.0) {
            self.given += 1;
            self.aliases.insert(ALIAS | self.given, file);
            ALIAS | self.given
        } else {
            file.0
        };
        held.push(Held { node, place: Place::Nowhere, lookups: 1 });
        node
    }

    fn get_mut(&mut self, (file, node): (FileId, NodeId)) -> Option<&mut Held> {
        self.held.get_mut(&file)?.iter_mut().find(|held| held.node == node)
    }

    /// Sets the kernel's place of a directory.
    fn put(&mut self, which: (FileId, NodeId), place: Place) {
        let Some(held) = self.get_mut(which) else { return };
        let old = std::mem::replace(&mut held.place, place.clone());
        if let Place::In(parent, Some(name)) = old {
            self.at.remove(&(parent, name));
        }
        if let Place::In(parent, Some(name)) = place
            && let Some(before) = self.at.insert((parent, name), which)
            && let Some(before) = self.get_mut(before)
        {
            before.place = Place::In(parent, None);
        }
    }

    fn moved(&mut self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), exchange: bool) {
        let at = |(parent, name): (NodeId, &[u8])| (parent, Box::from(name));
        let source = self.at.get(&at(from)).copied();
        let target = self.at.get(&at(to)).copied();
        if let Some(target) = target {
            let place = Place::In(from.0, Some(from.1.into()));
            self.put(target, if exchange { place } else { Place::Removed });
        }
        if let Some(source) = source {
            self.put(source, Place::In(to.0, Some(to.1.into())));
        }
    }

    fn forget(&mut self, node: NodeId, lookups: u64) {
        let file = self.aliases.get(&node).copied().unwrap_or(FileId(node));
        let Some(all) = self.held.get_mut(&file) else {
            self.last.remove(&file);
            return;
        };
        let Some(at) = all.iter().position(|held| held.node == node) else { return };
        let Some(held) = all.get_mut(at) else { return };
        held.lookups = held.lookups.saturating_sub(lookups);
        if held.lookups > 0 {
            return;
        }
        let gone = all.swap_remove(at);
        if all.is_empty() {
            self.held.remove(&file);
            self.last.remove(&file);
        }
        self.aliases.remove(&node);
        if let Place::In(parent, Some(name)) = gone.place {
            self.at.remove(&(parent, name));
        }
    }
}

#[cfg(test)]
#[path = "nodes_tests.rs"]
mod tests;
