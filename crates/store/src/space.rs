//! Disk space of an object: punching holes, preallocation, and finding holes.

use crate::blocks::next_used;
use crate::geometry::{
    PAGES_OF_SLOTS, Run, SLOT_BYTES, data_in, data_position, file_bytes, first_byte_of,
    section_end, section_pages, section_start, slot_area, slot_position,
};
use crate::object::{Change, Object};
use rustix::io::Errno;
use std::io::IoSlice;
use weir_types::checksum::crc32c;
use weir_types::limits::{BLOCK, BLOCK_BYTES, MAX_FILE_BYTES};
use weir_types::{ErrorKind, Generation, Result};

static ZEROS: [u8; 64 * BLOCK_BYTES] = [0; 64 * BLOCK_BYTES];

impl Object {
    /// Punches a hole: the bytes become zeros and their disk space is freed. The length stays, and
    /// is returned.
    ///
    /// Errors: `Stale` if the object was truncated since; `Corrupt` if a block that would be
    /// changed in part has rotted; `NoSpace`, `Io`: bytes of the range may be old or zero, but
    /// verify.
    pub fn punch(&self, offset: u64, len: u64, generation: Generation) -> Result<u64> {
        let end = self.checked_end(offset, len)?;
        let mut change = self.begin_change()?;
        if generation < self.generation() {
            return Err(self.stale(generation));
        }
        let object_len = self.len();
        let end = end.min(object_len);
        if offset >= end {
            return Ok(object_len);
        }
        self.cover(&mut change, &[(offset, end - offset)])?;
        // If the range ends with the object, its last block is freed whole.
        let last = if end == object_len { end.next_multiple_of(BLOCK) } else { end };
        let (first_whole, end_whole) = (offset.next_multiple_of(BLOCK), last / BLOCK * BLOCK);
        if first_whole >= end_whole {
            self.write_zeros(&mut change, offset, end)?;
            return Ok(object_len);
        }
        self.write_zeros(&mut change, offset, first_whole)?;
        self.punch_blocks(first_whole, end_whole).map_err(|e| {
            let error = self.failed_change(format!("punch {len} bytes at {offset}"), e);
            self.heal(first_whole, end_whole);
            error
        })?;
        self.write_zeros(&mut change, end_whole, end)?;
        Ok(object_len)
    }

    /// Overwrites parts of one or two blocks with zeros.
    fn write_zeros(&self, change: &mut Change<'_>, start: u64, end: u64) -> Result<()> {
        for run in Run::split(start, end) {
            let data = &ZEROS[..run.len()];
            let cut = |block: u64| {
                let from = run.start.max(block * BLOCK);
                crc32c(&ZEROS[..(run.end.min((block + 1) * BLOCK) - from) as usize])
            };
            let checks: Vec<u32> = (run.first_block()..=run.last_block()).map(cut).collect();
            self.write_run(change, run, data, &checks)?;
        }
        Ok(())
    }

    /// Punches whole blocks: their slots become zero, then their data is freed. Sections strictly
    /// between the first and the last are freed at once, slots included.
    fn punch_blocks(&self, start: u64, end: u64) -> rustix::io::Result<()> {
        let mut from = start;
        while let Some(run) = next_used(&self.file, from, end)? {
            self.clear_slots(run)?;
            from = run.end;
        }
        let first_end = section_end(start / BLOCK) * BLOCK;
        let last_start = section_start((end - 1) / BLOCK) * BLOCK;
        let punched = match first_end <= last_start {
            // All in one section.
            false => self.punch_data(start, end),
            true => {
                let (slots, last) =
                    (data_position(first_end - 1) + 1, slot_area(last_start / BLOCK));
                self.punch_data(start, first_end)
                    .and_then(|()| self.punch_file(slots, last.start))
                    .and_then(|()| self.punch_data(last_start, end))
            }
        };
        match punched {
            Err(Errno::OPNOTSUPP) => self.overwrite_with_zeros(start, end),
            other => other,
        }
    }

    fn clear_slots(&self, run: Run) -> rustix::io::Result<()> {
        let mut slots = vec![0; run.block_count() * SLOT_BYTES];
        let position = slot_position(run.first_block());
        self.file.read_full(&mut slots, position)?;
        if slots.iter().any(|&b| b != 0) {
            slots.fill(0);
            self.write_all(&mut [IoSlice::new(&slots)], position).map_err(|(_, e)| e)?;
        }
        Ok(())
    }

    /// Frees the data of bytes within one section.
    fn punch_data(&self, start: u64, end: u64) -> rustix::io::Result<()> {
        self.punch_file(data_position(start), data_position(start) + (end - start))
    }

    fn punch_file(&self, start: u64, end: u64) -> rustix::io::Result<()> {
        if start < end { self.file.punch(start, end - start) } else { Ok(()) }
    }

    /// Writes zeros, on a file system without holes.
    fn overwrite_with_zeros(&self, start: u64, end: u64) -> rustix::io::Result<()> {
        let (mut from, end) = (start, end.min(self.len()));
        while let Some(run) = next_used(&self.file, from, end)? {
            let mut at = run.start;
            while at < run.end {
                let n = (run.end - at).min(ZEROS.len() as u64);
                let zeros = IoSlice::new(&ZEROS[..n as usize]);
                self.write_all(&mut [zeros], data_position(at)).map_err(|(_, e)| e)?;
                at += n;
            }
            from = run.end;
        }
        Ok(())
    }

    /// Preallocates disk space for a range, so that writes to it do not fail with a full disk.
    /// Unless `keep_size` is set, the object grows by zeros to hold the range. Returns its length.
    ///
    /// Errors: `Stale` if the object was truncated since; `NoSpace`; `Unsupported` if the local
    /// file system cannot preallocate.
    pub fn allocate(
        &self,
        offset: u64,
        len: u64,
        keep_size: bool,
        generation: Generation,
    ) -> Result<u64> {
        let end = self.checked_end(offset, len)?;
        let mut change = self.begin_change()?;
        if generation < self.generation() {
            return Err(self.stale(generation));
        }
        let failed = |e| self.failed_change(format!("allocate {len} bytes at {offset}"), e);
        if len == 0 {
            return Ok(self.len());
        }
        if !change.writer.has_header {
            self.write_first_page(&mut change)?;
        }
        // For each section in the range: the slots, then the data.
        let mut at = offset;
        while at < end {
            let (block, to) = (at / BLOCK, end.min(section_end(at / BLOCK) * BLOCK));
            let slots = slot_position(block);
            let slots_end = slot_position((to - 1) / BLOCK) + SLOT_BYTES as u64;
            let data = data_position(at);
            self.file.allocate(slots, slots_end - slots, true).map_err(failed)?;
            self.file.allocate(data, to - at, true).map_err(failed)?;
            at = to;
        }
        if end > self.len() && !keep_size {
            self.file.set_len(file_bytes(end)).map_err(failed)?;
            self.set_len(end);
        }
        Ok(self.len())
    }

    fn checked_end(&self, offset: u64, len: u64) -> Result<u64> {
        let end = offset.checked_add(len).filter(|&end| end <= MAX_FILE_BYTES);
        end.ok_or_else(|| {
            let what = format!("offset {offset} plus length {len} is out of range");
            self.error(ErrorKind::InvalidArgument, what)
        })
    }

    /// The first byte at or after `offset` that may be other than zero; `None` if there is none.
    /// Preallocated bytes that were never written may count as data or as a hole.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        let len = self.len();
        let mut at = offset;
        while at < len {
            let position = data_position(at);
            let border = section_end(at / BLOCK) * BLOCK;
            let found = self.file.next_data(position);
            match found.map_err(|e| self.os_error("look for data", e))? {
                None => return Ok(None),
                Some(found) if found - position < border - at => {
                    return Ok(Some(at + found - position).filter(|&at| at < len));
                }
                // Possibly only slots are allocated in the next section.
                Some(found) => at = section_start(first_byte_of(found) / BLOCK) * BLOCK,
            }
        }
        Ok(None)
    }

    /// The first byte at or after `offset` that is in a hole. If there is no hole before the
    /// object's end, its length.
    pub fn next_hole(&self, offset: u64) -> Result<u64> {
        let len = self.len();
        let mut at = offset;
        while at < len {
            let position = data_position(at);
            let border = section_end(at / BLOCK) * BLOCK;
            let hole = self.file.next_hole(position);
            let hole = hole.map_err(|e| self.os_error("look for a hole", e))?;
            if hole - position < border - at {
                return Ok((at + hole - position).min(len));
            }
            at = border;
        }
        Ok(len)
    }

    /// Bytes of disk that the object's data takes, preallocated space included: those of its file
    /// without header and checksums. Tables of the local file system do not count where it reports
    /// extents: their size changes while data is written back, and differs from copy to copy. The
    /// result is not 0 for an object that holds data, because programs would take it for a hole.
    pub fn allocated(&self) -> Result<u64> {
        let taken = || match self.mapped()? {
            Some(taken) => Ok(taken),
            None => Ok(self.file.allocated()?.saturating_sub(self.stored_slots()? * BLOCK)),
        };
        match taken().map_err(|e| self.os_error("find how much disk space it takes", e))? {
            0 => Ok(self.next_data(0)?.map_or(0, |_| BLOCK)),
            taken => Ok(taken),
        }
    }

    /// Mapped bytes of data; `None` if the local file system does not report extents.
    fn mapped(&self) -> rustix::io::Result<Option<u64>> {
        let (mut taken, mut at) = (0, 0);
        loop {
            let Some(extents) = self.file.extents(at)? else { return Ok(None) };
            let Some(last) = extents.last() else { return Ok(Some(taken)) };
            at = last.end;
            taken += extents.into_iter().map(data_in).sum::<u64>();
        }
    }

    /// Number of stored pages of slots. A section that the object grew into has all its pages
    /// stored; a section that was a hole has those that were written.
    fn stored_slots(&self) -> rustix::io::Result<u64> {
        let (mut stored, mut at) = (0, 0);
        while let Some(mut found) = self.file.next_data(at)? {
            let pages = section_pages(found / BLOCK);
            let slots_end = (pages.start + PAGES_OF_SLOTS) * BLOCK;
            at = pages.end * BLOCK;
            while found < slots_end {
                let hole = self.file.next_hole(found)?.min(slots_end);
                stored += (hole - found).div_ceil(BLOCK);
                found = self.file.next_data(hole)?.unwrap_or(at);
            }
        }
        Ok(stored)
    }
}
