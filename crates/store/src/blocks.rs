//! Comparison of the checksums of a run of blocks with its data. Recovery, scrubbing and the repair
//! after a partly failed write use it.

use crate::geometry::{
    Run, SLOT_BYTES, block_count, data_position, file_bytes, first_block_of_slots, first_byte_of,
    slot_area, slot_mates, slot_position,
};
use crate::piece::slot_of;
use rustix::io::Result;
use weir_host::fs::File;
use weir_types::limits::{BLOCK, BLOCK_BYTES};

/// Number of blocks per read call.
const CHUNK_BLOCKS: usize = 64;

/// Two sets of slots for a run of blocks: the stored ones, and the ones computed from the data.
pub(crate) struct Slots {
    pub(crate) first_block: u64,
    pub(crate) stored: Vec<u8>,
    pub(crate) computed: Vec<u8>,
    /// Bytes of data that were read. Holes do not count.
    pub(crate) data_bytes: u64,
}

impl Slots {
    /// Reads a run of an object of `len` bytes. Bytes beyond the end of the file count as zeros.
    /// Holes are not read: a block of zeros has a slot of zeros.
    pub(crate) fn read(file: &File, run: Run, len: u64) -> Result<Self> {
        let first_block = run.first_block();
        let last = run.last_block().min(block_count(len).saturating_sub(1));
        let count = (last + 1).saturating_sub(first_block) as usize;
        if len <= run.start / BLOCK * BLOCK {
            let (stored, computed) = (Vec::new(), Vec::new());
            return Ok(Self { first_block, stored, computed, data_bytes: 0 });
        }
        let mut stored = vec![0; count * SLOT_BYTES];
        let slots = slot_position(first_block);
        let slots_end = slots + stored.len() as u64;
        if file.next_data(slots)?.is_some_and(|data| data < slots_end) {
            file.read_full(&mut stored, slots)?;
        }
        let mut slots =
            Self { first_block, computed: vec![0; stored.len()], stored, data_bytes: 0 };
        slots.compute(file, count, len)?;
        Ok(slots)
    }

    /// Computes the slots of those blocks that have allocated data.
    fn compute(&mut self, file: &File, count: usize, len: u64) -> Result<()> {
        let start = data_position(self.first_block * BLOCK);
        let valid = (len - self.first_block * BLOCK).min((count * BLOCK_BYTES) as u64);
        let mut buffer = vec![0; count.min(CHUNK_BLOCKS) * BLOCK_BYTES];
        let mut at = 0;
        while at < valid {
            let Some(data) = file.next_data(start + at)?.filter(|&data| data < start + valid)
            else {
                break;
            };
            let data = (data - start) / BLOCK * BLOCK;
            let hole = file.next_hole(start + data.max(at))? - start;
            let end = hole.max(data + 1).next_multiple_of(BLOCK).min(valid);
            at = data;
            while at < end {
                let wanted = (end - at).min(buffer.len() as u64) as usize;
                let got = file.read_full(&mut buffer[..wanted], start + at)?;
                let blocks = wanted.div_ceil(BLOCK_BYTES);
                buffer[got..blocks * BLOCK_BYTES].fill(0);
                let first = (at / BLOCK) as usize;
                let computed = &mut self.computed[first * SLOT_BYTES..];
                let read = buffer.as_chunks::<BLOCK_BYTES>().0.iter().take(blocks);
                for (slot, block) in computed.as_chunks_mut::<SLOT_BYTES>().0.iter_mut().zip(read) {
                    *slot = slot_of(block).to_le_bytes();
                }
                self.data_bytes += wanted as u64;
                at += wanted as u64;
            }
        }
        Ok(())
    }

    /// Indexes of the blocks whose stored slot differs from the computed one.
    pub(crate) fn mismatches(&self) -> impl Iterator<Item = u64> + '_ {
        let stored = self.stored.as_chunks::<SLOT_BYTES>().0.iter();
        let computed = self.computed.as_chunks::<SLOT_BYTES>().0.iter();
        let pairs = stored.zip(computed).enumerate();
        pairs.filter(|(_, (a, b))| a != b).map(|(i, _)| self.first_block + i as u64)
    }

    /// Overwrites the stored slots with the computed ones and returns how many changed. Equal slots
    /// are not written: on a full disk even rewriting the same bytes may need space.
    pub(crate) fn repair(&self, file: &File) -> Result<u64> {
        let mut wrong = self.mismatches();
        let Some(first) = wrong.next() else { return Ok(0) };
        let (mut count, mut end) = (1, first);
        for block in wrong {
            (count, end) = (count + 1, block);
        }
        let from = (first - self.first_block) as usize * SLOT_BYTES;
        let to = (end + 1 - self.first_block) as usize * SLOT_BYTES;
        for (start, end) in pages(slot_position(first), from, to) {
            if self.stored[start..end] != self.computed[start..end] {
                let position = slot_position(self.first_block) + start as u64;
                file.write_full(&self.computed[start..end], position)?;
            }
        }
        Ok(count)
    }
}

/// Splits bytes `from..to` at page borders. Byte `from` is at `position` of the file.
fn pages(position: u64, from: usize, to: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = from;
    std::iter::from_fn(move || {
        (at < to).then(|| {
            let to_border = (BLOCK - (position + (at - from) as u64) % BLOCK) as usize;
            let piece = (at, to.min(at + to_border));
            at = piece.1;
            piece
        })
    })
}

/// Finds the next run in `from..end` that may hold data or checksums other than zero. The run
/// starts at the first block with allocated data or an allocated slot page, and ends at the latest
/// with the last block whose slot is in the same page. Skipped blocks are holes with holes for
/// slots, which verify as zeros. The cost is a few system calls, however large the holes are.
pub(crate) fn next_used(file: &File, from: u64, end: u64) -> Result<Option<Run>> {
    if from >= end {
        return Ok(None);
    }
    let slots = file.next_data(slot_position(from / BLOCK))?;
    let by_slots = slots.and_then(first_block_of_slots).map(|block| block * BLOCK);
    let by_data = file.next_data(data_position(from))?.map(first_byte_of);
    let Some(start) = by_slots.into_iter().chain(by_data).min() else { return Ok(None) };
    let start = start.max(from);
    let run = Run { start, end: end.min(slot_mates(start / BLOCK).end * BLOCK) };
    Ok((start < end).then_some(run))
}

/// Finds nonzero slots behind the end of an object. Returns their range of positions in the file.
/// Only the section of the next block, as far as the file has it, is searched.
pub(crate) fn slots_behind_end(file: &File, len: u64) -> Result<Option<(u64, u64)>> {
    let next = block_count(len);
    let start = slot_position(next);
    let end = slot_area(next).end.min(file_bytes(len));
    if start >= end {
        return Ok(None);
    }
    let mut slots = vec![0; (end - start) as usize];
    file.read_full(&mut slots, start)?;
    let first = slots.iter().position(|&b| b != 0);
    let last = slots.iter().rposition(|&b| b != 0);
    Ok(first.zip(last).map(|(first, last)| (start + first as u64, start + last as u64 + 1)))
}

/// Clears the slots behind the end of an object and truncates its file there. Returns whether
/// anything changed.
pub(crate) fn tidy(file: &File, len: u64) -> Result<bool> {
    let mut found = false;
    if file.size()? > file_bytes(len) {
        file.set_len(file_bytes(len))?;
        found = true;
    }
    if let Some((start, end)) = slots_behind_end(file, len)? {
        file.write_full(&vec![0; (end - start) as usize], start)?;
        found = true;
    }
    Ok(found)
}
