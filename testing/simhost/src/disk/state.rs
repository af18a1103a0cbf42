//! The whole of a disk: its tree of names, its files, and what of both is
//! durable. Names change here, in order; which of them last is `power.rs`.
//!
//! Invariants: a file has at most one name that is seen and one that is
//! durable; `used_pages` counts the files that have a seen name or are open;
//! what has no name at all, is not open and does not occur in a change that
//! waits is forgotten.

use super::faults::Faults;
use super::file_node::FileNode;
use super::latency::{Latency, Rate};
use rustix::io::{Errno, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The inode of the root directory.
pub(super) const ROOT: u64 = 1;
/// So many changes of names may wait; then the older half becomes durable, as
/// a kernel does that commits its journal now and then.
const MAX_NAME_CHANGES: usize = 65_536;
const MAX_NAME_BYTES: usize = 255;
/// Files and directories that a disk can hold.
pub(super) const MAX_INODES: u64 = 1 << 22;

pub(super) type Names = BTreeMap<Arc<str>, u64>;

#[derive(Clone, Debug, Default)]
pub(super) struct DirectoryNode {
    pub(super) seen: Arc<Names>,
    pub(super) durable: Arc<Names>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    File(FileNode),
    Directory(DirectoryNode),
}

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) kind: Kind,
    /// Whether it has a seen name.
    pub(super) linked: bool,
    /// Whether it has a durable name.
    pub(super) durably_linked: bool,
}

/// A change of names that is not durable yet.
#[derive(Clone, Debug)]
pub(super) struct NameChange {
    pub(super) seq: u64,
    pub(super) inode: u64,
    /// The directory and name that it loses.
    pub(super) from: Option<(u64, Arc<str>)>,
    /// The directory and name that it gets, in place of what had it.
    pub(super) to: Option<(u64, Arc<str>)>,
}

impl NameChange {
    /// The names that it touches.
    pub(super) fn names(&self) -> impl Iterator<Item = &(u64, Arc<str>)> {
        self.from.iter().chain(&self.to)
    }
}

#[derive(Clone)]
pub(super) struct State {
    pub(super) inodes: BTreeMap<u64, Arc<Inode>>,
    pub(super) name_changes: Vec<NameChange>,
    /// Inodes that lost their seen name and may be forgotten some time.
    orphans: BTreeSet<u64>,
    /// How many handles an inode has.
    open: BTreeMap<u64, u32>,
    /// Who locked an inode: the process, and which lock of the disk it was.
    pub(super) locks: BTreeMap<u64, (u64, u64)>,
    next_inode: u64,
    pub(super) seq: u64,
    /// Counts the power cuts: handles of before are dead.
    pub(super) boot: u64,
    pub(super) used_pages: u64,
    pub(super) total_bytes: u64,
    /// Used by what is not in this model.
    pub(super) others_bytes: u64,
    pub(super) rng: fastrand::Rng,
    pub(super) faults: Faults,
    pub(super) latency: Latency,
    /// No operation that takes time ends before.
    pub(super) hangs_until: Duration,
    pub(super) rate: Rate,
    /// Of eight power cuts, in so many the changes of a directory may be lost
    /// out of order, though those of each name keep theirs.
    pub(super) loose_names_of_8: u8,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        let mut state = Self {
            inodes: BTreeMap::new(),
            name_changes: Vec::new(),
            orphans: BTreeSet::new(),
            open: BTreeMap::new(),
            locks: BTreeMap::new(),
            next_inode: ROOT + 1,
            seq: 0,
            boot: 0,
            used_pages: 0,
            total_bytes: 1 << 40,
            others_bytes: 0,
            rng: fastrand::Rng::with_seed(seed),
            faults: Faults::default(),
            latency: Latency::default(),
            hangs_until: Duration::ZERO,
            rate: Rate::default(),
            loose_names_of_8: 2,
        };
        state.clear();
        state
    }

    /// An empty disk; handles are dead.
    pub(super) fn clear(&mut self) {
        let kind = Kind::Directory(DirectoryNode::default());
        let root = Inode { kind, linked: true, durably_linked: true };
        self.inodes = BTreeMap::from([(ROOT, Arc::new(root))]);
        self.name_changes = Vec::new();
        self.used_pages = 0;
        self.forget_handles();
        self.boot += 1;
    }

    /// There is no handle and no lock.
    pub(super) fn forget_handles(&mut self) {
        self.open.clear();
        self.locks.clear();
        self.orphans = self.inodes.iter().filter(|(_, i)| !i.linked).map(|(n, _)| *n).collect();
    }

    /// Closes and unlocks everything.
    pub(super) fn close_all(&mut self) {
        let open = std::mem::take(&mut self.open);
        for inode in open.keys().filter_map(|number| self.inodes.get(number)) {
            if !inode.linked {
                self.used_pages -= inode.used_pages();
            }
        }
        self.forget_handles();
        self.sweep();
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    pub(super) fn inode(&self, inode: u64) -> Result<&Inode> {
        self.inodes.get(&inode).map(|i| &**i).ok_or(Errno::NOENT)
    }

    pub(super) fn file(&self, inode: u64) -> Result<&FileNode> {
        match &self.inode(inode)?.kind {
            Kind::File(file) => Ok(file),
            Kind::Directory(_) => Err(Errno::ISDIR),
        }
    }

    pub(super) fn directory(&self, inode: u64) -> Result<&DirectoryNode> {
        match &self.inode(inode)?.kind {
            Kind::File(_) => Err(Errno::NOTDIR),
            Kind::Directory(directory) => Ok(directory),
        }
    }

    /// Changes a file and keeps the count of used pages.
    pub(super) fn change_file<T>(
        &mut self,
        inode: u64,
        change: impl FnOnce(&mut FileNode) -> T,
    ) -> Result<T> {
        let open = self.open.contains_key(&inode);
        let inode = Arc::make_mut(self.inodes.get_mut(&inode).ok_or(Errno::NOENT)?);
        let Kind::File(file) = &mut inode.kind else {
            return Err(Errno::ISDIR);
        };
        let before = file.seen.allocated_pages();
        let result = change(file);
        if inode.linked || open {
            self.used_pages = self.used_pages + file.seen.allocated_pages() - before;
        }
        Ok(result)
    }

    pub(super) fn directory_mut(&mut self, inode: u64) -> Result<&mut DirectoryNode> {
        let inode = Arc::make_mut(self.inodes.get_mut(&inode).ok_or(Errno::NOENT)?);
        match &mut inode.kind {
            Kind::File(_) => Err(Errno::NOTDIR),
            Kind::Directory(directory) => Ok(directory),
        }
    }

    /// The inode of a path that begins in `from`.
    pub(super) fn find(&self, from: u64, path: &str) -> Result<u64> {
        let mut at = from;
        if !path.is_empty() {
            for name in path.split('/') {
                check_name(name)?;
                at = *self.directory(at)?.seen.get(name).ok_or(Errno::NOENT)?;
            }
        }
        Ok(at)
    }

    /// The directory that holds the last name of a path, and that name.
    pub(super) fn find_parent<'a>(&self, from: u64, path: &'a str) -> Result<(u64, &'a str)> {
        let (parent, name) = match path.rsplit_once('/') {
            Some((parent, name)) => (self.find(from, parent)?, name),
            None => (from, path),
        };
        check_name(name)?;
        self.directory(parent)?;
        Ok((parent, name))
    }

    /// Makes an empty file or directory with this name.
    pub(super) fn create(&mut self, parent: u64, name: &str, kind: Kind) -> Result<u64> {
        if self.inodes.len() as u64 >= MAX_INODES {
            return Err(Errno::NOSPC);
        }
        let inode = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(inode, Arc::new(Inode { kind, linked: false, durably_linked: false }));
        self.change_name(inode, None, Some((parent, name.into())))?;
        Ok(inode)
    }

    /// Takes a name away from, or gives one to, an inode, or both.
    pub(super) fn change_name(
        &mut self,
        inode: u64,
        from: Option<(u64, Arc<str>)>,
        to: Option<(u64, Arc<str>)>,
    ) -> Result<()> {
        if self.name_changes.len() >= MAX_NAME_CHANGES {
            self.commit_names(None, self.name_changes[MAX_NAME_CHANGES / 2].seq);
        }
        if let Some((directory, name)) = &from {
            Arc::make_mut(&mut self.directory_mut(*directory)?.seen).remove(name);
        }
        let mut replaced = None;
        if let Some((directory, name)) = &to {
            let names = Arc::make_mut(&mut self.directory_mut(*directory)?.seen);
            replaced = names.insert(name.clone(), inode);
        }
        let linked = to.is_some();
        let seq = self.next_seq();
        self.name_changes.push(NameChange { seq, inode, from, to });
        self.set_linked(inode, linked);
        if let Some(replaced) = replaced.filter(|r| *r != inode) {
            self.set_linked(replaced, false);
        }
        Ok(())
    }

    fn set_linked(&mut self, number: u64, linked: bool) {
        let open = self.open.contains_key(&number);
        let Some(inode) = self.inodes.get_mut(&number) else { return };
        let was = inode.linked || open;
        Arc::make_mut(inode).linked = linked;
        let pages = inode.used_pages();
        match (was, linked || open) {
            (false, true) => self.used_pages += pages,
            (true, false) => self.used_pages -= pages,
            _ => {}
        }
        if linked {
            self.orphans.remove(&number);
        } else {
            self.orphans.insert(number);
        }
    }

    /// One more handle.
    pub(super) fn open(&mut self, inode: u64) {
        *self.open.entry(inode).or_default() += 1;
    }

    /// One handle less.
    pub(super) fn close(&mut self, number: u64) {
        let Some(handles) = self.open.get_mut(&number) else { return };
        *handles -= 1;
        if *handles > 0 {
            return;
        }
        self.open.remove(&number);
        if let Some(inode) = self.inodes.get(&number).filter(|i| !i.linked) {
            self.used_pages -= inode.used_pages();
            self.sweep();
        }
    }

    /// Forgets inodes that nothing can bring back.
    fn sweep(&mut self) {
        if self.orphans.is_empty() {
            return;
        }
        let waiting: BTreeSet<u64> = self.name_changes.iter().map(|c| c.inode).collect();
        let (inodes, open) = (&mut self.inodes, &self.open);
        self.orphans.retain(|number| {
            let durable = inodes.get(number).is_some_and(|i| i.durably_linked);
            let keep = durable || open.contains_key(number) || waiting.contains(number);
            if !keep {
                inodes.remove(number);
            }
            keep
        });
    }

    /// Makes names durable that changed up to `mark`: those of one directory
    /// (and what a rename that touches it drags along), or all.
    pub(super) fn commit_names(&mut self, directory: Option<u64>, mark: u64) {
        let mut directories: BTreeSet<u64> = directory.into_iter().collect();
        let mut kept = Vec::new();
        let mut committed = Vec::new();
        for change in std::mem::take(&mut self.name_changes).into_iter().rev() {
            let wanted =
                directory.is_none() || change.names().any(|(d, _)| directories.contains(d));
            if wanted && change.seq <= mark {
                directories.extend(change.names().map(|(d, _)| *d));
                committed.push(change);
            } else {
                kept.push(change);
            }
        }
        kept.reverse();
        self.name_changes = kept;
        for change in committed.iter().rev() {
            self.make_durable(change);
        }
        self.sweep();
    }

    /// What waits in this directory, or anywhere, never becomes durable.
    pub(super) fn forget_name_changes(&mut self, directory: Option<u64>) {
        self.name_changes.retain(|change| {
            directory.is_some_and(|directory| change.names().all(|(d, _)| *d != directory))
        });
        self.sweep();
    }

    /// Whether `inode` is `ancestor` or somewhere in it.
    pub(super) fn is_within(&self, inode: u64, ancestor: u64) -> bool {
        let mut waiting = vec![ancestor];
        while let Some(at) = waiting.pop() {
            if at == inode {
                return true;
            }
            if let Ok(directory) = self.directory(at) {
                waiting.extend(directory.seen.values());
            }
        }
        false
    }

    /// Does it to the durable names.
    pub(super) fn make_durable(&mut self, change: &NameChange) {
        if let Some((directory, name)) = &change.from
            && let Ok(directory) = self.directory_mut(*directory)
            && directory.durable.get(name) == Some(&change.inode)
        {
            Arc::make_mut(&mut directory.durable).remove(name);
        }
        let mut replaced = None;
        if let Some((directory, name)) = &change.to
            && let Ok(directory) = self.directory_mut(*directory)
        {
            replaced = Arc::make_mut(&mut directory.durable).insert(name.clone(), change.inode);
        }
        if let Some(replaced) = replaced.filter(|r| *r != change.inode) {
            self.set_durably_linked(replaced, false);
        }
        self.set_durably_linked(change.inode, change.to.is_some());
    }

    fn set_durably_linked(&mut self, inode: u64, linked: bool) {
        if let Some(inode) = self.inodes.get_mut(&inode)
            && inode.durably_linked != linked
        {
            Arc::make_mut(inode).durably_linked = linked;
        }
    }

    /// Pages that a file may still take.
    pub(super) fn free_pages(&self) -> u64 {
        let ours = self.total_bytes.saturating_sub(self.others_bytes) / super::content::PAGE;
        ours.saturating_sub(self.used_pages)
    }

    /// Every path, with its inode, as processes see them, parents first.
    pub(super) fn tree(&self) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        self.walk(ROOT, "", &mut found);
        found
    }

    fn walk(&self, inode: u64, prefix: &str, found: &mut Vec<(String, u64)>) {
        let Ok(directory) = self.directory(inode) else { return };
        for (name, child) in directory.seen.iter() {
            let path = format!("{prefix}{name}");
            let inner = format!("{path}/");
            found.push((path, *child));
            self.walk(*child, &inner, found);
        }
    }
}

impl Inode {
    pub(super) fn used_pages(&self) -> u64 {
        match &self.kind {
            Kind::File(file) => file.seen.allocated_pages(),
            Kind::Directory(_) => 0,
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    match name {
        "" | "." | ".." => Err(Errno::INVAL),
        _ if name.len() > MAX_NAME_BYTES => Err(Errno::NAMETOOLONG),
        _ => Ok(()),
    }
}
