//! Open handles, and what is remembered of files that were open.

use crate::access_times::HandleAccess;
use crate::fuse::Errno;
use crate::fuse::RequestContext;
use crate::given_up::GivenUp;
use crate::jobs::Part;
use crate::kernel_cache::Opening;
use crate::translate::data_context;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use weir_client::job::JobReader;
use weir_client::{Context, File};
use weir_types::{Attr, FileId};
use weir_wire::meta::DirPage;

/// Files whose last state is remembered, so that their pages may stay cached.
const MAX_SEEN: usize = 1 << 16;

/// What a handle of the kernel stands for.
pub(crate) enum Handle {
    File(FileHandle),
    Dir(DirHandle),
}

impl Handle {
    /// The file, if it is one.
    pub(crate) fn file(&self) -> Result<&FileHandle, Errno> {
        match self {
            Handle::File(file) => Ok(file),
            Handle::Dir(_) => Err(Errno::EBADF),
        }
    }
}

/// An open file.
pub(crate) struct FileHandle {
    /// What the kernel caches of the file. Goes before the file: once that is closed,
    /// others may change it without a word.
    pub(crate) opening: Opening,
    pub(crate) file: File,
    /// Past the kernel's page cache.
    pub(crate) direct: bool,
    /// Opened with `O_SYNC` or `O_DSYNC`. (Of a write the kernel says so with each.)
    pub(crate) synchronous: bool,
    /// What the process that has opened it is of a job, as its environment says, or it does
    /// itself.
    pub(crate) reading: RwLock<Reading>,
    /// It may have capabilities (`security.capability`), which writing takes away.
    pub(crate) capable: AtomicBool,
    /// What is to be said of its time of access.
    pub(crate) access: HandleAccess,
    /// Reads for the kernel's pages that were waited for in vain.
    pub(crate) given_up: GivenUp,
}

/// Who reads through a handle.
pub(crate) struct Reading {
    pub(crate) part: Part,
    pub(crate) reader: Option<Arc<JobReader>>,
}

impl Reading {
    /// It begins.
    pub(crate) fn of(part: Part) -> Self {
        Self { reader: part.reader(), part }
    }
}

impl FileHandle {
    /// On whose behalf its bytes are read and written.
    pub(crate) fn context(&self, ctx: &RequestContext<'_>) -> Context {
        let nobodys = data_context(ctx);
        let reader = self.reading.read().unwrap_or_else(PoisonError::into_inner).reader.clone();
        if let Some(reader) = &reader {
            reader.reads(self.file.size());
        }
        Context { reader, ..nobodys }
    }
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

    /// Those of an open file.
    pub(crate) fn of(&self, file: FileId) -> Vec<Arc<Handle>> {
        let is_of_it = |handle: &&Arc<Handle>| handle.file().is_ok_and(|h| h.file.id() == file);
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.values().filter(is_of_it).cloned().collect()
    }

    pub(crate) fn remove(&self, fh: u64) {
        // Dropped outside the lock: closing a file may send what it holds.
        let handle = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&fh);
        drop(handle);
    }
}

/// An open directory.
pub(crate) struct DirHandle {
    /// To list it is not to change its time of access (`O_NOATIME`).
    pub(crate) unseen: bool,
    /// The part of a page that did not fit the kernel's buffer.
    rest: Mutex<Option<(u64, DirPage)>>,
    /// Where the listing ends; 0: it begins.
    last: AtomicU64,
}

impl DirHandle {
    pub(crate) fn new(flags: u32) -> Self {
        let unseen = flags as i32 & libc::O_NOATIME != 0;
        Self { unseen, rest: Mutex::default(), last: AtomicU64::new(0) }
    }

    /// It is listed from the beginning, as it is now.
    pub(crate) fn begin(&self) {
        self.last.store(0, Ordering::Relaxed);
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Where the listing ends.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// A page has said where.
    pub(crate) fn ends_at(&self, last: u64) {
        self.last.store(last, Ordering::Relaxed);
    }

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

/// How each file was when it was last opened: if it has not changed, what the
/// kernel caches of it is still good.
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

    /// Nothing is known any more.
    pub(crate) fn clear(&self) {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
