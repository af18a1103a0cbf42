//! Names of incomplete files: `.weir-cp-FILE-RUN` in the directory of the final file. FILE stands
//! for its name and RUN for the run of cp that writes it. A run renames only files that it wrote
//! itself, so that no other run's incomplete file gets a final name.
//!
//! The name of a file that is locked while it is written ends in `-k`. If the lock is free its
//! writer has ended, and a later run with `--resume` may continue it. All other leftovers are only
//! removed.

use super::place::Place;
use crate::failure::{Done, Failure};
use crate::files::name::{child, split};
use crate::files::tree::Tree;
use std::collections::HashMap;
use std::sync::Arc;
use weir_types::checksum::crc32c;

const PREFIX: &[u8] = b".weir-cp-";
const LOCKED: &[u8] = b"-k";
/// The most leftovers of one directory that are remembered. Further ones stay for the next run.
const MAX_LEFTOVERS: usize = 4096;

/// The temporary name of a file.
pub fn path_for(to: &[u8], run: u64, locked: bool) -> Done<Vec<u8>> {
    let Some((dir, name)) = split(to) else { return Err(Failure::new("/ is no file")) };
    let mut partial = PREFIX.to_vec();
    partial.extend_from_slice(format!("{:08x}-{run:016x}", crc32c(name)).as_bytes());
    if locked {
        partial.extend_from_slice(LOCKED);
    }
    Ok(child(dir, &partial))
}

/// The checksum of the file name for which a temporary name stands. Two names with the same
/// checksum do no harm, since all existing bytes are compared.
fn stands_for(name: &[u8]) -> Option<u32> {
    let rest = name.strip_prefix(PREFIX)?;
    let digits = std::str::from_utf8(rest.get(..8)?).ok()?;
    (rest.len() >= 25 && rest[8] == b'-').then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

/// The leftovers of interrupted runs in a directory.
#[derive(Default)]
pub struct Leftovers {
    names: HashMap<u32, Vec<Vec<u8>>>,
}

impl Leftovers {
    /// Finds the leftovers in a directory.
    pub fn find(tree: &Arc<dyn Tree>, dir: &[u8]) -> Done<Self> {
        let mut found = Self::default();
        let mut count = 0;
        let mut pages = tree.clone().pages(dir, true)?;
        loop {
            let page = pages.next()?;
            if page.is_empty() || count >= MAX_LEFTOVERS {
                return Ok(found);
            }
            for (name, _) in page {
                if let Some(file) = stands_for(&name) {
                    found.names.entry(file).or_default().push(name);
                    count += 1;
                }
            }
        }
    }

    /// Removes the leftovers of a file from the list and returns their paths, first those that may
    /// be continued.
    pub fn take(&mut self, to: &Place) -> Vec<Vec<u8>> {
        let Some((dir, name)) = split(&to.path) else { return Vec::new() };
        let mut names = self.names.remove(&crc32c(name)).unwrap_or_default();
        names.sort_by_key(|name| !may_go_on(name));
        names.iter().map(|name| child(dir, name)).collect()
    }
}

/// Whether the file was locked while it was written.
pub fn may_go_on(path: &[u8]) -> bool {
    path.ends_with(LOCKED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::local::LocalTree;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn leftovers_are_found_by_the_name_that_they_stand_for() {
        let dir = tempfile::tempdir().unwrap();
        let tree: Arc<dyn Tree> = Arc::new(LocalTree);
        let path = dir.path().as_os_str().as_bytes().to_vec();
        let to = Place { tree: tree.clone(), path: child(&path, &[b'x'; 255]) };
        let partial = [path_for(&to.path, 7, false).unwrap(), path_for(&to.path, 5, true).unwrap()];
        for partial in &partial {
            std::fs::write(std::ffi::OsStr::from_bytes(partial), "").unwrap();
        }
        std::fs::write(dir.path().join(".weir-cp-notes"), "").unwrap();
        let mut found = Leftovers::find(&tree, &path).unwrap();
        let other = Place { tree, path: child(&path, b"y") };
        assert!(found.take(&other).is_empty());
        assert_eq!(found.take(&to), [partial[1].clone(), partial[0].clone()]);
        assert!(found.names.is_empty());
    }
}
