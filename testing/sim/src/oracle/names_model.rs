//! A model of a namespace: a small tree, and the effect of each call.

use crate::history::{Name, NameCall, NameReply, RenameMode, Seen};
use std::collections::BTreeMap;
use weir_types::{ErrorKind, FileKind};

/// A file of the model. Its real id is learnt from the first result that shows it; 0 until then.
pub type Inode = u32;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub id: u64,
    pub kind: FileKind,
    pub nlink: u32,
    pub mode: u16,
    /// The target of a symbolic link.
    pub target: u32,
    pub xattrs: BTreeMap<Name, u32>,
    /// The entries of a directory.
    pub names: BTreeMap<Name, Inode>,
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tree {
    pub inodes: BTreeMap<Inode, Entry>,
}

impl Tree {
    /// Adds a directory that exists from the beginning.
    pub fn add_directory(&mut self, inode: Inode, id: u64) {
        self.inodes.insert(inode, new(id, FileKind::Directory, 0o755));
    }

    fn by_id(&self, id: u64) -> Option<Inode> {
        self.inodes.iter().find(|(_, entry)| entry.id == id).map(|(inode, _)| *inode)
    }

    /// All trees to which a call may lead if it had this result (`None`: any result, or none).
    /// `fresh`: the id of a new file.
    pub fn after(&self, call: &NameCall, reply: Option<&NameReply>, fresh: Inode) -> Vec<Tree> {
        let mut out = Vec::new();
        for tree in self.with_ids(call) {
            let mut next = tree.clone();
            let expected = next.apply(call, fresh);
            match reply {
                None => out.push(next),
                Some(reply) if next.agrees(call, &expected, reply) => out.push(next),
                Some(_) => {}
            }
        }
        out.dedup();
        out
    }

    /// This tree, and those in which a file without a known id is the one of the call.
    fn with_ids(&self, call: &NameCall) -> Vec<Tree> {
        let mut trees = vec![self.clone()];
        for id in ids_of(call) {
            let mut more = Vec::new();
            for tree in &trees {
                if tree.by_id(id).is_some() {
                    continue;
                }
                for (inode, entry) in &tree.inodes {
                    if entry.id == 0 {
                        let mut bound = tree.clone();
                        bound.bind(*inode, id);
                        more.push(bound);
                    }
                }
            }
            trees.extend(more);
        }
        trees
    }

    fn bind(&mut self, inode: Inode, id: u64) {
        if let Some(entry) = self.inodes.get_mut(&inode) {
            entry.id = id;
        }
    }

    /// Applies a call. A refused call leaves the tree unchanged.
    fn apply(&mut self, call: &NameCall, fresh: Inode) -> Expected {
        match self.try_apply(call, fresh) {
            Ok(expected) => expected,
            Err(kind) => Expected::Refused(kind),
        }
    }

    fn directory(&self, id: u64) -> Result<Inode, Refusal> {
        let inode = self.by_id(id).ok_or(Refusal::Gone)?;
        match self.inodes[&inode].kind {
            FileKind::Directory => Ok(inode),
            _ => Err(ErrorKind::NotDirectory.into()),
        }
    }

    fn find(&self, dir: Inode, name: Name) -> Option<Inode> {
        self.inodes[&dir].names.get(&name).copied()
    }

    fn need(&self, dir: Inode, name: Name) -> Result<Inode, Refusal> {
        self.find(dir, name).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn try_apply(&mut self, call: &NameCall, fresh: Inode) -> Result<Expected, Refusal> {
        use FileKind::{Directory, File, Symlink};
        match *call {
            NameCall::Create { dir, name, exclusive, mode } => {
                let dir = self.directory(dir)?;
                if let Some(there) = self.find(dir, name) {
                    return match self.inodes[&there].kind {
                        _ if exclusive => Err(ErrorKind::Exists.into()),
                        Directory => Err(ErrorKind::IsDirectory.into()),
                        Symlink => Err(ErrorKind::SymlinkLoop.into()),
                        _ => Ok(Expected::Attr(there)),
                    };
                }
                self.add(dir, name, fresh, new(0, File, mode));
                Ok(Expected::Attr(fresh))
            }
            NameCall::Mkdir { dir, name, mode } => {
                self.make(dir, name, fresh, new(0, Directory, mode))
            }
            NameCall::Symlink { dir, name, target } => {
                let link = Entry { target, ..new(0, Symlink, 0o777) };
                self.make(dir, name, fresh, link)
            }
            NameCall::Unlink { dir, name } => {
                let dir = self.directory(dir)?;
                let inode = self.need(dir, name)?;
                if self.inodes[&inode].kind == Directory {
                    return Err(ErrorKind::IsDirectory.into());
                }
                self.entry(dir).names.remove(&name);
                self.drop_link(inode);
                Ok(Expected::Done)
            }
            NameCall::Rmdir { dir, name } => {
                let dir = self.directory(dir)?;
                let inode = self.need(dir, name)?;
                if self.inodes[&inode].kind != Directory {
                    return Err(ErrorKind::NotDirectory.into());
                }
                if !self.inodes[&inode].names.is_empty() {
                    return Err(ErrorKind::NotEmpty.into());
                }
                self.entry(dir).names.remove(&name);
                self.entry(dir).nlink -= 1;
                self.inodes.remove(&inode);
                Ok(Expected::Done)
            }
            NameCall::Rename { from, to, mode } => self.rename(from, to, mode),
            NameCall::Link { file, dir, name } => {
                let inode = self.by_id(file).ok_or(Refusal::Gone)?;
                let dir = self.directory(dir)?;
                if self.find(dir, name).is_some() {
                    return Err(ErrorKind::Exists.into());
                }
                if self.inodes[&inode].kind == Directory {
                    return Err(ErrorKind::NotPermitted.into());
                }
                self.entry(dir).names.insert(name, inode);
                self.entry(inode).nlink += 1;
                Ok(Expected::Attr(inode))
            }
            NameCall::Lookup { dir, name } => {
                let dir = self.directory(dir)?;
                Ok(Expected::Attr(self.need(dir, name)?))
            }
            NameCall::List { dir } => Ok(Expected::Names(self.directory(dir)?)),
            NameCall::GetAttr { file } => {
                Ok(Expected::Attr(self.by_id(file).ok_or(Refusal::Gone)?))
            }
            NameCall::Readlink { file } => {
                let inode = self.by_id(file).ok_or(Refusal::Gone)?;
                match self.inodes[&inode].kind {
                    Symlink => Ok(Expected::Value(self.inodes[&inode].target)),
                    _ => Err(ErrorKind::InvalidArgument.into()),
                }
            }
            NameCall::SetMode { file, mode } => {
                let inode = self.by_id(file).ok_or(Refusal::Gone)?;
                if self.inodes[&inode].kind == Symlink {
                    return Err(ErrorKind::Unsupported.into());
                }
                self.entry(inode).mode = mode;
                Ok(Expected::Attr(inode))
            }
            NameCall::SetXattr { file, name, value } => {
                let inode = self.by_id(file).ok_or(Refusal::Gone)?;
                // `user.` attributes exist only on files and directories.
                if self.inodes[&inode].kind == Symlink {
                    return Err(ErrorKind::NotPermitted.into());
                }
                self.entry(inode).xattrs.insert(name, value);
                Ok(Expected::Done)
            }
            NameCall::GetXattr { file, name } => {
                let inode = self.by_id(file).ok_or(Refusal::Gone)?;
                match self.inodes[&inode].xattrs.get(&name) {
                    Some(value) => Ok(Expected::Value(*value)),
                    None => Err(ErrorKind::NoAttribute.into()),
                }
            }
        }
    }

    fn entry(&mut self, inode: Inode) -> &mut Entry {
        self.inodes.entry(inode).or_insert_with(|| new(0, FileKind::File, 0))
    }

    fn add(&mut self, dir: Inode, name: Name, inode: Inode, entry: Entry) {
        let is_directory = entry.kind == FileKind::Directory;
        self.inodes.insert(inode, entry);
        let dir = self.entry(dir);
        dir.names.insert(name, inode);
        dir.nlink += u32::from(is_directory);
    }

    fn make(
        &mut self,
        dir: u64,
        name: Name,
        fresh: Inode,
        entry: Entry,
    ) -> Result<Expected, Refusal> {
        let dir = self.directory(dir)?;
        if self.find(dir, name).is_some() {
            return Err(ErrorKind::Exists.into());
        }
        self.add(dir, name, fresh, entry);
        Ok(Expected::Attr(fresh))
    }

    fn drop_link(&mut self, inode: Inode) {
        let entry = self.entry(inode);
        entry.nlink -= 1;
        if entry.nlink == 0 {
            self.inodes.remove(&inode);
        }
    }

    fn is_within(&self, dir: Inode, ancestor: Inode) -> bool {
        dir == ancestor
            || self.inodes[&ancestor].names.values().any(|child| {
                self.inodes[child].kind == FileKind::Directory && self.is_within(dir, *child)
            })
    }

    fn rename(
        &mut self,
        from: (u64, Name),
        to: (u64, Name),
        mode: RenameMode,
    ) -> Result<Expected, Refusal> {
        let (from_dir, to_dir) = (self.directory(from.0)?, self.directory(to.0)?);
        let source = self.need(from_dir, from.1)?;
        let target = self.find(to_dir, to.1);
        match (target, mode) {
            (Some(_), RenameMode::NoReplace) => return Err(ErrorKind::Exists.into()),
            (None, RenameMode::Exchange) => return Err(ErrorKind::NotFound.into()),
            (Some(target), _) if target == source => return Ok(Expected::Done),
            _ => {}
        }
        let is_directory =
            |tree: &Self, inode: Inode| tree.inodes[&inode].kind == FileKind::Directory;
        let exchange = mode == RenameMode::Exchange;
        let source_dir = is_directory(self, source);
        let target_dir = target.is_some_and(|target| is_directory(self, target));
        if from_dir != to_dir {
            let into_itself = source_dir && self.is_within(to_dir, source);
            let swapped = exchange && target_dir;
            let out_of_itself = swapped && target.is_some_and(|t| self.is_within(from_dir, t));
            if into_itself || out_of_itself {
                return Err(ErrorKind::InvalidArgument.into());
            }
        }
        if let Some(target) = target.filter(|_| !exchange) {
            match (source_dir, target_dir) {
                (true, false) => return Err(ErrorKind::NotDirectory.into()),
                (false, true) => return Err(ErrorKind::IsDirectory.into()),
                (true, true) if !self.inodes[&target].names.is_empty() => {
                    return Err(ErrorKind::NotEmpty.into());
                }
                _ => {}
            }
        }
        self.move_name((from_dir, from.1, source), (to_dir, to.1, target), exchange);
        Ok(Expected::Done)
    }

    fn move_name(
        &mut self,
        (from_dir, name, source): (Inode, Name, Inode),
        (to_dir, new_name, target): (Inode, Name, Option<Inode>),
        exchange: bool,
    ) {
        let links =
            |tree: &Self, inode: Inode| u32::from(tree.inodes[&inode].kind == FileKind::Directory);
        let moved = links(self, source);
        self.entry(from_dir).names.remove(&name);
        self.entry(from_dir).nlink -= moved;
        if let Some(target) = target {
            let links = links(self, target);
            self.entry(to_dir).nlink -= links;
            if exchange {
                self.entry(from_dir).names.insert(name, target);
                self.entry(from_dir).nlink += links;
            } else if links > 0 {
                self.inodes.remove(&target);
            } else {
                self.drop_link(target);
            }
        }
        self.entry(to_dir).names.insert(new_name, source);
        self.entry(to_dir).nlink += moved;
    }

    /// Whether a result is the expected one. Learns ids from it.
    fn agrees(&mut self, call: &NameCall, expected: &Expected, reply: &NameReply) -> bool {
        match (expected, reply) {
            (Expected::Attr(inode), NameReply::Attr(seen)) => self.agrees_on(*inode, seen),
            // Attributes of the file after an unlink are part of the result.
            (Expected::Done, NameReply::Done) => true,
            (Expected::Value(value), NameReply::Value(said)) => value == said,
            (Expected::Names(dir), NameReply::Names(names)) => self.agrees_on_names(*dir, names),
            (Expected::Refused(Refusal::Kind(kind)), NameReply::Refused(said)) => kind == said,
            (Expected::Refused(Refusal::Gone), reply) => of_a_gone_file(call, reply),
            _ => false,
        }
    }

    fn agrees_on(&mut self, inode: Inode, seen: &Seen) -> bool {
        if !self.learn(inode, seen.id) {
            return false;
        }
        let entry = &self.inodes[&inode];
        (entry.kind, entry.nlink, entry.mode) == (seen.kind, seen.nlink, seen.mode)
    }

    fn agrees_on_names(&mut self, dir: Inode, names: &[(Name, u64)]) -> bool {
        let expected: Vec<(Name, Inode)> =
            self.inodes[&dir].names.iter().map(|(n, i)| (*n, *i)).collect();
        expected.len() == names.len()
            && expected
                .iter()
                .zip(names)
                .all(|((name, inode), (seen, id))| name == seen && self.learn(*inode, *id))
    }

    /// A file keeps the id that it was first seen with; no two files have the same.
    fn learn(&mut self, inode: Inode, id: u64) -> bool {
        match (self.inodes[&inode].id, self.by_id(id)) {
            (0, None) => {
                self.bind(inode, id);
                true
            }
            (known, _) => known == id,
        }
    }
}

fn new(id: u64, kind: FileKind, mode: u16) -> Entry {
    let nlink = if kind == FileKind::Directory { 2 } else { 1 };
    let (xattrs, names) = (BTreeMap::new(), BTreeMap::new());
    Entry { id, kind, nlink, mode, target: 0, xattrs, names }
}

/// A file without a name may still exist because somebody has it open, or be gone.
fn of_a_gone_file(call: &NameCall, reply: &NameReply) -> bool {
    match reply {
        NameReply::Refused(ErrorKind::Stale | ErrorKind::NotFound) => true,
        NameReply::Attr(seen) => {
            matches!(call, NameCall::GetAttr { .. } | NameCall::SetMode { .. }) && seen.nlink == 0
        }
        NameReply::Done => matches!(call, NameCall::SetXattr { .. }),
        NameReply::Value(_) => {
            matches!(call, NameCall::GetXattr { .. } | NameCall::Readlink { .. })
        }
        NameReply::Refused(ErrorKind::NoAttribute) => matches!(call, NameCall::GetXattr { .. }),
        // Linux looks at the new name first.
        NameReply::Refused(ErrorKind::Exists | ErrorKind::NotPermitted) => {
            matches!(call, NameCall::Link { .. } | NameCall::SetXattr { .. })
        }
        NameReply::Refused(ErrorKind::NotDirectory | ErrorKind::InvalidArgument) => true,
        _ => false,
    }
}

#[derive(Clone, Debug)]
enum Expected {
    Attr(Inode),
    Names(Inode),
    Value(u32),
    Done,
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// This error is expected.
    Kind(ErrorKind),
    /// The call names a file that has no name any longer.
    Gone,
}

impl From<ErrorKind> for Refusal {
    fn from(kind: ErrorKind) -> Self {
        Self::Kind(kind)
    }
}

/// The files that a call names by id.
fn ids_of(call: &NameCall) -> Vec<u64> {
    match *call {
        NameCall::Create { dir, .. }
        | NameCall::Mkdir { dir, .. }
        | NameCall::Symlink { dir, .. }
        | NameCall::Unlink { dir, .. }
        | NameCall::Rmdir { dir, .. }
        | NameCall::Lookup { dir, .. }
        | NameCall::List { dir } => vec![dir],
        NameCall::Rename { from, to, .. } => vec![from.0, to.0],
        NameCall::Link { file, dir, .. } => vec![file, dir],
        NameCall::GetAttr { file }
        | NameCall::Readlink { file }
        | NameCall::SetMode { file, .. }
        | NameCall::SetXattr { file, .. }
        | NameCall::GetXattr { file, .. } => vec![file],
    }
}
