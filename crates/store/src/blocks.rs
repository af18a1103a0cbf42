//! Holding the checksums of a stretch of blocks against their data, for
//! recovery, for scrubbing and after a write that failed half way.

use crate::geometry::{
    BLOCK, Run, SLOT_BYTES, block_count, data_position, file_bytes, object_bytes, section_end,
    section_start, slot_area, slot_position,
};
use crate::piece::slot_of;
use rustix::io::Result;
use weir_host::fs::File;
use weir_types::limits::BLOCK_BYTES;

/// Blocks that are read at once.
const CHUNK_BLOCKS: usize = 64;

/// The slots of a run of blocks: those on disk, and those that its data should
/// have.
pub(crate) struct Slots {
    pub(crate) first_block: u64,
    pub(crate) stored: Vec<u8>,
    pub(crate) computed: Vec<u8>,
}

impl Slots {
    /// Reads a run of an object of `len` bytes; what the file lacks is zeros.
    pub(crate) fn read(file: &File, run: Run, len: u64) -> Result<Self> {
        let first_block = run.first_block();
        let last = run.last_block().min(block_count(len).saturating_sub(1));
        let count = (last + 1).saturating_sub(first_block) as usize;
        if len <= run.start / BLOCK * BLOCK {
            return Ok(Self { first_block, stored: Vec::new(), computed: Vec::new() });
        }
        let mut stored = vec![0; count * SLOT_BYTES];
        file.read_full(&mut stored, slot_position(first_block))?;
        if stored.iter().all(|&b| b == 0) && is_hole(file, first_block, last)? {
            return Ok(Self { first_block, computed: stored.clone(), stored });
        }
        let mut computed = Vec::with_capacity(stored.len());
        let mut data = vec![0; count.min(CHUNK_BLOCKS) * BLOCK_BYTES];
        let mut block = first_block;
        while block <= last {
            let blocks = (last + 1 - block).min(CHUNK_BLOCKS as u64) as usize;
            let data = &mut data[..blocks * BLOCK_BYTES];
            let valid = (len - block * BLOCK).min(data.len() as u64) as usize;
            let got = file.read_full(&mut data[..valid], data_position(block * BLOCK))?;
            data[got..].fill(0);
            for block in data.as_chunks::<BLOCK_BYTES>().0 {
                computed.extend(slot_of(block).to_le_bytes());
            }
            block += blocks as u64;
        }
        Ok(Self { first_block, stored, computed })
    }

    /// The blocks that do not match.
    pub(crate) fn mismatches(&self) -> impl Iterator<Item = u64> + '_ {
        let stored = self.stored.as_chunks::<SLOT_BYTES>().0.iter();
        let computed = self.computed.as_chunks::<SLOT_BYTES>().0.iter();
        let pairs = stored.zip(computed).enumerate();
        pairs.filter(|(_, (a, b))| a != b).map(|(i, _)| self.first_block + i as u64)
    }

    /// Makes the stored slots those of the data; returns how many changed.
    /// Only what differs is written: elsewhere there may be no room even for
    /// the same bytes.
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

/// Whether the data of blocks `first..=last` of one section takes no room.
fn is_hole(file: &File, first: u64, last: u64) -> Result<bool> {
    let start = data_position(first * BLOCK);
    let end = start + (last + 1 - first) * BLOCK;
    Ok(file.next_data(start)?.is_none_or(|next| next >= end))
}

/// Cuts bytes `from..to`, the first of which is at `position` of a file, at
/// the borders of pages.
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

/// `offset`, if the section that it is in takes any room on the disk, else the
/// beginning of the next one that does. A section that takes none is zeros, and
/// so are its slots.
pub(crate) fn next_used(file: &File, offset: u64) -> Result<Option<u64>> {
    let block = offset / BLOCK;
    let end = data_position(section_end(block) * BLOCK - 1) + 1;
    Ok(match file.next_data(slot_area(block).start)? {
        None => None,
        Some(position) if position < end => Some(offset),
        Some(position) => Some(section_start(object_bytes(position) / BLOCK) * BLOCK),
    })
}

/// Where slots of blocks behind the end of an object are other than zero: a
/// range of positions in the file. They are in the section that the next block
/// belongs to, as far as the file has it.
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

/// Clears slots behind the end, and cuts off what of the file is behind it.
/// True if there was something.
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
