//! Files with several names: the first is copied, the others become links to the copy.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};

/// Files that are remembered at a time. A file is forgotten when all its names have come.
const MAX_FILES: usize = 1 << 20;

/// A file of the source: its tree and its number there.
pub type FileKey = (usize, (u64, u64));

/// What to do with a name.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is the first one: copy the file, and then say so.
    First,
    /// The file is there, under this path.
    Link(Vec<u8>),
    /// There are too many: the name gets a file of its own.
    Alone,
}

struct Known {
    /// Names that have not come yet.
    left: u32,
    /// Where the copy is; `None`: it is being made.
    to: Option<Vec<u8>>,
}

/// Files of which a name was met.
#[derive(Default)]
pub struct Links {
    files: Mutex<HashMap<FileKey, Known>>,
    changed: Condvar,
}

impl Links {
    /// A name of a file that has `nlink` of them. Waits while another name of it is copied.
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
                // Who copies it waits for nobody.
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

    /// The first name has been copied to this path; `None`: it could not be, and the next one
    /// is the first.
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
