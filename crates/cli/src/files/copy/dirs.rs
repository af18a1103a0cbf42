//! Directories that are being copied. A directory gets its attributes only when everything in it is
//! done, because writes into it change its times and may need permissions that it is going to lose.

use super::partial::Leftovers;
use super::place::Place;
use crate::files::tree::Meta;
use std::sync::{Arc, Mutex, PoisonError};

/// A directory. Each task in it holds a reference, and the directory is complete when the last
/// reference is released.
pub struct Dir {
    pub parent: Option<Arc<Dir>>,
    pub from: Place,
    pub to: Place,
    /// The attributes of the source directory.
    pub meta: Meta,
    /// Whether this run made the directory.
    pub is_new: bool,
    /// Whether new files in it may inherit an access control list, as far as is known.
    pub inherits: bool,
    /// The leftovers of earlier runs in it.
    pub leftovers: Mutex<Leftovers>,
}

impl Dir {
    /// The leftovers of a file in it.
    pub fn left_of(&self, to: &Place) -> Vec<Vec<u8>> {
        self.leftovers.lock().unwrap_or_else(PoisonError::into_inner).take(to)
    }
}

/// Releases a directory. `finish` is called if that was the last reference, and then likewise for
/// the parents.
pub fn release(dir: Option<Arc<Dir>>, mut finish: impl FnMut(&Dir)) {
    let mut next = dir;
    while let Some(dir) = next.and_then(Arc::into_inner) {
        finish(&dir);
        next = dir.parent;
    }
}
