//! A file or directory of some tree.

use crate::failure::{Done, Failure};
use crate::files::name::{child, split};
use crate::files::tree::{Meta, Tree};
use std::sync::Arc;
use weir_types::FileKind;

/// The longest path that is followed, in bytes. A deeper one is a mistake.
const MAX_PATH_BYTES: usize = 1 << 20;

/// A file or directory of some tree.
#[derive(Clone)]
pub struct Place {
    pub tree: Arc<dyn Tree>,
    pub path: Vec<u8>,
}

impl Place {
    pub fn shown(&self) -> String {
        self.tree.shown(&self.path)
    }

    pub fn child(&self, name: &[u8]) -> Self {
        Self { tree: self.tree.clone(), path: child(&self.path, name) }
    }

    /// Fails if the path is too long.
    pub fn check_depth(&self) -> Done {
        if self.path.len() <= MAX_PATH_BYTES {
            return Ok(());
        }
        let begin = self.tree.shown(&self.path[..256]);
        Err(Failure::new(format!("directories are too deep: a path of {MAX_PATH_BYTES} bytes"))
            .about(format!("{begin}...")))
    }

    /// The path of the containing directory; for a directory, its own path.
    pub fn parent_or_self(&self, is_dir: bool) -> Vec<u8> {
        match split(&self.path) {
            Some((dir, _)) if !is_dir => dir.to_vec(),
            _ => self.path.clone(),
        }
    }

    /// The attributes of the directories on the path, as far as a path without `..` shows them, and
    /// of the file itself.
    pub fn way(&self) -> Done<Vec<Meta>> {
        let mut way: Vec<Meta> = self.tree.stat(&self.path, false)?.into_iter().collect();
        let Some((dir, _)) = split(&self.path) else { return Ok(way) };
        let dir = self.tree.real_path(dir)?;
        if dir.split(|b| *b == b'/').any(|part| part == b"..") {
            return Ok(way);
        }
        let mut here = dir.as_slice();
        loop {
            way.extend(self.tree.stat(here, true)?);
            match split(here) {
                Some((dir, _)) => here = dir,
                None => return Ok(way),
            }
        }
    }

    /// Whether two directories in two trees are the same one. One of them may be seen through a
    /// mount.
    pub fn is_one(&self, meta: &Meta, there: &Place, other: &Meta) -> Done<bool> {
        let both = [meta, other].iter().all(|meta| meta.kind == FileKind::Directory);
        if !both || meta.identity.1 != other.identity.1 {
            return Ok(false);
        }
        if self.tree.is(&there.tree.identity()) {
            return Ok(meta.identity == other.identity);
        }
        let signs = (self.tree.cluster_of(meta)?, there.tree.cluster_of(other)?);
        Ok(matches!(signs, (Some(a), Some(b)) if a.is(&b)))
    }

    /// Whether this place is the other one, or inside it.
    pub fn is_below(&self, other: &Place) -> bool {
        let rest = self.path.strip_prefix(other.path.as_slice());
        let inside = |rest: &[u8]| rest.is_empty() || rest[0] == b'/' || other.path == b"/";
        self.tree.is(&other.tree.identity()) && rest.is_some_and(inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::local::LocalTree;

    #[test]
    fn a_directory_is_not_copied_into_itself() {
        let local = |path: &str| Place { tree: Arc::new(LocalTree), path: path.into() };
        assert!(local("/a/b").is_below(&local("/a")));
        assert!(local("/a").is_below(&local("/a")));
        assert!(!local("/ab").is_below(&local("/a")));
        assert!(local("/ab").is_below(&local("/")));
    }
}
