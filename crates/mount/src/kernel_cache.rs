//! The kernel's page cache, as the client sees it: something that has to give
//! up pages when a lease is recalled, and before a size is shown.

use crate::dropper::Dropper;
use crate::file_pages::{Drop as PageDrop, FilePages, without};
use crate::fuse::Notifier;
use crate::handles::Seen;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use weir_client::UpperCache;
use weir_types::{Attr, FileId, FileKind};

/// How long a drop may take before it is asked what stands in its way, and
/// between two such questions at first.
const FIRST_LOOK: Duration = Duration::from_millis(3);
/// The longest between two.
const LAST_LOOK: Duration = Duration::from_millis(200);
/// A drop gives up after this: longer than any request of the kernel is served.
const GIVE_UP: Duration = Duration::from_secs(60);
/// A thread of the kernel acts upon an answer within this time.
const ACTS: Duration = Duration::from_secs(2);
/// A write reaches us so long at the most after the kernel has put its bytes
/// into pages.
const WRITE_ARRIVES: Duration = Duration::from_secs(1);

/// An open file, shared by its handles.
#[derive(Default)]
pub(crate) struct OpenPages {
    pages: Mutex<FilePages>,
    last_drop: Mutex<Option<Instant>>,
    /// When the last write past the pages was served.
    last_pass: Mutex<Option<Instant>>,
}

/// What the kernel caches of all files of a mount.
#[derive(Clone, Default)]
pub struct KernelCache {
    dropper: Dropper,
    seen: Arc<Seen>,
    open: Arc<RwLock<HashMap<FileId, OpenFile>>>,
}

struct OpenFile {
    handles: usize,
    pages: Arc<OpenPages>,
}

impl OpenFile {
    fn new(leased: bool) -> Self {
        let pages = OpenPages { pages: Mutex::new(FilePages::new(leased)), ..Default::default() };
        Self { handles: 0, pages: Arc::new(pages) }
    }
}

/// A handle of a file is open.
pub(crate) struct Opening {
    cache: KernelCache,
    file: FileId,
    pages: Arc<OpenPages>,
}

impl KernelCache {
    /// The mount stands.
    pub fn attach(&self, notifier: Notifier) {
        self.dropper.attach(notifier);
    }

    /// Whether a file is as it was when it was opened last.
    pub(crate) fn same(&self, attr: &Attr) -> bool {
        self.seen.same(attr)
    }

    /// A handle is being opened. `true`: others are open, so that what the kernel
    /// has of the file is good.
    pub(crate) fn opening(&self, file: FileId, leased: bool) -> (Opening, bool) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let entry = open.entry(file).or_insert_with(|| OpenFile::new(leased));
        entry.handles += 1;
        let opening = Opening { cache: self.clone(), file, pages: entry.pages.clone() };
        (opening, entry.handles > 1)
    }

    fn get(&self, file: FileId) -> Option<Arc<OpenPages>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&file).map(|file| file.pages.clone())
    }

    /// Before a thread of the kernel is told attributes.
    pub(crate) fn show(&self, by: u32, attr: &Attr) {
        if attr.kind == FileKind::File
            && let Some(pages) = self.get(attr.file)
        {
            self.make_room(attr.file, &pages, attr.size);
            if pages.finds_out(attr.size) {
                // Of this answer it then believes all but the size.
                self.dropper.forget_attributes(attr.file).wait(Instant::now() + GIVE_UP);
            }
            pages.lock().shown(by, attr.size);
        }
    }

    /// The same if nothing has to be waited for.
    pub(crate) fn may_show(&self, by: u32, attr: &Attr) -> bool {
        if attr.kind == FileKind::File
            && let Some(pages) = self.get(attr.file)
        {
            if pages.finds_out(attr.size) {
                return false;
            }
            let mut pages = pages.lock();
            if pages.before(attr.size).is_some() {
                return false;
            }
            pages.shown(by, attr.size);
        }
        true
    }

    /// This mount has set the size.
    pub(crate) fn cut(&self, file: FileId, size: u64) {
        if let Some(pages) = self.get(file) {
            pages.lock().cut(size);
        }
    }

    fn make_room(&self, file: FileId, pages: &OpenPages, size: u64) {
        let drop = pages.lock().before(size);
        if let Some(drop) = drop {
            self.carry_out(file, pages, &drop);
        }
    }

    fn drop_range(&self, file: FileId, start: u64, end: u64) {
        match self.get(file) {
            Some(pages) => {
                let mut state = pages.lock();
                let drop = state.drop_begins(start..end);
                // From now on others may change the size.
                state.learned();
                std::mem::drop(state);
                self.carry_out(file, &pages, &drop);
            }
            None => {
                self.dropper.start(file, start..end).wait(Instant::now() + GIVE_UP);
            }
        }
    }

    fn carry_out(&self, file: FileId, pages: &OpenPages, drop: &PageDrop) {
        if self.drop_now(file, pages, &drop.bytes) {
            pages.lock().dropped(drop);
            *pages.last_drop.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        } else {
            tracing::error!(
                "file {file}: the kernel did not drop its pages within {GIVE_UP:?}; \
                 programs that have it open may see old bytes"
            );
        }
    }

    /// The kernel waits for locked pages. Those that a request holds which itself
    /// may be waiting for the lease that is being given up are let be: see
    /// [`FilePages::held`].
    fn drop_now(&self, file: FileId, pages: &OpenPages, bytes: &Range<u64>) -> bool {
        let begin = Instant::now();
        let whole = self.dropper.start(file, bytes.clone());
        let mut look = FIRST_LOOK;
        while !whole.wait(Instant::now() + look) {
            if begin.elapsed() > GIVE_UP {
                return false;
            }
            look = (look * 2).min(LAST_LOOK);
            let held = pages.lock().held(bytes);
            if !held.is_empty() && self.drop_around(file, bytes, &held) {
                return true;
            }
        }
        true
    }

    /// Whether all is dropped but pages that are held, and those are indeed locked.
    fn drop_around(&self, file: FileId, bytes: &Range<u64>, held: &[Range<u64>]) -> bool {
        let start = |part| self.dropper.start(file, part);
        let others: Vec<_> = without(bytes, held).into_iter().map(start).collect();
        let held: Vec<_> = held.iter().cloned().map(start).collect();
        let until = Instant::now() + LAST_LOOK;
        others.iter().all(|part| part.wait(until))
            && held.iter().all(|part| {
                // It may have to wait for its turn on a processor.
                while !part.wait(Instant::now() + FIRST_LOOK) {
                    if part.is_blocked() {
                        return true;
                    }
                    if Instant::now() > until {
                        return false;
                    }
                }
                true
            })
    }
}

impl UpperCache for KernelCache {
    fn drop_pages(&self, file: FileId, start: u64, end: u64) {
        self.drop_range(file, start, end);
    }

    fn drop_everything(&self) {
        // What is not open is not read before it has been opened: as unseen.
        self.seen.clear();
        let open: Vec<FileId> = {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            open.keys().copied().collect()
        };
        for file in open {
            self.drop_range(file, 0, u64::MAX);
        }
    }
}

impl OpenPages {
    fn lock(&self) -> MutexGuard<'_, FilePages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finds_out(&self, size: u64) -> bool {
        let last = *self.last_pass.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pages = self.lock();
        if last.is_none_or(|at| at.elapsed() > ACTS) {
            pages.learned();
        }
        pages.finds_out(size)
    }

    fn dropped_recently(&self) -> bool {
        let last = *self.last_drop.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|at| at.elapsed() < WRITE_ARRIVES)
    }
}

impl Opening {
    /// The kernel keeps what it has of the file, which is as long as this.
    pub(crate) fn kept(&self, size: u64) {
        self.pages.lock().kept(size);
    }

    /// Serves a read; `read` says how many bytes it brought, and tells what it is
    /// given whether it holds the lease.
    pub(crate) fn reading<E>(
        &self,
        by: u32,
        bytes: Range<u64>,
        size: u64,
        read: impl FnOnce(&dyn Fn(bool)) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let number = self.pages.lock().read_begins(by, bytes.clone(), size);
        let result = read(&|entered| self.pages.lock().read_enters(number, entered));
        // Of a read that failed the kernel keeps nothing.
        let brought = result.as_ref().map_or(bytes.end, |n| bytes.start + *n as u64);
        self.pages.lock().read_ends(number, bytes.end, brought);
        result
    }

    /// Serves a write that went through the kernel's pages; `write` says where
    /// the bytes end. (Elsewhere than the kernel thinks if `O_APPEND` came by
    /// `fcntl`: then its pages are wrong.)
    pub(crate) fn writing<E>(
        &self,
        bytes: Range<u64>,
        write: impl FnOnce() -> Result<u64, E>,
    ) -> Result<(), E> {
        let recent = self.pages.dropped_recently();
        let number = self.pages.lock().write_begins(bytes.clone(), recent);
        let result = write();
        let mut drop = self.pages.lock().write_works(number);
        if result.as_ref().is_ok_and(|end| *end != bytes.end) {
            drop = Some(self.pages.lock().drop_begins(bytes.start..u64::MAX));
        }
        if let Some(drop) = drop {
            self.cache.carry_out(self.file, &self.pages, &drop);
        }
        self.pages.lock().write_ends(number);
        result.map(|_| ())
    }

    /// Serves a write past the kernel's pages; `write` says where the bytes end.
    pub(crate) fn passing<E>(
        &self,
        bytes: &Range<u64>,
        write: impl FnOnce() -> Result<u64, E>,
    ) -> Result<(), E> {
        let stamp = || {
            let mut last = self.pages.last_pass.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some(Instant::now());
        };
        stamp();
        self.pages.lock().passes(bytes);
        let end = write();
        if let Ok(end) = &end {
            self.cache.make_room(self.file, &self.pages, *end);
        }
        let mut pages = self.pages.lock();
        pages.passed();
        if end.is_err() {
            pages.learned();
        }
        drop(pages);
        stamp();
        end.map(|_| ())
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut open = self.cache.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = open.get_mut(&self.file) {
            entry.handles -= 1;
            if entry.handles == 0 {
                open.remove(&self.file);
            }
        }
    }
}
