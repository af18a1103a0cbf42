//! One object: its open file, its cached length, its lock.

use crate::directories::Directories;
use crate::geometry::{
    BLOCK, HEADER_BYTES, SLOT_BYTES, block_count, data_position, file_bytes, object_bytes,
    section_end, slot_area, slot_position,
};
use crate::header::{BadHeader, Header};
use crate::piece::slot_of;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, fdatasync, fstat, ftruncate};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev};
use std::cmp::Ordering as Order;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use weir_types::limits::{BLOCK_BYTES, MAX_FILE_BYTES};
use weir_types::{Error, ErrorKind, Generation, ObjectId, Result};

/// What only the holder of the object's write lock knows and changes.
pub(crate) struct Writer {
    /// Whether the first page, with the header, is written; a new object has
    /// an empty file.
    pub(crate) has_header: bool,
    /// Whether slots behind the end were seen to be zero since it was opened.
    tidy: bool,
}

/// One open object of a target. Hold it for one request, not longer: after
/// [`crate::Target::remove`] it names a file that is gone.
///
/// Writes, truncations and `Locked` reads of one object exclude each other;
/// other reads take no lock.
pub struct Object {
    id: ObjectId,
    directories: Arc<Directories>,
    pub(crate) file: OwnedFd,
    /// Its disk had become read-only when it was opened.
    read_only: bool,
    writer: RwLock<Writer>,
    /// Length, bytes. Stored after the data that it promises.
    len: AtomicU64,
    generation: AtomicU64,
    /// A flush has failed: what the kernel dropped then, no later flush brings
    /// back, so none may report success.
    flush_failed: AtomicBool,
}

impl Object {
    /// Opens the object; makes it if asked to. `None` when there is none.
    pub(crate) fn open(
        directories: &Arc<Directories>,
        id: ObjectId,
        create: bool,
    ) -> Result<Option<Self>> {
        let Some((file, read_only)) = directories.open(id, create)? else { return Ok(None) };
        let site = &directories.site;
        let failed = |e| site.os_error(format!("open object {id}"), e);
        let corrupt =
            |what: &str| Err(site.error(ErrorKind::Corrupt, format!("object {id} {what}")));
        let stat = fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return corrupt("is not a regular file");
        }
        let has_header = stat.st_size != 0;
        let mut generation = Generation(0);
        if has_header {
            let mut bytes = [0; HEADER_BYTES];
            read_at(&file, &mut [IoSliceMut::new(&mut bytes)], 0).map_err(failed)?;
            match Header::from_disk(&bytes) {
                Ok(header) if header.id == id => generation = header.generation,
                Ok(header) => return corrupt(&format!("has the header of object {}", header.id)),
                Err(BadHeader::Damaged) => return corrupt("has a damaged header"),
                Err(BadHeader::Version(v)) => {
                    let what = format!("object {id} has format version {v}, unknown here");
                    return Err(site.error(ErrorKind::Unsupported, what));
                }
            }
        }
        Ok(Some(Self {
            id,
            directories: directories.clone(),
            file,
            read_only,
            writer: RwLock::new(Writer { has_header, tidy: !has_header }),
            len: AtomicU64::new(object_bytes(stat.st_size as u64)),
            generation: AtomicU64::new(generation.0),
            flush_failed: AtomicBool::new(false),
        }))
    }

    /// Which object it is.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Its length, bytes.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The generation of its last truncation, 0 before the first. Writes with
    /// a lower one are refused.
    pub fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Acquire))
    }

    /// Sets the length, bytes, and raises the fence to `generation`; bytes
    /// that this adds are zeros. Returns the length.
    ///
    /// Errors: `Stale` if the fence is already higher. If it is already at
    /// `generation` (and not 0) this truncation was done before: it is not
    /// repeated, because newer writes may have followed it.
    pub fn truncate(&self, len: u64, generation: Generation) -> Result<u64> {
        if len > MAX_FILE_BYTES {
            return Err(self.error(ErrorKind::FileTooLarge, format!("truncate to {len}")));
        }
        let mut writer = self.lock_for_writing()?;
        match generation.cmp(&self.generation()) {
            Order::Less => return Err(self.stale(generation)),
            Order::Equal if generation.0 > 0 => return Ok(self.len()),
            _ => {}
        }
        let old_len = self.len();
        if !writer.has_header {
            self.write_first_page(&mut writer)?;
        }
        if len < old_len {
            self.shrink_slots(len, old_len)?;
        }
        if len != old_len {
            let failed = |e| self.os_error(format!("truncate to {len}"), e);
            rustix::io::retry_on_intr(|| ftruncate(&self.file, file_bytes(len))).map_err(failed)?;
            self.set_len(len);
        }
        if generation != self.generation() {
            let header = Header { id: self.id, generation }.to_disk();
            self.write_all(&mut [IoSlice::new(&header)], 0)
                .map_err(|(_, e)| self.os_error("write the header", e))?;
            self.generation.store(generation.0, Ordering::Release);
        }
        Ok(len)
    }

    /// Makes every completed write and truncation durable, and the object's
    /// name too. After a failed flush it fails for as long as the object stays
    /// open, since nobody knows which bytes were lost.
    pub fn sync(&self) -> Result<()> {
        if self.flush_failed.load(Ordering::Acquire) {
            return Err(self.error(ErrorKind::Io, "an earlier flush failed; data may be lost"));
        }
        rustix::io::retry_on_intr(|| fdatasync(&self.file)).map_err(|e| {
            self.flush_failed.store(true, Ordering::Release);
            self.os_error("flush", e)
        })?;
        self.directories.sync(self.id)
    }

    /// Whether closing it forgets nothing.
    pub(crate) fn may_be_closed(&self) -> bool {
        !self.flush_failed.load(Ordering::Acquire)
    }

    /// Excludes writers.
    pub(crate) fn lock_for_reading(&self) -> RwLockReadGuard<'_, Writer> {
        self.writer.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Excludes everyone but readers that take no lock. The first time after
    /// the object was opened it clears slots behind the end, which an append
    /// that a crash cut short may have left.
    pub(crate) fn lock_for_writing(&self) -> Result<RwLockWriteGuard<'_, Writer>> {
        if self.read_only {
            return Err(self.error(ErrorKind::ReadOnly, "its disk has become read-only"));
        }
        let mut writer = self.writer.write().unwrap_or_else(PoisonError::into_inner);
        if !writer.tidy {
            self.clear_slots_behind_end()?;
            writer.tidy = true;
        }
        Ok(writer)
    }

    pub(crate) fn set_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    fn clear_slots_behind_end(&self) -> Result<()> {
        let len = self.len();
        let failed = |e| self.os_error("clear the slots behind the end", e);
        let size = fstat(&self.file).map_err(failed)?.st_size as u64;
        if size > file_bytes(len) {
            ftruncate(&self.file, file_bytes(len)).map_err(failed)?;
        }
        // Slots of the last section, as far as the file has them.
        let next = block_count(len);
        let start = slot_position(next);
        let end = slot_area(next).end.min(file_bytes(len));
        if start >= end {
            return Ok(());
        }
        let mut slots = vec![0; (end - start) as usize];
        read_at(&self.file, &mut [IoSliceMut::new(&mut slots)], start).map_err(failed)?;
        if slots.iter().any(|&byte| byte != 0) {
            tracing::warn!("{}: clearing checksums behind its end at {len}", self.name());
            slots.fill(0);
            self.write_all(&mut [IoSlice::new(&slots)], start).map_err(|(_, e)| failed(e))?;
        }
        Ok(())
    }

    /// Makes the slots right for a smaller length, before the file is cut.
    fn shrink_slots(&self, len: u64, old_len: u64) -> Result<()> {
        let kept = (len % BLOCK) as usize;
        let first = len / BLOCK;
        // Later sections go altogether, and so does all but the first page of
        // an object that becomes empty.
        let start = slot_position(first);
        let end = block_count(old_len).min(section_end(first));
        let end = (start + (end - first) * SLOT_BYTES as u64).min(file_bytes(len));
        if start >= end {
            return Ok(());
        }
        let mut slots = vec![0; (end - start) as usize];
        if kept > 0 {
            let slot = self.slot_of_shortened(first, kept, old_len)?;
            slots[..SLOT_BYTES].copy_from_slice(&slot.to_le_bytes());
        }
        self.write_all(&mut [IoSlice::new(&slots)], start)
            .map_err(|(_, e)| self.os_error(format!("truncate to {len}"), e))
    }

    /// The slot that a block will have when only its first `kept` bytes are
    /// left. It is the old slot plus the difference that the cut makes, so a
    /// block that had rotted still shows it.
    fn slot_of_shortened(&self, block: u64, kept: usize, old_len: u64) -> Result<u32> {
        let mut slot = [0; SLOT_BYTES];
        let mut data = [0; BLOCK_BYTES];
        self.read_slots(block, &mut slot)?;
        self.read_block(block, old_len, &mut data)?;
        let before = slot_of(&data);
        data[kept..].fill(0);
        Ok(u32::from_le_bytes(slot) ^ before ^ slot_of(&data))
    }

    /// Reads a block of an object of this length, padded with zeros.
    pub(crate) fn read_block(
        &self,
        block: u64,
        object_bytes: u64,
        data: &mut [u8; BLOCK_BYTES],
    ) -> Result<()> {
        let start = block * BLOCK;
        let valid = object_bytes.saturating_sub(start).min(BLOCK) as usize;
        let (kept, pad) = data.split_at_mut(valid);
        pad.fill(0);
        self.read_exact(kept, data_position(start), start)
    }

    /// Reads the slots of a block and of those after it in its section.
    pub(crate) fn read_slots(&self, block: u64, slots: &mut [u8]) -> Result<()> {
        self.read_exact(slots, slot_position(block), block * BLOCK)
    }

    fn read_exact(&self, bytes: &mut [u8], position: u64, offset: u64) -> Result<()> {
        let want = bytes.len();
        let got = read_at(&self.file, &mut [IoSliceMut::new(bytes)], position)
            .map_err(|e| self.os_error(format!("read at offset {offset}"), e))?;
        if got == want { Ok(()) } else { Err(self.cut_short(offset)) }
    }

    /// Writes the first page of a new object: header and zero slots.
    pub(crate) fn write_first_page(&self, writer: &mut Writer) -> Result<()> {
        let mut page = [0; BLOCK_BYTES];
        page[..HEADER_BYTES].copy_from_slice(&self.header());
        self.write_all(&mut [IoSlice::new(&page)], 0).map_err(|(_, e)| {
            self.forget_first_page();
            self.os_error("write the header", e)
        })?;
        writer.has_header = true;
        Ok(())
    }

    /// Takes back a first write that failed.
    pub(crate) fn forget_first_page(&self) {
        if let Err(e) = ftruncate(&self.file, 0) {
            tracing::error!("{}", self.os_error("take back a failed first write", e));
        }
    }

    pub(crate) fn header(&self) -> [u8; HEADER_BYTES] {
        Header { id: self.id, generation: self.generation() }.to_disk()
    }

    /// Writes all of the buffers in as few calls as the kernel lets. When it
    /// fails, says how many bytes were written before.
    pub(crate) fn write_all(
        &self,
        mut buffers: &mut [IoSlice<'_>],
        position: u64,
    ) -> std::result::Result<(), (usize, Errno)> {
        let mut done = 0;
        IoSlice::advance_slices(&mut buffers, 0);
        while !buffers.is_empty() {
            match pwritev(&self.file, buffers, position + done as u64) {
                Ok(0) => return Err((done, Errno::IO)),
                Ok(n) => {
                    done += n;
                    IoSlice::advance_slices(&mut buffers, n);
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err((done, e)),
            }
        }
        Ok(())
    }

    fn name(&self) -> String {
        format!("{}: object {}", self.directories.site, self.id)
    }

    pub(crate) fn error(&self, kind: ErrorKind, what: impl std::fmt::Display) -> Error {
        self.directories.site.error(kind, format!("object {}: {what}", self.id))
    }

    pub(crate) fn os_error(&self, doing: impl std::fmt::Display, errno: Errno) -> Error {
        self.directories.site.os_error(format!("object {}: {doing}", self.id), errno)
    }

    pub(crate) fn stale(&self, generation: Generation) -> Error {
        let now = self.generation();
        let what = format!("generation {generation} of the request is older than {now}");
        self.error(ErrorKind::Stale, what)
    }

    pub(crate) fn corrupt(&self, block: u64) -> Error {
        let what = format!("block at offset {} does not match its checksum", block * BLOCK);
        self.error(ErrorKind::Corrupt, what)
    }

    /// The file has fewer bytes than the object: somebody cut it from outside.
    pub(crate) fn cut_short(&self, offset: u64) -> Error {
        self.error(ErrorKind::Corrupt, format!("its file ends before offset {offset}"))
    }
}

/// Reads until the buffers are full or the file ends; returns the bytes read.
pub(crate) fn read_at(
    file: &OwnedFd,
    mut buffers: &mut [IoSliceMut<'_>],
    position: u64,
) -> rustix::io::Result<usize> {
    let mut done = 0;
    IoSliceMut::advance_slices(&mut buffers, 0);
    while !buffers.is_empty() {
        match preadv2(file, buffers, position + done as u64, ReadWriteFlags::empty()) {
            Ok(0) => break,
            Ok(n) => {
                done += n;
                IoSliceMut::advance_slices(&mut buffers, n);
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
