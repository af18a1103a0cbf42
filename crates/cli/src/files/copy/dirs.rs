//! Directories that are being copied: each gets its attributes when all that is in it is done,
//! because writing into it changes its time, and may need rights that it is to lose.

use super::partial::Leftovers;
use super::place::Place;
use crate::files::tree::Meta;
use std::sync::{Arc, Mutex, PoisonError};

/// A directory. Whoever has something to do in it holds it; with the last one it is done.
pub struct Dir {
    pub parent: Option<Arc<Dir>>,
    pub from: Place,
    pub to: Place,
    /// Of the source.
    pub meta: Meta,
    /// It was made by this run.
    pub is_new: bool,
    /// What is made in it may get an access control list from it, as far as is known.
    pub inherits: bool,
    /// What earlier runs have left in it.
    pub leftovers: Mutex<Leftovers>,
}

impl Dir {
    /// What is left of a file in it.
    pub fn left_of(&self, to: &Place) -> Vec<Vec<u8>> {
        self.leftovers.lock().unwrap_or_else(PoisonError::into_inner).take(to)
    }
}

/// Somebody has nothing more to do in a directory: `finish` is called for it if that was the
/// last one, and then for those above for which that is so too.
pub fn release(dir: Option<Arc<Dir>>, mut finish: impl FnMut(&Dir)) {
    let mut next = dir;
    while let Some(dir) = next.and_then(Arc::into_inner) {
        finish(&dir);
        next = dir.parent;
    }
}
