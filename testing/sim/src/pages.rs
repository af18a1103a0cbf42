//! The page cache above a client, as the kernel has it above a mount: pages are read once, and
//! served until they are dropped. A page that is being read is locked, and dropping it waits for
//! the read.

use std::collections::BTreeMap;
use std::ops::Range;
use weir_client::{Context, File, UpperCache};
use weir_host::sync::{Condvar, Mutex};
use weir_types::{FileId, Result};

const PAGE_BYTES: u64 = 4096;

#[derive(Default)]
struct State {
    pages: BTreeMap<(FileId, u64), Vec<u8>>,
    /// Reads in progress.
    locked: Vec<Locked>,
    next: u64,
}

/// Pages that a read fills.
struct Locked {
    number: u64,
    file: FileId,
    /// Numbers of the pages.
    pages: Range<u64>,
    /// Whether the read has its lease. Before that its pages are invisible, and it may be waiting
    /// for an operation that waits for pages to be dropped.
    entered: bool,
}

/// The pages of one client.
#[derive(Default)]
pub(crate) struct Pages {
    state: Mutex<State>,
    unlocked: Condvar,
}

fn pages_of(offset: u64, len: u64) -> Range<u64> {
    offset / PAGE_BYTES..offset.saturating_add(len).div_ceil(PAGE_BYTES)
}

impl Pages {
    fn lock(&self, file: FileId, pages: Range<u64>) -> u64 {
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        state.locked.push(Locked { number, file, pages, entered: false });
        number
    }

    fn entered(&self, number: u64, entered: bool) {
        let mut state = self.state.lock();
        let read = state.locked.iter_mut().find(|locked| locked.number == number);
        read.into_iter().for_each(|read| read.entered = entered);
        self.unlocked.notify_all();
    }

    fn unlock(&self, number: u64) {
        self.state.lock().locked.retain(|locked| locked.number != number);
        self.unlocked.notify_all();
    }

    /// Drops the pages for which `goes` returns true, as the kernel does for a mount. Waits for
    /// reads that have their lease.
    fn drop_where(&self, goes: impl Fn(FileId, &Range<u64>) -> bool) {
        let mut state = self.state.lock();
        while state.locked.iter().any(|read| read.entered && goes(read.file, &read.pages)) {
            state = self.unlocked.wait(state);
        }
        state.pages.retain(|(file, page), _| !goes(*file, &(*page..*page + 1)));
    }

    /// Reads from pages; reads missing pages, as whole pages, from the file.
    pub fn read(
        &self,
        file: &File,
        ctx: &Context,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let id = file.id();
        let pages = pages_of(offset, buffer.len() as u64);
        let (start, end) = (pages.start * PAGE_BYTES, pages.end * PAGE_BYTES);
        let within = (offset - start) as usize..(offset - start) as usize + buffer.len();
        if let Some(bytes) = self.kept(id, &pages) {
            buffer.copy_from_slice(&bytes[within]);
            return Ok(buffer.len());
        }
        let mut bytes = vec![0; (end - start) as usize];
        let number = self.lock(id, pages.clone());
        // All of them are read again.
        self.state.lock().pages.retain(|(file, page), _| *file != id || !pages.contains(page));
        let read =
            file.read_entering(ctx, start, &mut bytes, &|entered| self.entered(number, entered));
        if let Ok(len) = read {
            let mut state = self.state.lock();
            let whole = bytes[..len].chunks_exact(PAGE_BYTES as usize);
            for (page, bytes) in pages.clone().zip(whole) {
                state.pages.insert((id, page), bytes.to_vec());
            }
        }
        self.unlock(number);
        let len = read?.saturating_sub(within.start).min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[within.start..within.start + len]);
        Ok(len)
    }

    /// The bytes of pages, if all of them are cached.
    fn kept(&self, file: FileId, pages: &Range<u64>) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let mut bytes = Vec::new();
        for page in pages.clone() {
            bytes.extend_from_slice(state.pages.get(&(file, page))?);
        }
        Some(bytes)
    }

    /// Writes to the file and to cached pages.
    pub fn write(&self, file: &File, ctx: &Context, offset: u64, data: &[u8]) -> Result<()> {
        let id = file.id();
        let pages = pages_of(offset, data.len() as u64);
        // Without a lock: dropping pages skips those that wait for a write lease, and only pages
        // that are still cached are written.
        let written = file.write_at(ctx, offset, data);
        let mut state = self.state.lock();
        for page in pages {
            if written.is_err() {
                state.pages.remove(&(id, page));
            } else if let Some(bytes) = state.pages.get_mut(&(id, page)) {
                let start = page * PAGE_BYTES;
                let from = offset.max(start);
                let to = (offset + data.len() as u64).min(start + PAGE_BYTES);
                let (target, source) = (from - start..to - start, from - offset..to - offset);
                bytes[target.start as usize..target.end as usize]
                    .copy_from_slice(&data[source.start as usize..source.end as usize]);
            }
        }
        written
    }

    /// Drops a file's pages: it is closed, or its size changes.
    pub fn forget(&self, file: FileId) {
        self.drop_pages(file, 0, u64::MAX);
    }
}

impl UpperCache for Pages {
    fn drop_pages(&self, file: FileId, start: u64, end: u64) {
        let pages = pages_of(start, end.saturating_sub(start));
        self.drop_where(|of, filled| {
            of == file && filled.start < pages.end && pages.start < filled.end
        });
    }

    fn drop_everything(&self) {
        self.drop_where(|_, _| true);
    }
}
