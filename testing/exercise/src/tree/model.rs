//! A model of Linux's behaviour, without a disk. The caller is root, so permission bits refuse
//! nothing.

use super::op::{Answer, Kind, Op, Over, Said, Set};
use super::snapshot::{Entry, Snapshot};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};

const ROOT: u64 = 1;
/// Maximum number of links that the kernel follows.
const MAX_LINKS: u32 = 40;
/// Mode of new files; the umask does not change it.
pub const FILE_MODE: u32 = 0o600;
/// Mode of new directories.
pub const DIR_MODE: u32 = 0o700;

#[derive(Clone, Debug)]
enum Body {
    File(Vec<u8>),
    Dir(BTreeMap<String, u64>),
    Symlink(String),
}

#[derive(Clone, Debug)]
struct Node {
    body: Body,
    mode: u32,
    xattrs: BTreeMap<String, Vec<u8>>,
}

impl Node {
    fn kind(&self) -> Kind {
        match self.body {
            Body::File(_) => Kind::File,
            Body::Dir(_) => Kind::Dir,
            Body::Symlink(_) => Kind::Symlink,
        }
    }
}

/// A resolved path: an existing directory, a name in it, and the inode of that name, if any.
struct Found {
    dir: u64,
    name: String,
    node: Option<u64>,
}

/// The model of a tree.
pub struct Model {
    nodes: BTreeMap<u64, Node>,
    next: u64,
}

impl Model {
    /// An empty root.
    pub fn new() -> Self {
        let root =
            Node { body: Body::Dir(BTreeMap::new()), mode: DIR_MODE, xattrs: BTreeMap::new() };
        Self { nodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1 }
    }

    fn node(&self, id: u64) -> Result<&Node, Errno> {
        self.nodes.get(&id).ok_or(Errno::NOENT)
    }

    fn node_mut(&mut self, id: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&id).ok_or(Errno::NOENT)
    }

    fn entries(&self, id: u64) -> Result<&BTreeMap<String, u64>, Errno> {
        match &self.node(id)?.body {
            Body::Dir(entries) => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn entries_mut(&mut self, id: u64) -> Result<&mut BTreeMap<String, u64>, Errno> {
        match &mut self.node_mut(id)?.body {
            Body::Dir(entries) => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn resolve(&self, path: &str, follow: bool) -> Result<Found, Errno> {
        let mut rest: VecDeque<String> = path.split('/').map(str::to_owned).collect();
        let (mut dir, mut links) = (ROOT, 0);
        loop {
            let name = rest.pop_front().ok_or(Errno::NOENT)?;
            let last = rest.is_empty();
            let Some(&id) = self.entries(dir)?.get(&name) else {
                return if last { Ok(Found { dir, name, node: None }) } else { Err(Errno::NOENT) };
            };
            match &self.node(id)?.body {
                Body::Symlink(target) if follow || !last => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP);
                    }
                    for name in target.rsplit('/') {
                        rest.push_front(name.to_owned());
                    }
                }
                _ if last => return Ok(Found { dir, name, node: Some(id) }),
                Body::Dir(_) => dir = id,
                _ => return Err(Errno::NOTDIR),
            }
        }
    }

    /// The inode of a path, following symbolic links.
    fn existing(&self, path: &str) -> Result<u64, Errno> {
        self.resolve(path, true)?.node.ok_or(Errno::NOENT)
    }

    fn links(&self, id: u64) -> u64 {
        let named = |entries: &BTreeMap<String, u64>| {
            entries.values().filter(|child| **child == id).count() as u64
        };
        match self.nodes.get(&id).map(|n| &n.body) {
            Some(Body::Dir(entries)) => {
                let is_dir = |id: &&u64| self.nodes.get(id).is_some_and(|n| n.kind() == Kind::Dir);
                2 + entries.values().filter(is_dir).count() as u64
            }
            _ => self
                .nodes
                .values()
                .map(|n| if let Body::Dir(entries) = &n.body { named(entries) } else { 0 })
                .sum(),
        }
    }

    fn add(&mut self, at: Found, body: Body, mode: u32) -> Said {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Node { body, mode, xattrs: BTreeMap::new() });
        self.entries_mut(at.dir)?.insert(at.name, id);
        Ok(Answer::Done)
    }

    fn remove(&mut self, at: &Found, id: u64) -> Result<(), Errno> {
        self.entries_mut(at.dir)?.remove(&at.name);
        self.forget(id);
        Ok(())
    }

    /// Drops an inode without names.
    fn forget(&mut self, id: u64) {
        let is_dir = self.nodes.get(&id).is_some_and(|n| n.kind() == Kind::Dir);
        if is_dir || self.links(id) == 0 {
            self.nodes.remove(&id);
        }
    }

    /// Whether an inode is another one or lies below it.
    fn is_within(&self, id: u64, above: u64) -> bool {
        if id == above {
            return true;
        }
        let Some(Body::Dir(entries)) = self.nodes.get(&above).map(|n| &n.body) else {
            return false;
        };
        entries.values().any(|child| self.is_within(id, *child))
    }

    /// Makes a call.
    pub fn perform(&mut self, op: &Op) -> Said {
        match op {
            Op::Create { path, exclusive, truncate } => self.create(path, *exclusive, *truncate),
            Op::Append { path, text } => {
                self.file(path)?.extend_from_slice(text.as_bytes());
                Ok(Answer::Done)
            }
            Op::Read { path } => Ok(Answer::Bytes(self.file(path)?.clone())),
            Op::Truncate { path, len } => {
                self.file(path)?.resize(*len as usize, 0);
                Ok(Answer::Done)
            }
            Op::MakeDir { path } => {
                let at = self.vacant(path)?;
                self.add(at, Body::Dir(BTreeMap::new()), DIR_MODE)
            }
            Op::Symlink { path, target } => {
                let at = self.vacant(path)?;
                self.add(at, Body::Symlink(target.clone()), 0o777)
            }
            Op::ReadLink { path } => {
                let id = self.resolve(path, false)?.node.ok_or(Errno::NOENT)?;
                match &self.node(id)?.body {
                    Body::Symlink(target) => Ok(Answer::Bytes(target.clone().into_bytes())),
                    _ => Err(Errno::INVAL),
                }
            }
            Op::RemoveDir { path } => self.remove_dir(path),
            Op::Unlink { path } => {
                let at = self.resolve(path, false)?;
                let id = at.node.ok_or(Errno::NOENT)?;
                if self.node(id)?.kind() == Kind::Dir {
                    return Err(Errno::ISDIR);
                }
                self.remove(&at, id).map(|()| Answer::Done)
            }
            Op::Link { from, to } => {
                let id = self.resolve(from, false)?.node.ok_or(Errno::NOENT)?;
                let at = self.vacant(to)?;
                if self.node(id)?.kind() == Kind::Dir {
                    return Err(Errno::PERM);
                }
                self.entries_mut(at.dir)?.insert(at.name, id);
                Ok(Answer::Done)
            }
            Op::Rename { from, to, over } => self.rename(from, to, *over),
            Op::Chmod { path, mode } => {
                let id = self.existing(path)?;
                self.node_mut(id)?.mode = *mode;
                Ok(Answer::Done)
            }
            Op::SetXattr { path, name, value, how } => {
                let id = self.existing(path)?;
                let xattrs = &mut self.node_mut(id)?.xattrs;
                match (how, xattrs.contains_key(*name)) {
                    (Set::New, true) => Err(Errno::EXIST),
                    (Set::Old, false) => Err(Errno::NODATA),
                    _ => {
                        xattrs.insert((*name).to_owned(), value.clone().into_bytes());
                        Ok(Answer::Done)
                    }
                }
            }
            Op::GetXattr { path, name } => {
                let node = self.node(self.existing(path)?)?;
                node.xattrs.get(*name).cloned().map(Answer::Bytes).ok_or(Errno::NODATA)
            }
            Op::RemoveXattr { path, name } => {
                let id = self.existing(path)?;
                let removed = self.node_mut(id)?.xattrs.remove(*name);
                removed.map(|_| Answer::Done).ok_or(Errno::NODATA)
            }
            Op::Stat { path, follow } => {
                let id = self.resolve(path, *follow)?.node.ok_or(Errno::NOENT)?;
                self.attributes(id)
            }
            Op::List { path } => {
                let entries = self.entries(self.existing(path)?)?;
                let kinds = entries.iter().map(|(n, id)| Ok((n.clone(), self.node(*id)?.kind())));
                kinds.collect::<Result<_, Errno>>().map(Answer::Entries)
            }
        }
    }

    fn vacant(&self, path: &str) -> Result<Found, Errno> {
        let at = self.resolve(path, false)?;
        if at.node.is_some() { Err(Errno::EXIST) } else { Ok(at) }
    }

    fn file(&mut self, path: &str) -> Result<&mut Vec<u8>, Errno> {
        let id = self.existing(path)?;
        match &mut self.node_mut(id)?.body {
            Body::File(bytes) => Ok(bytes),
            _ => Err(Errno::ISDIR),
        }
    }

    fn create(&mut self, path: &str, exclusive: bool, truncate: bool) -> Said {
        // Without O_EXCL, the target of a dangling link is created.
        let at = self.resolve(path, !exclusive)?;
        let Some(id) = at.node else {
            return self.add(at, Body::File(Vec::new()), FILE_MODE);
        };
        if exclusive {
            return Err(Errno::EXIST);
        }
        match &mut self.node_mut(id)?.body {
            Body::File(bytes) => {
                if truncate {
                    bytes.clear();
                }
                Ok(Answer::Done)
            }
            _ => Err(Errno::ISDIR),
        }
    }

    fn remove_dir(&mut self, path: &str) -> Said {
        let at = self.resolve(path, false)?;
        let id = at.node.ok_or(Errno::NOENT)?;
        if !self.entries(id)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.remove(&at, id).map(|()| Answer::Done)
    }

    fn rename(&mut self, from: &str, to: &str, over: Over) -> Said {
        let (old, new) = (self.resolve(from, false)?, self.resolve(to, false)?);
        let moved = old.node.ok_or(Errno::NOENT)?;
        match (over, new.node) {
            (Over::Keep, Some(_)) => return Err(Errno::EXIST),
            (Over::Exchange, None) => return Err(Errno::NOENT),
            _ => {}
        }
        if self.is_within(new.dir, moved) {
            return Err(Errno::INVAL);
        }
        if let Some(there) = new.node {
            if self.is_within(old.dir, there) {
                let exchanged = over == Over::Exchange;
                return Err(if exchanged { Errno::INVAL } else { Errno::NOTEMPTY });
            }
            if there == moved {
                return Ok(Answer::Done);
            }
            if over == Over::Exchange {
                self.entries_mut(old.dir)?.insert(old.name, there);
                self.entries_mut(new.dir)?.insert(new.name, moved);
                return Ok(Answer::Done);
            }
            match (self.node(moved)?.kind() == Kind::Dir, &self.node(there)?.body) {
                (true, Body::Dir(entries)) if !entries.is_empty() => return Err(Errno::NOTEMPTY),
                (true, Body::Dir(_)) => {}
                (true, _) => return Err(Errno::NOTDIR),
                (false, Body::Dir(_)) => return Err(Errno::ISDIR),
                (false, _) => {}
            }
        }
        self.entries_mut(old.dir)?.remove(&old.name);
        self.entries_mut(new.dir)?.insert(new.name, moved);
        if let Some(there) = new.node {
            self.forget(there);
        }
        Ok(Answer::Done)
    }

    fn attributes(&self, id: u64) -> Said {
        let node = self.node(id)?;
        let size = match &node.body {
            Body::File(bytes) => bytes.len(),
            Body::Symlink(target) => target.len(),
            Body::Dir(_) => 0,
        };
        Ok(Answer::Attributes {
            kind: node.kind(),
            mode: node.mode,
            links: self.links(id),
            size: size as u64,
        })
    }

    /// The whole tree.
    pub fn snapshot(&self) -> Result<Snapshot, Errno> {
        let mut snapshot = Snapshot::default();
        self.collect(ROOT, "", &mut snapshot)?;
        Ok(snapshot)
    }

    fn collect(&self, dir: u64, above: &str, into: &mut Snapshot) -> Result<(), Errno> {
        for (name, id) in self.entries(dir)? {
            let (path, node) = (format!("{above}{name}"), self.node(*id)?);
            let bytes = match &node.body {
                Body::File(bytes) => bytes.clone(),
                Body::Symlink(target) => target.clone().into_bytes(),
                Body::Dir(_) => Vec::new(),
            };
            into.add(
                path.clone(),
                *id,
                Entry {
                    kind: node.kind(),
                    mode: node.mode,
                    links: self.links(*id),
                    bytes,
                    xattrs: node.xattrs.clone(),
                    same_as: String::new(),
                },
            );
            if node.kind() == Kind::Dir {
                self.collect(*id, &format!("{path}/"), into)?;
            }
        }
        Ok(())
    }
}
