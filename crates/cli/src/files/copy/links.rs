//! Files with several names: the first name is copied, the others become hard links to the copy.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};

/// The most files that are remembered. A file is forgotten when all its names have come.
const MAX_FILES: usize = 1 << 20;

/// Identifies a file of the source: the tree, and the file's identity in it.
pub type FileKey = (usize, (u64, u64));

/// What to do with a name of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// This is the first name. Copy the file and then report it.
    First,
    /// The file has been copied to this path. Make a link to it.
    Link(Vec<u8>),
    /// Too many files are remembered, so this name gets a copy of its own.
    Alone,
}

struct Known {
    /// The number of names that have not come yet.
    left: u32,
    /// The path of the copy; `None` while it is being made.
    to: Option<Vec<u8>>,
}

/// Files of which at least one name has come.
#[derive(Default)]
pub struct Links {
    files: Mutex<HashMap<FileKey, Known>>,
    changed: Condvar,
}

impl Links {
    /// Registers a name of a file that has `nlink` names. Waits while another name of the file is
    /// being copied.
    pub fn enter(&self, file: FileKey, nlink: u32) -> Turn {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(known) = files.get_mut(&file) else {
                if files.len() >= MAX_FILES {
                    return Turn::Alone;
                }
                files.insert(file, Known { left: nlink.saturating_sub(1), to: None });
                return Turn::First;
            };
            let Some(to) = &known.to else {
                // The thread that copies the file waits for nothing.
                files = self.changed.wait(files).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let to = to.clone();
            known.left = known.left.saturating_sub(1);
            if known.left == 0 {
                files.remove(&file);
            }
            return Turn::Link(to);
        }
    }

    /// Reports the copy of the first name. `None` if it failed: the next name is the first one
    /// then.
    pub fn copied(&self, file: FileKey, to: Option<&[u8]>) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match (files.get_mut(&file), to) {
            (Some(known), Some(to)) if known.left > 0 => known.to = Some(to.to_vec()),
            _ => drop(files.remove(&file)),
        }
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_names_are_links_and_all_is_forgotten_with_the_last() {
        let links = Links::default();
        let file = (0, (1, 2));
        assert_eq!(links.enter(file, 3), Turn::First);
        links.copied(file, None);
        assert_eq!(links.enter(file, 3), Turn::First, "the first has failed");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| links.enter(file, 3));
            links.copied(file, Some(b"/a"));
            assert_eq!(waits.join().unwrap(), Turn::Link(b"/a".to_vec()));
        });
        assert_eq!(links.enter(file, 3), Turn::Link(b"/a".to_vec()));
        assert!(links.files.lock().unwrap().is_empty());
    }
}
