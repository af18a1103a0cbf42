//! The write path: verify the received bytes, merge partial blocks, write the checksums and then
//! the data.

use crate::geometry::{
    FIRST_PAGE_BLOCKS, HEADER_BYTES, Run, SLOT_BYTES, block_count, data_position, file_bytes,
    slot_area, slot_position,
};
use crate::object::{Change, Object};
use crate::piece::{ZERO_BLOCK_CHECK, check_pieces, cut_count, cuts, slot_of};
use rustix::io::Errno;
use std::io::IoSlice;
use weir_types::checksum::crc32c;
use weir_types::limits::{BLOCK, BLOCK_BYTES};
use weir_types::{Error, ErrorKind, Generation, Result};

impl Object {
    /// Writes pieces `(offset, length)` of the object from `data`, which holds their bytes one
    /// after the other. Returns the object's length, bytes. `checks` has the CRC-32C of each cut
    /// (the part of a piece inside one 4 KiB block of the object), in order. A gap between the old
    /// end and a piece reads as zeros. When this returns, the write is in the page cache; see
    /// [`Object::sync`].
    ///
    /// Errors: `InvalidArgument` if pieces, data and checksums do not fit each other;
    /// `ChecksumMismatch` if a checksum is wrong; `Stale` if the object was truncated since
    /// (`generation` is below its own). In these cases nothing is written. `Corrupt` if a block
    /// that would be changed in part has rotted, `NoSpace`, `Io`: earlier pieces are written, and
    /// bytes of the failing piece may be old or new, but verify.
    pub fn write_pieces(
        &self,
        pieces: &[(u64, u64)],
        data: &[u8],
        checks: &[u32],
        generation: Generation,
    ) -> Result<u64> {
        self.verify(pieces, data, checks)?;
        // Checked again below, under the lock.
        if generation < self.generation() {
            return Err(self.stale(generation));
        }
        self.check_room(pieces, data.len() as u64)?;
        let mut change = self.begin_change()?;
        if generation < self.generation() {
            return Err(self.stale(generation));
        }
        if !data.is_empty() {
            self.cover(&mut change, pieces)?;
        }
        let (mut data, mut checks) = (data, checks);
        for &(offset, len) in pieces {
            for run in Run::split(offset, offset + len) {
                let (bytes, other_bytes) = data.split_at(run.len());
                let (run_checks, other_checks) = checks.split_at(run.block_count());
                self.write_run(&mut change, run, bytes, run_checks)?;
                (data, checks) = (other_bytes, other_checks);
            }
        }
        Ok(self.len())
    }

    /// Verifies the data against its checksums, so that data damaged in transit enters no object.
    fn verify(&self, pieces: &[(u64, u64)], data: &[u8], checks: &[u32]) -> Result<()> {
        let total = check_pieces(pieces)?;
        let cut_total: usize = pieces.iter().map(|&(at, len)| cut_count(at, len)).sum();
        if total != data.len() as u64 || cut_total != checks.len() {
            let message = format!(
                "pieces of {total} bytes in {cut_total} blocks came with {} bytes and {} checksums",
                data.len(),
                checks.len()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let (mut rest, mut expected) = (data, checks.iter());
        for &(offset, len) in pieces {
            let (bytes, others) = rest.split_at(len as usize);
            rest = others;
            let wrong = cuts(offset, bytes).zip(&mut expected).position(|(c, &e)| crc32c(c) != e);
            if let Some(cut) = wrong {
                let at = (offset / BLOCK + cut as u64) * BLOCK;
                let what = format!("data for the block at offset {at} was damaged on the way");
                return Err(self.error(ErrorKind::ChecksumMismatch, what));
            }
        }
        Ok(())
    }

    /// Writes one run: merges its first and last block, then writes the slots, then the data.
    pub(crate) fn write_run(
        &self,
        change: &mut Change<'_>,
        run: Run,
        data: &[u8],
        checks: &[u32],
    ) -> Result<()> {
        let old_len = self.len();
        let (first, last) = (run.first_block(), run.last_block());
        let mut slots = [0; BLOCK_BYTES];
        for (slot, check) in slots.as_chunks_mut::<SLOT_BYTES>().0.iter_mut().zip(checks) {
            *slot = (check ^ ZERO_BLOCK_CHECK).to_le_bytes();
        }
        for block in [first, last] {
            let start = run.start.max(block * BLOCK);
            let end = run.end.min((block + 1) * BLOCK);
            if end - start < BLOCK {
                let cut = &data[(start - run.start) as usize..(end - run.start) as usize];
                let slot = self.merged_slot(block, (start % BLOCK) as usize, cut, old_len)?;
                let at = (block - first) as usize * SLOT_BYTES;
                slots[at..at + SLOT_BYTES].copy_from_slice(&slot.to_le_bytes());
            }
        }
        let slots = &slots[..run.block_count() * SLOT_BYTES];
        let written = self
            .write_slots(change, run, slots, old_len)
            .and_then(|()| self.write_all(&mut [IoSlice::new(data)], data_position(run.start)));
        if let Err((_, errno)) = written {
            let doing = format!("write {} bytes at offset {}", run.len(), run.start);
            let error = self.failed_change(doing, errno);
            if change.writer.has_header {
                // The blocks were verified or fully replaced. At worst this hides rot of bytes
                // whose writer gets an error.
                self.heal(run.start, run.end);
            } else {
                self.forget_first_page();
            }
            return Err(error);
        }
        if run.end > old_len {
            self.set_len(run.end);
        }
        Ok(())
    }

    /// Writes the slots of a run. If they are missing, the header and the rest of the section's
    /// slot pages are written first, so that these pages lie together on the disk and a stream
    /// leaves no hole among them.
    fn write_slots(
        &self,
        change: &mut Change<'_>,
        run: Run,
        slots: &[u8],
        old_len: u64,
    ) -> std::result::Result<(), (usize, Errno)> {
        let start = slot_position(run.first_block());
        let end = start + slots.len() as u64;
        let area = slot_area(run.first_block());
        // Small objects have only the first page of the first section's slots.
        let (rest, fresh) = match area.start {
            0 => (BLOCK, block_count(old_len) <= FIRST_PAGE_BLOCKS),
            start => (start, file_bytes(old_len) <= start),
        };
        if !change.writer.has_header {
            let mut page = [0; BLOCK_BYTES];
            let header = self.header(&change.writer, self.generation());
            page[..HEADER_BYTES].copy_from_slice(&header);
            let done = end <= BLOCK;
            if done {
                page[start as usize..end as usize].copy_from_slice(slots);
            }
            self.write_all(&mut [IoSlice::new(&page)], 0)?;
            change.writer.has_header = true;
            if done {
                return Ok(());
            }
        }
        if end <= rest || !fresh {
            return self.write_all(&mut [IoSlice::new(slots)], start);
        }
        // Slots behind the end are zero, so the whole rest is known.
        let from = start.min(rest);
        let mut pages = vec![0; (area.end - from) as usize];
        pages[(start - from) as usize..(end - from) as usize].copy_from_slice(slots);
        self.write_all(&mut [IoSlice::new(&pages)], from)
    }

    /// The slot of a block after `cut` has replaced its bytes from `at` on.
    fn merged_slot(&self, block: u64, at: usize, cut: &[u8], old_len: u64) -> Result<u32> {
        let valid = old_len.saturating_sub(block * BLOCK).min(BLOCK) as usize;
        let mut data = [0; BLOCK_BYTES];
        if valid == 0 || at == 0 && cut.len() >= valid {
            // The whole old block is replaced.
            data[at..at + cut.len()].copy_from_slice(cut);
            return Ok(slot_of(&data));
        }
        let mut slot = [0; SLOT_BYTES];
        self.read_slots(block, &mut slot)?;
        let slot = u32::from_le_bytes(slot);
        if at >= valid {
            // Only zeros are overwritten. CRCs of equal length are linear: the new slot is the old
            // one plus that of the new bytes among zeros. The old bytes need not be read, and their
            // rot would still show.
            data[at..at + cut.len()].copy_from_slice(cut);
            return Ok(slot ^ slot_of(&data));
        }
        self.read_block(block, old_len, &mut data)?;
        if slot_of(&data) != slot {
            return Err(self.corrupt(block));
        }
        data[at..at + cut.len()].copy_from_slice(cut);
        Ok(slot_of(&data))
    }
}
