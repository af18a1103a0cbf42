//! Open handles.

use crate::kernel::opening::Opening;
use crate::open::access::HandleAccess;
use crate::open::given_up::GivenUp;
use crate::open::jobs::Part;
use crate::translate::data_context;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use weir_client::job::JobReader;
use weir_client::{Context, File};
use weir_fuse::Errno;
use weir_fuse::RequestContext;
use weir_types::FileId;
use weir_wire::meta::DirPage;

/// The object of a kernel handle.
pub(crate) enum Handle {
    File(FileHandle),
    Dir(DirHandle),
}

impl Handle {
    /// The file of the handle, if it is one.
    pub(crate) fn file(&self) -> Result<&FileHandle, Errno> {
        match self {
            Handle::File(file) => Ok(file),
            Handle::Dir(_) => Err(Errno::EBADF),
        }
    }
}

/// An open file.
pub(crate) struct FileHandle {
    /// The file's state in the kernel cache. Dropped before the file: after its close others may
    /// change it without notice.
    pub(crate) opening: Opening,
    pub(crate) file: File,
    /// Whether it bypasses the kernel's page cache.
    pub(crate) direct: bool,
    /// What passes the pages may be a direct write: it returns when servers have it.
    pub(crate) confirmed_past_pages: bool,
    /// Whether it was opened with `O_SYNC` or `O_DSYNC`. (For writes the kernel says so with each.)
    pub(crate) synchronous: bool,
    /// Job of the opening process, from its environment or set by itself.
    pub(crate) reading: RwLock<Reading>,
    /// Whether it may have capabilities (`security.capability`), which a write removes.
    pub(crate) capable: AtomicBool,
    /// Pending access times.
    pub(crate) access: HandleAccess,
    /// Reads for the kernel's pages that have timed out.
    pub(crate) given_up: GivenUp,
}

/// The reader of a handle.
pub(crate) struct Reading {
    pub(crate) part: Part,
    pub(crate) reader: Option<Arc<JobReader>>,
}

impl Reading {
    /// Begins to read.
    pub(crate) fn of(part: Part) -> Self {
        Self { reader: part.reader(), part }
    }
}

impl FileHandle {
    /// The caller and reader of its requests.
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

    /// Handles of an open file.
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
    /// Whether listing it leaves its access time unchanged (`O_NOATIME`).
    pub(crate) unseen: bool,
    /// The rest of a page that did not fit the kernel's buffer; of the last one perhaps nothing.
    rest: Mutex<Option<(u64, DirPage)>>,
    /// End of the listing; 0 before its first page.
    last: AtomicU64,
}

impl DirHandle {
    pub(crate) fn new(flags: u32) -> Self {
        let unseen = flags as i32 & libc::O_NOATIME != 0;
        Self { unseen, rest: Mutex::default(), last: AtomicU64::new(0) }
    }

    /// Restarts the listing from the beginning.
    pub(crate) fn begin(&self) {
        self.last.store(0, Ordering::Relaxed);
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// End of the listing.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Sets the end of the listing, from a page.
    pub(crate) fn ends_at(&self, last: u64) {
        self.last.store(last, Ordering::Relaxed);
    }

    /// Entries after `cookie`, if they were put back.
    pub(crate) fn take(&self, cookie: u64) -> Option<DirPage> {
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner).take();
        rest.filter(|(at, _)| *at == cookie).map(|(_, page)| page)
    }

    /// Keeps the entries of a page from index `from` on; they follow `cookie`.
    pub(crate) fn put_back(&self, cookie: u64, mut page: DirPage, from: usize) {
        page.entries.drain(..from);
        *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = Some((cookie, page));
    }
}
