//! The file below redb: its pages, each with a checksum of its own.
//!
//! redb keeps checksums, but looks at them only when it repairs a file. Here
//! every page is verified whenever it is read, before redb sees it, so that a
//! flipped bit becomes an error and never an answer (or a panic).
//!
//! The file is drawn in `docs/format-metastore.md`. In blocks of 4 KiB: two
//! slots for redb's header, which is written to them in turn; then groups of
//! one block of checksums and the 1024 pages that they cover.
//!
//! Invariants
//! - A checksum reaches the file no later than the sync that makes its page
//!   durable, and before the header that makes the page count.
//! - A header slot is overwritten only while the other holds a durable header.
//!   So one of them is whole whenever the power fails.
//! - redb writes a page that counts never in place. So where a crash leaves a
//!   page and its checksum apart, the page does not count and is not read.

use crate::directory::Home;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_host::fs::{File, OpenHow};
use weir_host::sync::{Mutex, RwLock};
use weir_types::checksum::crc32c;
use weir_types::limits::{BLOCK, BLOCK_BYTES};
use weir_types::{Error, ErrorKind, Result};

/// Pages whose checksums fit one block.
const GROUP_PAGES: u64 = BLOCK / 4;
/// Where the groups begin, blocks.
const GROUPS_START: u64 = 2;
/// Bytes of a header slot before redb's own header.
const SLOT_HEADER_BYTES: usize = 32;
/// The most bytes of redb's own header.
const MAX_HEADER_BYTES: usize = BLOCK_BYTES - SLOT_HEADER_BYTES;
const SLOT_MAGIC: [u8; 8] = *b"WEIRTREE";
const SLOT_VERSION: u32 = 1;

/// Byte and bit of redb's header that say that the last writer has not closed the file (the "god
/// byte" of redb's design document).
const NOT_CLOSED: (usize, u8) = (9, 2);

/// The first fault that a read has found. redb itself reports only that there was one.
pub(crate) type FirstFault = Arc<Mutex<Option<Error>>>;

/// The state of the header slots.
struct Slots {
    /// redb's header, padded with zeros.
    header: Box<[u8]>,
    /// Number of times the header was written.
    writes: u64,
    /// Whether the last write is not synced yet. If so, the next one goes to the same slot.
    unsynced: bool,
    /// Whether a writer was ever interrupted by a crash. If so, pages that do not count may not
    /// match their checksums.
    crashed: bool,
}

/// The checksums of all pages. A page that was never written has 0.
#[derive(Default)]
struct Sums {
    groups: Vec<Box<[u32; GROUP_PAGES as usize]>>,
    /// Groups that differ from the file.
    changed: Vec<bool>,
    /// Pages that this process has written, or has read and verified: one bit each.
    seen: Vec<[AtomicU64; GROUP_PAGES as usize / 64]>,
}

/// The file, as redb's storage. redb writes with one thread at a time.
pub(crate) struct PageFile {
    file: File,
    home: Home,
    name: String,
    slots: Mutex<Slots>,
    sums: RwLock<Sums>,
    /// Length as redb sees it, bytes.
    len: AtomicU64,
    /// Held while the file is changed, so that a verification never sees a page without its
    /// checksum.
    changing: Mutex<()>,
    fault: FirstFault,
}

impl std::fmt::Debug for PageFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl PageFile {
    /// Makes an empty file, replacing one of this name.
    pub fn create(home: &Home, name: &str) -> Result<Self> {
        let file = home.file(name, OpenHow::REPLACE)?;
        let header = vec![0; MAX_HEADER_BYTES].into();
        let slots = Slots { header, writes: 0, unsynced: false, crashed: false };
        Ok(Self::new(home, name, file, slots, Sums::default(), 0))
    }

    /// Opens a file.
    ///
    /// Errors: `NotFound`, `Corrupt`, `Unsupported`, those of the disk.
    pub fn open(home: &Home, name: &str) -> Result<Self> {
        let file = home.file(name, OpenHow::WRITE)?;
        let damaged = |offset: u64, what: &str| damage(&home.display(name), offset, what);
        let size = file.size().map_err(|e| home.error(name, e))?;
        let read = |offset: u64| {
            let mut block = Box::new([0; BLOCK_BYTES]);
            match file.read_full(&mut block[..], offset) {
                Ok(BLOCK_BYTES) => Ok(block),
                Ok(_) => Err(damaged(offset, "the file is cut short")),
                Err(e) => Err(home.error(name, e)),
            }
        };
        // A killed process may have left a header that is not durable. The next header is written
        // over the other slot.
        home.sync_file(&file, "meta-tree").map_err(|e| home.error(name, e))?;
        let mut newest: Option<Slots> = None;
        for number in 0..GROUPS_START {
            match parse_slot(&*read(number * BLOCK)?) {
                Slot::Whole(slots) => {
                    if newest.as_ref().is_none_or(|other| slots.writes > other.writes) {
                        newest = Some(slots);
                    }
                }
                Slot::Damaged => {}
                Slot::UnknownVersion(version) => {
                    let what = format!(
                        "{}: page file of version {version}, which this program does not know",
                        home.display(name)
                    );
                    return Err(Error::new(ErrorKind::Unsupported, what));
                }
            }
        }
        let mut slots = newest.ok_or_else(|| damaged(0, "both copies of the header"))?;
        slots.crashed |= slots.header[NOT_CLOSED.0] & NOT_CLOSED.1 != 0;
        let Some(pages) = pages_in(size / BLOCK).filter(|_| size.is_multiple_of(BLOCK)) else {
            return Err(damaged(size, "the file is cut short"));
        };
        let mut sums = Sums::default();
        sums.resize(pages);
        for (group, sums) in sums.groups.iter_mut().enumerate() {
            let block = read(sums_block(group as u64) * BLOCK)?;
            for (sum, bytes) in sums.iter_mut().zip(block.chunks_exact(4)) {
                *sum = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        Ok(Self::new(home, name, file, slots, sums, pages * BLOCK))
    }

    fn new(home: &Home, name: &str, file: File, slots: Slots, sums: Sums, len: u64) -> Self {
        Self {
            file,
            home: home.clone(),
            name: home.display(name),
            slots: Mutex::new(slots),
            sums: RwLock::new(sums),
            len: AtomicU64::new(len),
            changing: Mutex::new(()),
            fault: FirstFault::default(),
        }
    }

    /// Receives the first damage that a read finds.
    pub fn first_fault(&self) -> FirstFault {
        Arc::clone(&self.fault)
    }

    /// Keeps the first error, and returns it to redb.
    fn fail(&self, error: Error) -> io::Error {
        let text = error.to_string();
        self.fault.lock().get_or_insert(error);
        io::Error::other(text)
    }

    fn read_pages(&self, first: u64, out: &mut [u8]) -> io::Result<()> {
        let expected: Vec<u32> = {
            let sums = self.sums.read();
            (first..first + out.len() as u64 / BLOCK).map(|page| sums.get(page)).collect()
        };
        let mut page = first;
        for piece in pieces(first, out.len()) {
            let offset = page_block(page) * BLOCK;
            let bytes = &mut out[piece];
            if self.file.read_full(bytes, offset)? < bytes.len() {
                return Err(self.fail(damage(&self.name, offset, "the file is cut short")));
            }
            for bytes in bytes.chunks_exact(BLOCK_BYTES) {
                if page_sum(bytes) != expected[(page - first) as usize] {
                    let offset = page_block(page) * BLOCK;
                    return Err(self.fail(damage(&self.name, offset, "a page of the tree")));
                }
                page += 1;
            }
        }
        let sums = self.sums.read();
        (first..page).for_each(|page| sums.saw(page));
        Ok(())
    }

    fn write_pages(&self, first: u64, bytes: &[u8]) -> io::Result<()> {
        let mut page = first;
        for piece in pieces(first, bytes.len()) {
            let piece = &bytes[piece];
            let _changing = self.changing.lock();
            self.home.write(&self.file, piece, page_block(page) * BLOCK)?;
            let mut sums = self.sums.write();
            for bytes in piece.chunks_exact(BLOCK_BYTES) {
                sums.set(page, page_sum(bytes));
                page += 1;
            }
        }
        Ok(())
    }

    /// Writes redb's header to the slot whose turn it is. All earlier writes are in the file by
    /// then, so that a kill leaves the file whole.
    fn write_header(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.write_sums()?;
        let mut slots = self.slots.lock();
        slots.header[offset..offset + bytes.len()].copy_from_slice(bytes);
        if !slots.unsynced {
            slots.writes += 1;
            slots.unsynced = true;
        }
        let block = slot_bytes(&slots);
        let number = slots.writes % GROUPS_START;
        drop(slots);
        let _changing = self.changing.lock();
        Ok(self.home.write(&self.file, &block, number * BLOCK)?)
    }

    /// Brings the checksums in the file up to date.
    fn write_sums(&self) -> io::Result<()> {
        loop {
            let _changing = self.changing.lock();
            let mut sums = self.sums.write();
            let Some(group) = sums.changed.iter().position(|&changed| changed) else {
                return Ok(());
            };
            sums.changed[group] = false;
            let block: Vec<u8> = sums.groups[group].iter().flat_map(|s| s.to_le_bytes()).collect();
            drop(sums);
            // After an error redb writes no more.
            self.home.write(&self.file, &block, sums_block(group as u64) * BLOCK)?;
        }
    }
}

/// The storage that redb sees.
#[derive(Debug)]
pub(crate) struct Backend(pub Arc<PageFile>);

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

impl PageFile {
    /// Verifies `count` pages from `first` on against their checksums. Also compares the checksums
    /// with memory at the borders of groups, and the headers at the beginning. Adds damage to
    /// `damaged`, and returns the next page, if there is one.
    ///
    /// A page may not match after a crash that interrupted its write. Such a page does not count: a
    /// page that counts is read by redb sooner or later and found damaged there. So after a crash,
    /// a page is skipped until this process has read or written it.
    ///
    /// After a crash a page may not match because it was being written. It does
    /// not count then; if it did, redb would have it read (by an export, at the
    /// latest) and find it damaged. So such a page is passed over until this
    /// process has read or written it.
    pub fn verify(
        &self,
        first: u64,
        count: u64,
        damaged: &mut Vec<String>,
    ) -> io::Result<Option<u64>> {
        let _changing = self.changing.lock();
        let mut wrong = |block: u64, what: &str| {
            damaged.push(damage(&self.name, block * BLOCK, what).to_string());
        };
        let mut bytes = [0; BLOCK_BYTES];
        if first == 0 {
            for slot in 0..GROUPS_START {
                self.file.read_full(&mut bytes, slot * BLOCK)?;
                // The second slot is empty until its first write.
                if !matches!(parse_slot(&bytes), Slot::Whole(_)) && bytes != [0; BLOCK_BYTES] {
                    wrong(slot, "a copy of the header");
                }
            }
        }
        let pages = self.len.load(Ordering::Acquire).div_ceil(BLOCK);
        let crashed = self.slots.lock().crashed;
        let sums = self.sums.read();
        for page in first..(first + count).min(pages) {
            if page.is_multiple_of(GROUP_PAGES) {
                let group = (page / GROUP_PAGES) as usize;
                self.file.read_full(&mut bytes, sums_block(group as u64) * BLOCK)?;
                let mut both = bytes.chunks_exact(4).zip(sums.groups[group].iter());
                let same = both.all(|(a, b)| a == b.to_le_bytes());
                if !sums.changed[group] && !same {
                    wrong(sums_block(group as u64), "the checksums of pages");
                }
            }
            bytes.fill(0);
            self.file.read_full(&mut bytes, page_block(page) * BLOCK)?;
            // The header slots stand for page 0.
            let certain = !crashed || sums.was_seen(page);
            if page > 0 && certain && page_sum(&bytes) != sums.get(page) {
                wrong(page_block(page), "a page of the tree");
            }
        }
        Ok(Some(first + count).filter(|&next| next < pages))
    }
}

impl redb::StorageBackend for PageFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len.load(Ordering::Acquire))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if let Some(start) = header_range(offset, out.len()) {
            out.copy_from_slice(&self.slots.lock().header[start..start + out.len()]);
            return Ok(());
        }
        let pages = aligned(offset, out.len())?;
        if offset + out.len() as u64 > self.len.load(Ordering::Acquire) {
            let what = format!("redb asks for a page beyond its end, byte {offset}");
            return Err(self.fail(Error::new(ErrorKind::Corrupt, what).context(&self.name)));
        }
        self.read_pages(pages, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let pages = len.div_ceil(BLOCK);
        let blocks = match pages {
            0 => GROUPS_START,
            pages => page_block(pages - 1) + 1,
        };
        // Truncated first: checksums of removed pages must not come back.
        let _changing = self.changing.lock();
        self.sums.write().resize(pages);
        self.home.reserve().make_room(|| self.file.set_len(blocks * BLOCK))?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.write_sums()?;
        self.home.sync_file(&self.file, "meta-tree")?;
        self.slots.lock().unsynced = false;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match header_range(offset, data.len()) {
            Some(start) => self.write_header(start, data),
            None => self.write_pages(aligned(offset, data.len())?, data),
        }
    }
}

impl Sums {
    fn resize(&mut self, pages: u64) {
        let groups = pages.div_ceil(GROUP_PAGES) as usize;
        self.groups.resize_with(groups, || Box::new([0; GROUP_PAGES as usize]));
        self.changed.resize(groups, false);
        self.seen.resize_with(groups, Default::default);
        let rest = (pages % GROUP_PAGES) as usize;
        if rest > 0
            && let Some(last) = self.groups.last_mut()
            && last[rest..].iter().any(|&sum| sum != 0)
        {
            last[rest..].fill(0);
            self.changed[groups - 1] = true;
        }
    }

    fn get(&self, page: u64) -> u32 {
        let group = self.groups.get((page / GROUP_PAGES) as usize);
        group.map_or(0, |group| group[(page % GROUP_PAGES) as usize])
    }

    fn set(&mut self, page: u64, sum: u32) {
        let group = (page / GROUP_PAGES) as usize;
        self.groups[group][(page % GROUP_PAGES) as usize] = sum;
        self.changed[group] = true;
        self.saw(page);
    }

    fn seen(&self, page: u64) -> Option<(&AtomicU64, u64)> {
        let group = self.seen.get((page / GROUP_PAGES) as usize)?;
        Some((&group[(page % GROUP_PAGES / 64) as usize], 1 << (page % 64)))
    }

    fn saw(&self, page: u64) {
        if let Some((word, bit)) = self.seen(page) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn was_seen(&self, page: u64) -> bool {
        self.seen(page).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }
}

/// The checksum of a page. It is 0 for a page of zeros, as for pages that were never written.
fn page_sum(page: &[u8]) -> u32 {
    /// CRC-32C of 4096 zeros (verified by a test).
    const OF_ZEROS: u32 = 0x98f9_4189;
    crc32c(page) ^ OF_ZEROS
}

/// The block of a group's checksums.
fn sums_block(group: u64) -> u64 {
    GROUPS_START + group * (GROUP_PAGES + 1)
}

/// The block of a page.
fn page_block(page: u64) -> u64 {
    sums_block(page / GROUP_PAGES) + 1 + page % GROUP_PAGES
}

/// Number of pages in a file of `blocks` blocks.
fn pages_in(blocks: u64) -> Option<u64> {
    let blocks = blocks.checked_sub(GROUPS_START)?;
    let (full, rest) = (blocks / (GROUP_PAGES + 1), blocks % (GROUP_PAGES + 1));
    Some(full * GROUP_PAGES + rest.saturating_sub(1))
}

/// Cuts a run of pages at the ends of groups, as ranges of its bytes.
fn pieces(first: u64, bytes: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        if start >= bytes {
            return None;
        }
        let page = first + (start / BLOCK_BYTES) as u64;
        let room = (GROUP_PAGES - page % GROUP_PAGES) as usize * BLOCK_BYTES;
        let end = bytes.min(start + room);
        Some(std::mem::replace(&mut start, end)..end)
    })
}

/// Where a range begins in redb's header; `None` if it lies elsewhere.
fn header_range(offset: u64, len: usize) -> Option<usize> {
    let start = usize::try_from(offset).ok()?;
    (start.checked_add(len)? <= MAX_HEADER_BYTES).then_some(start)
}

/// The first page of a range of whole pages.
fn aligned(offset: u64, len: usize) -> io::Result<u64> {
    if offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK_BYTES) {
        return Ok(offset / BLOCK);
    }
    Err(io::Error::other(format!("redb asks for {len} bytes at {offset}: not whole pages")))
}

enum Slot {
    Whole(Slots),
    Damaged,
    UnknownVersion(u32),
}

fn slot_bytes(slots: &Slots) -> Vec<u8> {
    let mut block = vec![0; SLOT_HEADER_BYTES];
    block[0..8].copy_from_slice(&SLOT_MAGIC);
    block[12..16].copy_from_slice(&SLOT_VERSION.to_le_bytes());
    block[16..24].copy_from_slice(&slots.writes.to_le_bytes());
    block[24] = slots.crashed.into();
    block.extend_from_slice(&slots.header);
    let sum = crc32c(&block[12..]);
    block[8..12].copy_from_slice(&sum.to_le_bytes());
    block
}

fn parse_slot(block: &[u8; BLOCK_BYTES]) -> Slot {
    let number =
        |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    if block[..8] != SLOT_MAGIC || number(8) != crc32c(&block[12..]) {
        return Slot::Damaged;
    }
    if number(12) != SLOT_VERSION {
        return Slot::UnknownVersion(number(12));
    }
    let writes = u64::from(number(16)) | u64::from(number(20)) << 32;
    let header = block[SLOT_HEADER_BYTES..].into();
    Slot::Whole(Slots { header, writes, unsynced: false, crashed: block[24] != 0 })
}

fn damage(name: &str, offset: u64, what: &str) -> Error {
    crate::directory::damage(name, offset, what)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use redb::StorageBackend as _;

    #[test]
    fn a_page_of_zeros_has_the_sum_of_a_page_never_written() {
        assert_eq!(page_sum(&[0; BLOCK_BYTES]), 0);
    }

    #[test]
    fn the_length_of_the_file_tells_how_many_pages_it_has() {
        for pages in (0..3000).chain([1 << 20]) {
            let blocks = if pages == 0 { GROUPS_START } else { page_block(pages - 1) + 1 };
            assert_eq!(pages_in(blocks), Some(pages));
        }
        assert_eq!(pages_in(1), None);
    }

    #[test]
    fn pages_are_read_back_across_groups_and_after_the_file_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open_or_make(dir.path()).unwrap();
        let pages = PageFile::create(&home, "tree").unwrap();
        pages.set_len(1100 * BLOCK).unwrap();
        let run: Vec<u8> = (0..40 * BLOCK_BYTES).map(|n| (n / 1000) as u8).collect();
        pages.write(1000 * BLOCK, &run).unwrap();
        pages.write(0, b"header").unwrap();
        pages.sync_data().unwrap();
        let pages = PageFile::open(&home, "tree").unwrap();
        assert_eq!(pages.len().unwrap(), 1100 * BLOCK);
        let mut found = vec![1; run.len()];
        pages.read(1000 * BLOCK, &mut found).unwrap();
        assert!(found == run);
        let mut header = [0; 6];
        pages.read(0, &mut header).unwrap();
        assert_eq!(&header, b"header");
        // After it was truncated and extended, it is empty there.
        pages.set_len(1010 * BLOCK).unwrap();
        pages.set_len(1100 * BLOCK).unwrap();
        pages.read(1020 * BLOCK, &mut found[..BLOCK_BYTES]).unwrap();
        assert!(found[..BLOCK_BYTES].iter().all(|&b| b == 0));
    }

    #[test]
    fn a_header_that_is_torn_leaves_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open_or_make(dir.path()).unwrap();
        let pages = PageFile::create(&home, "tree").unwrap();
        pages.set_len(BLOCK).unwrap();
        for text in [b"one", b"two"] {
            pages.write(0, text).unwrap();
            pages.sync_data().unwrap();
        }
        // After two writes without a sync only one slot is at risk.
        pages.write(0, b"thr").unwrap();
        pages.write(0, b"fou").unwrap();
        let path = dir.path().join("tree");
        let whole = std::fs::read(&path).unwrap();
        for (at, expected) in [(BLOCK_BYTES + 40, b"two"), (40, b"fou"), (9, b"fou")] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            let mut found = [0; 3];
            PageFile::open(&home, "tree").unwrap().read(0, &mut found).unwrap();
            assert_eq!(&found, expected);
        }
    }
}
