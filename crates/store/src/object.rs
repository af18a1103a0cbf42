//! One object: its open file, its cached length, its lock.

use crate::backing::Backing;
use crate::blocks::{Slots, next_used, tidy};
use crate::geometry::{
    HEADER_BYTES, SLOT_BYTES, block_count, data_position, file_bytes, first_slots, object_bytes,
    section_end, slot_position,
};
use crate::header::{BadHeader, Header};
use crate::piece::slot_of;
use crate::site::{READ_ONLY, Site};
use rustix::io::Errno;
use std::cmp::Ordering as Order;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_host::fs::File;
use weir_host::plant::{Bug, planted};
use weir_host::sync::{ReadGuard, RwLock, WriteGuard};
use weir_types::limits::{BLOCK, BLOCK_BYTES, MAX_FILE_BYTES};
use weir_types::{Error, ErrorKind, Generation, ObjectId, Result};

/// State that only the holder of the object's write lock reads and changes.
pub(crate) struct Writer {
    /// Whether the first page, which has the header, is written. A new object has an empty file.
    pub(crate) has_header: bool,
    /// The era in which the first page was written. In that era the object is young.
    born: u64,
    /// Whether slots behind the end may be other than zero.
    untidy: bool,
}

/// How an object's length is to be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resize {
    /// A truncation: sets the length, once for each generation.
    Set,
    /// Shortens the object. A shorter object keeps its length.
    Cut,
    /// Sets the length of another copy.
    Align,
}

/// The right to change an object. The present era cannot end while it exists.
pub(crate) struct Change<'a> {
    pub(crate) writer: WriteGuard<'a, Writer>,
    era: ReadGuard<'a, u64>,
}

/// One open object of a target. Hold it for one request, not longer: after
/// [`crate::Target::remove`] it refers to a removed file.
///
/// Changes and `Locked` reads of one object exclude each other; other reads take no lock.
pub struct Object {
    id: ObjectId,
    backing: Arc<Backing>,
    pub(crate) file: File,
    /// Whether the disk was read-only when the object was opened.
    read_only: bool,
    writer: RwLock<Writer>,
    /// Length, bytes. Updated after the data within it is written.
    len: AtomicU64,
    generation: AtomicU64,
}

impl Object {
    /// Opens the object, and with `create` makes it if it is missing. Returns `None` if there is
    /// none.
    pub(crate) fn open(backing: &Arc<Backing>, id: ObjectId, create: bool) -> Result<Option<Self>> {
        let Some((file, read_only)) = backing.directories.open(id, create)? else {
            return Ok(None);
        };
        let site = &backing.site;
        let failed = |e| site.os_error(format!("open object {id}"), e);
        let bad = |kind, what: &str| Err(site.error(kind, format!("object {id} {what}")));
        if !file.is_regular().map_err(failed)? {
            return bad(ErrorKind::Corrupt, "is not a regular file");
        }
        let size = file.size().map_err(failed)?;
        if create && size == 0 {
            backing.directories.note_made(id);
            backing.note_change();
        }
        let mut writer = Writer { has_header: size != 0, born: 0, untidy: false };
        let mut generation = Generation(0);
        if writer.has_header {
            // Reading the header would also fetch a few pages of slots. A sequential reader would
            // then make the disk seek back for each of the others.
            let slots = first_slots(object_bytes(size));
            if slots > BLOCK {
                file.will_need(0, slots);
            }
            let header = read_header(site, &file, id)?;
            generation = header.generation;
            (writer.born, writer.untidy) = (header.born, header.untidy);
        }
        Ok(Some(Self {
            id,
            backing: backing.clone(),
            file,
            read_only,
            writer: RwLock::new(writer),
            len: AtomicU64::new(object_bytes(size)),
            generation: AtomicU64::new(generation.0),
        }))
    }

    /// Opens an object whose header may have rotted. A rotted header is replaced by one with this
    /// fence.
    pub(crate) fn open_headless(
        backing: &Arc<Backing>,
        id: ObjectId,
        generation: Generation,
    ) -> Result<Option<Self>> {
        match Self::open(backing, id, false) {
            Err(error) if error.kind == ErrorKind::Corrupt => {}
            other => return other,
        }
        let Some((file, read_only)) = backing.directories.open(id, false)? else {
            return Ok(None);
        };
        let failed = |e| backing.site.os_error(format!("open object {id}"), e);
        let mut bytes = [0; HEADER_BYTES];
        file.read_full(&mut bytes, 0).map_err(failed)?;
        if !matches!(Header::from_disk(&bytes), Err(BadHeader::Damaged | BadHeader::Empty)) {
            return Self::open(backing, id, false);
        }
        let size = file.size().map_err(failed)?;
        let object = Self {
            id,
            backing: backing.clone(),
            file,
            read_only,
            // Counts as an object from before all eras.
            writer: RwLock::new(Writer { has_header: true, born: 0, untidy: true }),
            len: AtomicU64::new(object_bytes(size)),
            generation: AtomicU64::new(generation.0),
        };
        object.put_header(&object.begin_change()?)?;
        Ok(Some(object))
    }

    /// Writes the correct header.
    pub(crate) fn put_header(&self, change: &Change<'_>) -> Result<()> {
        let header = self.header(&change.writer, self.generation());
        self.write_all(&mut [IoSlice::new(&header)], 0)
            .map_err(|(_, e)| self.failed_change("write the header", e))
    }

    pub(crate) fn backing(&self) -> &Arc<Backing> {
        &self.backing
    }

    /// Id of the object.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Length, bytes.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Whether the object has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The generation of the last truncation or fence, 0 before the first. Writes with a lower
    /// generation are refused.
    pub fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Acquire))
    }

    /// Sets the length, bytes. Bytes beyond a smaller length are gone; added bytes are zeros.
    /// Writes with a lower generation are refused from now on. Returns the length.
    ///
    /// Errors: `Stale` if the fence is already higher. If the fence already equals `generation`
    /// (and is not 0) this truncation was done before: it is not repeated, because newer writes may
    /// have followed it.
    pub fn truncate(&self, len: u64, generation: Generation) -> Result<u64> {
        self.resize(len, generation, Resize::Set)
    }

    /// As [`Object::truncate`], but a shorter object keeps its length: bytes beyond its end read as
    /// zeros anyway, and may be written meanwhile.
    ///
    /// Errors: as [`Object::truncate`].
    pub fn cut(&self, len: u64, generation: Generation) -> Result<u64> {
        self.resize(len, generation, Resize::Cut)
    }

    /// Takes over the length and the fence of another copy, even if they are lower: if that copy
    /// has lost a truncation, this copy must not keep it.
    pub fn align(&self, len: u64, generation: Generation) -> Result<u64> {
        self.resize(len, generation, Resize::Align)
    }

    /// Refuses writes with a lower generation from now on. The bytes and the length stay, and so
    /// does a fence that is higher already. Returns the length, which no refused write can change
    /// any more, and the fence.
    ///
    /// Afterwards a truncation of the same generation counts as done, so pending truncations have
    /// to be carried out before.
    pub fn fence(&self, generation: Generation) -> Result<(u64, Generation)> {
        let mut change = self.begin_change()?;
        if generation > self.generation() {
            if !change.writer.has_header {
                self.write_first_page(&mut change)?;
            }
            self.raise(&change, generation)?;
        }
        Ok((self.len(), self.generation()))
    }

    fn raise(&self, change: &Change<'_>, generation: Generation) -> Result<()> {
        if planted(Bug::ForgetGeneration) {
            return Ok(());
        }
        let header = self.header(&change.writer, generation);
        self.write_all(&mut [IoSlice::new(&header)], 0)
            .map_err(|(_, e)| self.failed_change("write the header", e))?;
        self.generation.store(generation.0, Ordering::Release);
        Ok(())
    }

    fn resize(&self, len: u64, generation: Generation, how: Resize) -> Result<u64> {
        if len > MAX_FILE_BYTES {
            return Err(self.error(ErrorKind::FileTooLarge, format!("truncate to {len}")));
        }
        let mut change = self.begin_change()?;
        match generation.cmp(&self.generation()) {
            _ if how == Resize::Align => {}
            Order::Less => return Err(self.stale(generation)),
            Order::Equal if generation.0 > 0 => return Ok(self.len()),
            _ => {}
        }
        let old_len = self.len();
        let len = if how == Resize::Cut { len.min(old_len) } else { len };
        if len < old_len {
            self.cover(&mut change, &[(len, old_len - len)])?;
        }
        if !change.writer.has_header {
            self.write_first_page(&mut change)?;
        }
        if len < old_len {
            let result = self.shrink_slots(len, old_len);
            result.inspect_err(|_| self.heal(len, old_len))?;
        }
        if len != old_len {
            self.file.set_len(file_bytes(len)).map_err(|e| {
                self.heal(len, old_len);
                self.failed_change(format!("truncate to {len}"), e)
            })?;
            self.set_len(len);
        }
        if generation != self.generation() && !planted(Bug::ForgetGeneration) {
            // The generation of the cut is recorded last: after a power cut the object must not
            // claim the cut and have its old bytes.
            if len < old_len {
                self.file.sync("object-cut").map_err(|e| {
                    self.backing.site.failed_sync(format!("object {}: sync", self.id), e)
                })?;
            }
            self.raise(&change, generation)?;
        }
        Ok(len)
    }

    /// Makes every completed write and truncation durable, and the object's name too. On failure
    /// the target goes out of service, because nobody knows which bytes were lost.
    pub fn sync(&self) -> Result<()> {
        self.backing.site.in_service()?;
        if planted(Bug::SkipObjectSync) {
            return Ok(());
        }
        self.file
            .sync("object-data")
            .map_err(|e| self.backing.site.failed_sync(format!("object {}: sync", self.id), e))?;
        self.backing.directories.sync(self.id)
    }

    /// Checks that the header on disk is correct. Call it with the lock held.
    pub(crate) fn check_header(&self) -> Result<()> {
        let failed = |e| self.os_error("read the header", e);
        if self.file.size().map_err(failed)? == 0 {
            return Ok(());
        }
        let header = read_header(&self.backing.site, &self.file, self.id)?;
        if header.generation != self.generation() {
            let what = format!("its header has generation {}", header.generation);
            return Err(self.error(ErrorKind::Corrupt, what));
        }
        Ok(())
    }

    /// Takes the lock that excludes writers.
    pub(crate) fn lock_for_reading(&self) -> ReadGuard<'_, Writer> {
        self.writer.read()
    }

    /// Takes the lock that excludes everyone except readers without a lock.
    pub(crate) fn begin_change(&self) -> Result<Change<'_>> {
        if self.read_only {
            return Err(self.error(ErrorKind::ReadOnly, READ_ONLY));
        }
        if self.backing.intents()?.is_full() {
            self.backing.checkpoint()?;
        }
        let era = self.backing.intents()?.enter();
        let writer = self.writer.write();
        // The target may have been closed, or have failed, during the wait.
        self.backing.site.in_service()?;
        self.backing.note_change();
        let mut change = Change { writer, era };
        if change.writer.untidy {
            self.clear_slots_behind_end(&mut change)?;
        }
        Ok(change)
    }

    /// Makes sure that recovery examines these pieces `(offset, length)` if the target stops after
    /// their change has begun.
    pub(crate) fn cover(&self, change: &mut Change<'_>, pieces: &[(u64, u64)]) -> Result<()> {
        if !change.writer.has_header {
            self.backing.intents()?.cover_young(self.id)?;
            change.writer.born = *change.era;
        }
        if change.writer.born == *change.era {
            return Ok(());
        }
        self.backing.intents()?.cover(self.id, pieces, self.len())
    }

    pub(crate) fn set_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    /// Clears the slots behind the end of an object that was written by a program without an intent
    /// log.
    fn clear_slots_behind_end(&self, change: &mut Change<'_>) -> Result<()> {
        let len = self.len();
        self.cover(change, &[(len, 1)])?;
        let found = tidy(&self.file, len)
            .map_err(|e| self.failed_change("clear the checksums behind the end", e))?;
        if found {
            tracing::warn!("{}: cleared checksums behind its end at {len}", self.name());
        }
        change.writer.untidy = false;
        Ok(())
    }

    /// Repairs the slots of bytes `start..end` after a change that failed half way: they become
    /// those of the blocks' present data. If that fails too, the target goes out of service.
    pub(crate) fn heal(&self, start: u64, end: u64) {
        let len = self.len();
        // A failed append may have changed the last block before it.
        let start = start / BLOCK * BLOCK;
        let healed = tidy(&self.file, len).and_then(|_| {
            let mut from = start;
            while let Some(run) = next_used(&self.file, from, end.min(len))? {
                Slots::read(&self.file, run, len)?.repair(&self.file)?;
                from = run.end;
            }
            Ok(())
        });
        if let Err(e) = healed {
            let error = self.os_error("set checksums right after a failed change", e);
            self.backing.site.take_out_of_service(&error);
        }
    }

    /// Adapts the slots to a smaller length, before the file is truncated.
    fn shrink_slots(&self, len: u64, old_len: u64) -> Result<()> {
        let kept = (len % BLOCK) as usize;
        let first = len / BLOCK;
        // Later sections are removed as a whole, and so is all but the first page of an object that
        // becomes empty.
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
            .map_err(|(_, e)| self.failed_change(format!("truncate to {len}"), e))
    }

    /// The slot of a block of which only the first `kept` bytes remain. It is the old slot plus the
    /// difference that the cut makes, so the slot of a rotted block still does not match.
    fn slot_of_shortened(&self, block: u64, kept: usize, old_len: u64) -> Result<u32> {
        let mut slot = [0; SLOT_BYTES];
        let mut data = [0; BLOCK_BYTES];
        self.read_slots(block, &mut slot)?;
        self.read_block(block, old_len, &mut data)?;
        let before = slot_of(&data);
        data[kept..].fill(0);
        Ok(u32::from_le_bytes(slot) ^ before ^ slot_of(&data))
    }

    /// Reads a block, padded with zeros, of an object of length `len`.
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

    /// Reads the slots of a block and of the following blocks of its section.
    pub(crate) fn read_slots(&self, block: u64, slots: &mut [u8]) -> Result<()> {
        self.read_exact(slots, slot_position(block), block * BLOCK)
    }

    fn read_exact(&self, bytes: &mut [u8], position: u64, offset: u64) -> Result<()> {
        let want = bytes.len();
        let got = self
            .file
            .read_full(bytes, position)
            .map_err(|e| self.os_error(format!("read at offset {offset}"), e))?;
        if got == want { Ok(()) } else { Err(self.cut_short(offset)) }
    }

    /// Writes the first page of a new object: the header and slots of zero.
    pub(crate) fn write_first_page(&self, change: &mut Change<'_>) -> Result<()> {
        self.cover(change, &[])?;
        let mut page = [0; BLOCK_BYTES];
        page[..HEADER_BYTES].copy_from_slice(&self.header(&change.writer, self.generation()));
        self.write_all(&mut [IoSlice::new(&page)], 0).map_err(|(_, e)| {
            self.forget_first_page();
            self.failed_change("write the header", e)
        })?;
        change.writer.has_header = true;
        Ok(())
    }

    /// Takes back the first page after the first write has failed.
    pub(crate) fn forget_first_page(&self) {
        if let Err(e) = self.file.set_len(0) {
            let error = self.os_error("take back a failed first write", e);
            self.backing.site.take_out_of_service(&error);
        }
    }

    pub(crate) fn header(&self, writer: &Writer, generation: Generation) -> [u8; HEADER_BYTES] {
        Header { id: self.id, generation, born: writer.born, untidy: false }.to_disk()
    }

    /// Writes all of the buffers in as few calls as the kernel allows. The error has the number of
    /// bytes written before it.
    pub(crate) fn write_all(
        &self,
        mut buffers: &mut [IoSlice<'_>],
        position: u64,
    ) -> std::result::Result<(), (usize, Errno)> {
        let mut done = 0;
        IoSlice::advance_slices(&mut buffers, 0);
        while !buffers.is_empty() {
            match self.file.write_at(buffers, position + done as u64) {
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
        format!("{}: object {}", self.backing.site, self.id)
    }

    pub(crate) fn error(&self, kind: ErrorKind, what: impl std::fmt::Display) -> Error {
        self.backing.site.error(kind, format!("object {}: {what}", self.id))
    }

    pub(crate) fn os_error(&self, doing: impl std::fmt::Display, errno: Errno) -> Error {
        self.backing.site.os_error(format!("object {}: {doing}", self.id), errno)
    }

    /// The error of a failed change, which may take the target out of service.
    pub(crate) fn failed_change(&self, doing: impl std::fmt::Display, errno: Errno) -> Error {
        self.backing.site.failed_change(format!("object {}: {doing}", self.id), errno)
    }

    pub(crate) fn stale(&self, generation: Generation) -> Error {
        let now = self.generation();
        let what = format!("generation {generation} of the request is older than {now}");
        self.error(ErrorKind::Stale, what)
    }

    /// The error of a checksum mismatch. On a target that is out of service a failed write may be
    /// the cause, so the error does not call it rot.
    pub(crate) fn corrupt(&self, block: u64) -> Error {
        if let Some(trouble) = self.backing.site.trouble() {
            let what = format!("block at offset {} cannot be verified; {trouble}", block * BLOCK);
            return self.error(ErrorKind::Io, what);
        }
        let what = format!("block at offset {} does not match its checksum", block * BLOCK);
        self.error(ErrorKind::Corrupt, what).at(block * BLOCK)
    }

    /// The error of a file that is shorter than its object: another program has truncated it.
    pub(crate) fn cut_short(&self, offset: u64) -> Error {
        self.error(ErrorKind::Corrupt, format!("its file ends before offset {offset}"))
    }
}

/// Reads the header of an object's file.
///
/// Errors: `Corrupt` if it is damaged or another object's, `Unsupported` if its
/// format is not known, `Io`.
fn read_header(site: &Site, file: &File, id: ObjectId) -> Result<Header> {
    let bad = |kind, what: &str| Err(site.error(kind, format!("object {id} {what}")));
    let mut bytes = [0; HEADER_BYTES];
    file.read_full(&mut bytes, 0)
        .map_err(|e| site.os_error(format!("object {id}: read the header"), e))?;
    match Header::from_disk(&bytes) {
        Ok(header) if header.id == id => Ok(header),
        Ok(header) => bad(ErrorKind::Corrupt, &format!("has the header of object {}", header.id)),
        Err(BadHeader::Damaged | BadHeader::Empty) => {
            bad(ErrorKind::Corrupt, "has a damaged header")
        }
        Err(BadHeader::Version(v)) => {
            bad(ErrorKind::Unsupported, &format!("has format version {v}, unknown here"))
        }
        Err(BadHeader::Features) => bad(ErrorKind::Unsupported, "has features unknown here"),
    }
}

/// Reads until the buffers are full or the file ends; returns the bytes read.
pub(crate) fn read_at(
    file: &File,
    mut buffers: &mut [IoSliceMut<'_>],
    position: u64,
) -> rustix::io::Result<usize> {
    let mut done = 0;
    IoSliceMut::advance_slices(&mut buffers, 0);
    while !buffers.is_empty() {
        match file.read_at(buffers, position + done as u64, false) {
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
