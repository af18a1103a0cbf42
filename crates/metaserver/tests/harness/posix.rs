//! A file system as POSIX describes it, in memory and in the plainest way: what
//! the metadata server is compared with. Everything is done by the superuser.

#![allow(clippy::new_without_default)]

use std::collections::BTreeMap;
use weir_types::ErrorKind::{self, *};

pub type Node = usize;
pub const ROOT: Node = 0;

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    File { size: u64 },
    Directory { entries: BTreeMap<String, Node>, parent: Node },
    Symlink { target: String },
}

#[derive(Clone, Debug)]
pub struct Inode {
    pub what: What,
    pub mode: u16,
    pub nlink: u32,
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// Every node that ever was; `None` is gone.
pub struct Posix {
    pub nodes: Vec<Option<Inode>>,
    /// Lists of segments that no file has any more.
    pub discarded: usize,
}

type Outcome<T> = Result<T, ErrorKind>;

impl Posix {
    pub fn new() -> Self {
        let root = Inode {
            what: What::Directory { entries: BTreeMap::new(), parent: ROOT },
            mode: 0o755,
            nlink: 2,
            xattrs: BTreeMap::new(),
        };
        Self { nodes: vec![Some(root)], discarded: 0 }
    }

    pub fn inode(&mut self, node: Node) -> Outcome<&mut Inode> {
        self.nodes[node].as_mut().ok_or(Stale)
    }

    fn is_dir(&self, node: Node) -> bool {
        matches!(&self.nodes[node], Some(Inode { what: What::Directory { .. }, .. }))
    }

    fn entries(&mut self, dir: Node) -> Outcome<&mut BTreeMap<String, Node>> {
        match &mut self.inode(dir)?.what {
            What::Directory { entries, .. } => Ok(entries),
            _ => Err(NotDirectory),
        }
    }

    fn add(&mut self, dir: Node, name: &str, what: What, mode: u16) -> Outcome<Node> {
        let node = self.nodes.len();
        if self.entries(dir)?.contains_key(name) {
            return Err(Exists);
        }
        let is_dir = matches!(what, What::Directory { .. });
        self.entries(dir)?.insert(name.into(), node);
        self.inode(dir)?.nlink += u32::from(is_dir);
        let nlink = if is_dir { 2 } else { 1 };
        self.nodes.push(Some(Inode { what, mode, nlink, xattrs: BTreeMap::new() }));
        Ok(node)
    }

    pub fn create(&mut self, dir: Node, name: &str, mode: u16, exclusive: bool) -> Outcome<Node> {
        if let (false, Some(&node)) = (exclusive, self.entries(dir)?.get(name)) {
            return match self.inode(node)?.what {
                What::File { .. } => Ok(node),
                What::Directory { .. } => Err(IsDirectory),
                What::Symlink { .. } => Err(SymlinkLoop),
            };
        }
        self.add(dir, name, What::File { size: 0 }, mode)
    }

    pub fn mkdir(&mut self, dir: Node, name: &str, mode: u16) -> Outcome<Node> {
        self.add(dir, name, What::Directory { entries: BTreeMap::new(), parent: dir }, mode)
    }

    pub fn symlink(&mut self, dir: Node, name: &str, target: &str) -> Outcome<Node> {
        self.add(dir, name, What::Symlink { target: target.into() }, 0o777)
    }

    fn drop_link(&mut self, node: Node) -> Outcome<()> {
        let inode = self.inode(node)?;
        inode.nlink -= 1;
        if inode.nlink == 0 {
            self.discarded += usize::from(matches!(inode.what, What::File { .. }));
            self.nodes[node] = None;
        }
        Ok(())
    }

    pub fn unlink(&mut self, dir: Node, name: &str) -> Outcome<()> {
        let node = *self.entries(dir)?.get(name).ok_or(NotFound)?;
        if self.is_dir(node) {
            return Err(IsDirectory);
        }
        self.entries(dir)?.remove(name);
        self.drop_link(node)
    }

    pub fn rmdir(&mut self, dir: Node, name: &str) -> Outcome<()> {
        let node = *self.entries(dir)?.get(name).ok_or(NotFound)?;
        if !self.entries(node)?.is_empty() {
            return Err(NotEmpty);
        }
        self.entries(dir)?.remove(name);
        self.inode(dir)?.nlink -= 1;
        self.nodes[node] = None;
        Ok(())
    }

    pub fn link(&mut self, node: Node, dir: Node, name: &str) -> Outcome<()> {
        self.inode(node)?;
        if self.entries(dir)?.contains_key(name) {
            return Err(Exists);
        }
        if self.is_dir(node) {
            return Err(NotPermitted);
        }
        self.entries(dir)?.insert(name.into(), node);
        self.inode(node)?.nlink += 1;
        Ok(())
    }

    fn is_within(&self, mut dir: Node, ancestor: Node) -> bool {
        loop {
            if dir == ancestor {
                return true;
            }
            match &self.nodes[dir] {
                Some(Inode { what: What::Directory { parent, .. }, .. }) if dir != ROOT => {
                    dir = *parent;
                }
                _ => return false,
            }
        }
    }

    fn set_parent(&mut self, node: Node, to: Node) {
        if let Some(Inode { what: What::Directory { parent, .. }, .. }) = &mut self.nodes[node] {
            *parent = to;
        }
    }

    /// Moves the link that a directory's `..` is, if it is one.
    fn move_dots(&mut self, node: Node, from: Node, to: Node) -> Outcome<()> {
        if self.is_dir(node) {
            self.inode(from)?.nlink -= 1;
            self.inode(to)?.nlink += 1;
            self.set_parent(node, to);
        }
        Ok(())
    }

    pub fn rename(
        &mut self,
        from: (Node, &str),
        to: (Node, &str),
        no_replace: bool,
        exchange: bool,
    ) -> Outcome<()> {
        self.entries(from.0)?;
        self.entries(to.0)?;
        let source = *self.entries(from.0)?.get(from.1).ok_or(NotFound)?;
        let target = self.entries(to.0)?.get(to.1).copied();
        match target {
            Some(_) if no_replace => return Err(Exists),
            None if exchange => return Err(NotFound),
            Some(target) if target == source => return Ok(()),
            _ => {}
        }
        if self.is_dir(source) && self.is_within(to.0, source) {
            return Err(InvalidArgument);
        }
        if let Some(target) = target {
            if exchange {
                if self.is_dir(target) && self.is_within(from.0, target) {
                    return Err(InvalidArgument);
                }
                self.entries(from.0)?.insert(from.1.into(), target);
                self.entries(to.0)?.insert(to.1.into(), source);
                self.move_dots(source, from.0, to.0)?;
                return self.move_dots(target, to.0, from.0);
            }
            match (self.is_dir(source), self.is_dir(target)) {
                (true, false) => return Err(NotDirectory),
                (false, true) => return Err(IsDirectory),
                (true, true) => self.rmdir(to.0, to.1)?,
                (false, false) => self.unlink(to.0, to.1)?,
            }
        }
        self.entries(from.0)?.remove(from.1);
        self.entries(to.0)?.insert(to.1.into(), source);
        self.move_dots(source, from.0, to.0)
    }

    pub fn set_size(&mut self, node: Node, new: u64) -> Outcome<()> {
        match &mut self.inode(node)?.what {
            What::File { size } => *size = new,
            What::Directory { .. } => return Err(IsDirectory),
            What::Symlink { .. } => return Err(InvalidArgument),
        }
        self.discarded += usize::from(new == 0);
        Ok(())
    }

    pub fn chmod(&mut self, node: Node, mode: u16) -> Outcome<()> {
        let inode = self.inode(node)?;
        if matches!(inode.what, What::Symlink { .. }) {
            return Err(Unsupported);
        }
        inode.mode = mode;
        Ok(())
    }

    pub fn set_xattr(&mut self, node: Node, name: &str, value: &[u8]) -> Outcome<()> {
        let inode = self.inode(node)?;
        if matches!(inode.what, What::Symlink { .. }) {
            return Err(NotPermitted);
        }
        inode.xattrs.insert(name.into(), value.into());
        Ok(())
    }

    pub fn remove_xattr(&mut self, node: Node, name: &str) -> Outcome<()> {
        let inode = self.inode(node)?;
        if matches!(inode.what, What::Symlink { .. }) {
            return Err(NotPermitted);
        }
        inode.xattrs.remove(name).map(drop).ok_or(NoAttribute)
    }

    pub fn alive(&self) -> impl Iterator<Item = (Node, &Inode)> {
        self.nodes.iter().enumerate().filter_map(|(node, inode)| Some((node, inode.as_ref()?)))
    }
}
