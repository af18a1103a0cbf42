//! Open handles, as the kernel's page cache sees them: their reads, writes and closes.

use crate::kernel::cache::{KernelCache, OpenFile, OpenPages};
use crate::kernel::size::Failed;
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use weir_types::FileId;

/// A write that bypassed the page cache.
pub(crate) struct Passed {
    /// Its bytes.
    pub(crate) bytes: Range<u64>,
    /// Its end according to the kernel.
    pub(crate) believed_end: u64,
}

/// An open handle of a file.
pub(crate) struct Opening {
    cache: KernelCache,
    file: FileId,
    maps: bool,
    pages: Arc<OpenPages>,
}

impl KernelCache {
    /// Records the opening of a handle of a file with this size; `maps` says that it is for reading
    /// and writing. Returns `true` if other handles are open, so that the kernel's pages are valid.
    pub(crate) fn opening(
        &self,
        file: FileId,
        (leased, maps): (bool, bool),
        size: u64,
    ) -> (Opening, bool) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let entry = open.entry(file).or_insert_with(|| OpenFile::new(leased, size));
        entry.handles += 1;
        entry.mappers += usize::from(maps);
        let opening = Opening { cache: self.clone(), file, maps, pages: entry.pages.clone() };
        (opening, entry.handles > 1)
    }
}

impl Opening {
    /// Records that the kernel keeps its pages of the file, which has this size.
    pub(crate) fn kept(&self, size: u64) {
        self.pages.lock().kept(size);
    }

    /// Serves a read. `read` returns the number of bytes, and calls its argument with whether it
    /// holds the lease.
    pub(crate) fn reading<E>(
        &self,
        by: u32,
        bytes: &Range<u64>,
        read: impl FnOnce(&dyn Fn(bool)) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let number = {
            let mut pages = self.pages.lock();
            pages.size.asks(by, Instant::now());
            pages.read_begins(by, bytes)
        };
        let result = read(&|entered| self.pages.lock().read_enters(number, entered));
        // Of a read that failed the kernel keeps nothing.
        let brought = result.as_ref().map_or(bytes.end, |n| bytes.start + *n as u64);
        let again = self.pages.lock().read_ends(number, bytes.end, brought);
        if let Some(drop) = again {
            // It waits for the answer; nobody waits for it.
            self.cache.dropper.start(self.file, drop.bytes);
        }
        result
    }

    /// Serves a write through the page cache; `write` returns the end of the bytes. (That is not
    /// where the kernel assumes if `O_APPEND` was set by `fcntl`: then its pages are wrong.)
    pub(crate) fn writing<E>(
        &self,
        by: u32,
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
        let mut pages = self.pages.lock();
        pages.write_ends(number);
        if result.is_ok() {
            pages.size.writes(by, bytes.end);
        }
        result.map(|_| ())
    }

    /// Serves a write that bypasses the page cache.
    pub(crate) fn passing<E>(
        &self,
        by: u32,
        write: impl FnOnce() -> Result<Passed, E>,
    ) -> Result<(), E> {
        self.pages.lock().passes();
        let passed = write();
        // Of one that failed nobody knows how far it came.
        let bytes = passed.as_ref().map_or(0..u64::MAX, |passed| passed.bytes.clone());
        let drop = self.pages.lock().passed(&bytes);
        if let Some(drop) = drop {
            self.cache.carry_out(self.file, &self.pages, &drop);
        }
        let mut pages = self.pages.lock();
        pages.pass_ends();
        if let Ok(passed) = &passed {
            pages.size.writes(by, passed.believed_end);
            pages.size.passes(by, passed.believed_end, Instant::now());
        }
        passed.map(|_| ())
    }

    /// See [`crate::kernel::size::KernelSize::appends_here`].
    pub(crate) fn appends_here(&self, offset: u64) -> bool {
        self.pages.lock().size.appends_here(offset)
    }

    /// Records a failed write that bypassed the page cache.
    pub(crate) fn fails(&self, failed: Failed) {
        self.pages.lock().size.fails(failed, Instant::now());
    }

    /// Whether a size that this thread sets through this handle may be the kernel taking a failed
    /// write back.
    pub(crate) fn may_take_back(&self, by: u32, fh: u64, size: u64) -> bool {
        self.pages.lock().size.may_take_back(by, fh, size, Instant::now())
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut open = self.cache.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = open.get_mut(&self.file) {
            entry.handles -= 1;
            entry.mappers -= usize::from(self.maps);
            if entry.handles == 0 {
                open.remove(&self.file);
            }
        }
    }
}
