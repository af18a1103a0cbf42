//! Attributes of directories that this mount has just changed.
//!
//! The kernel forgets a directory's attributes whenever a name in it comes or
//! goes, and asks for them again before the next one, to check permissions.
//! What the change did to them is known, so the question need not travel.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_types::{Attr, FileId, FileKind, Timestamp};

/// Directories remembered.
const MAX_DIRECTORIES: usize = 4096;

/// Attributes of directories, each as old as the server's answer it came from.
pub(crate) struct DirAttrs {
    ttl: Duration,
    known: Mutex<HashMap<FileId, (Attr, Instant)>>,
}

impl DirAttrs {
    /// Nothing is believed for longer than `ttl`.
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl, known: Mutex::default() }
    }

    /// The server said this.
    pub(crate) fn learn(&self, attr: &Attr) {
        if attr.kind != FileKind::Directory || self.ttl.is_zero() {
            return;
        }
        let mut known = self.lock();
        if known.len() >= MAX_DIRECTORIES {
            known.clear();
        }
        known.insert(attr.file, (attr.clone(), Instant::now()));
    }

    /// What is known of a directory, and how long it may still be believed.
    pub(crate) fn get(&self, dir: FileId) -> Option<(Attr, Duration)> {
        let known = self.lock();
        let (attr, since) = known.get(&dir)?;
        let left = self.ttl.checked_sub(since.elapsed()).filter(|left| !left.is_zero())?;
        Some((attr.clone(), left))
    }

    /// A name that is not a directory's came or went at this time of the
    /// server: its times moved, and nothing else.
    pub(crate) fn touched(&self, dir: FileId, at: Timestamp) {
        if let Some((attr, _)) = self.lock().get_mut(&dir) {
            attr.mtime = attr.mtime.max(at);
            attr.ctime = attr.ctime.max(at);
        }
    }

    /// It changed in a way that only the server knows.
    pub(crate) fn forget(&self, dir: FileId) {
        self.lock().remove(&dir);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FileId, (Attr, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::Generation;

    fn directory() -> Attr {
        let at = Timestamp::new(5, 0);
        Attr {
            file: FileId(7),
            kind: FileKind::Directory,
            mode: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            atime: at,
            mtime: at,
            ctime: at,
            change: 1,
            generation: Generation(0),
            preferred_io_bytes: 4096,
        }
    }

    #[test]
    fn a_new_name_moves_the_times_and_other_changes_are_asked_for() {
        let attrs = DirAttrs::new(Duration::from_secs(60));
        attrs.learn(&directory());
        attrs.touched(FileId(7), Timestamp::new(9, 0));
        attrs.touched(FileId(7), Timestamp::new(8, 0));
        let (attr, _) = attrs.get(FileId(7)).unwrap();
        assert_eq!((attr.mtime, attr.atime), (Timestamp::new(9, 0), Timestamp::new(5, 0)));
        attrs.forget(FileId(7));
        assert!(attrs.get(FileId(7)).is_none());
    }

    #[test]
    fn nothing_is_believed_for_longer_than_asked() {
        let attrs = DirAttrs::new(Duration::ZERO);
        attrs.learn(&directory());
        assert!(attrs.get(FileId(7)).is_none());
    }
}
