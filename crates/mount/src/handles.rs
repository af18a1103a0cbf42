//! Open handles, and what is remembered of files that were open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use weir_client::File;
use weir_types::{Attr, FileId};
use weir_wire::meta::DirPage;

/// Files whose last state is remembered, so that their pages may stay cached.
const MAX_SEEN: usize = 1 << 16;

/// What a handle of the kernel stands for.
pub(crate) enum Handle {
    File(Arc<File>),
    Dir(DirHandle),
}

/// All open handles.
#[derive(Default)]
pub(crate) struct Handles {
    next: AtomicU64,
    open: RwLock<HashMap<u64, Arc<Handle>>>,
}

impl Handles {
    pub(crate) fn insert(&self, handle: Handle) -> u64 {
        let fh = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(fh, Arc::new(handle));
        fh
    }

    pub(crate) fn get(&self, fh: u64) -> Option<Arc<Handle>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&fh).cloned()
    }

    pub(crate) fn remove(&self, fh: u64) {
        // Dropped outside the lock: closing a file may send what it holds.
        let handle = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&fh);
        drop(handle);
    }
}

/// The part of a directory page that did not fit the kernel's buffer.
#[derive(Default)]
pub(crate) struct DirHandle {
    rest: Mutex<Option<(u64, DirPage)>>,
}

impl DirHandle {
    /// What follows `cookie`, if it was put back.
    pub(crate) fn take(&self, cookie: u64) -> Option<DirPage> {
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner).take();
        rest.filter(|(at, _)| *at == cookie).map(|(_, page)| page)
    }

    /// Keeps the entries of a page from the `from`th on; they follow `cookie`.
    pub(crate) fn put_back(&self, cookie: u64, mut page: DirPage, from: usize) {
        page.entries.drain(..from);
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = Some((cookie, page));
    }
}

/// Files that are known to have no file capabilities. The kernel asks before
/// every single write, to take them away; without this, each would be a message.
#[derive(Default)]
pub(crate) struct Capless {
    since: Mutex<HashMap<FileId, Instant>>,
}

impl Capless {
    /// Whether the file had none a moment ago (as long as attributes hold).
    pub(crate) fn holds(&self, file: FileId, ttl: Duration) -> bool {
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.get(&file).is_some_and(|at| at.elapsed() < ttl)
    }

    /// The file has none.
    pub(crate) fn note(&self, file: FileId) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.len() >= MAX_SEEN {
            since.clear();
        }
        since.insert(file, Instant::now());
    }

    /// The file may have got some.
    pub(crate) fn forget(&self, file: FileId) {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).remove(&file);
    }
}

/// How each file was when it was last opened: if it has not changed, what the
/// kernel caches of it is still good (close-to-open).
#[derive(Default)]
pub(crate) struct Seen {
    changes: Mutex<HashMap<FileId, u64>>,
}

impl Seen {
    /// Whether the file is as it was when last asked; remembers how it is now.
    pub(crate) fn same(&self, attr: &Attr) -> bool {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.len() >= MAX_SEEN {
            changes.clear();
        }
        changes.insert(attr.file, attr.change) == Some(attr.change)
    }
}
