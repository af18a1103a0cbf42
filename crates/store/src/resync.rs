//! Comparison of two copies by their checksums, before bytes are sent from one to the other.

use crate::geometry::{Run, SLOT_BYTES, block_count, slot_position};
use crate::object::Object;
use std::ops::Range;
use weir_types::limits::{BLOCK, MAX_FILE_BYTES};
use weir_types::{ErrorKind, Result};

/// The most blocks in one request for slots: 16 MiB of data.
pub const MAX_SLOTS: u64 = 4096;

impl Object {
    /// The stored checksum of each block of a range, as a slot: the CRC-32C of the block (the last
    /// one padded with zeros) XOR that of zeros. So 0 stands for a block of zeros, and for a block
    /// behind the end. Nothing is verified: comparing slots of two copies shows where they were
    /// written differently, not where one has rotted. Waits for writers.
    ///
    /// Errors: `InvalidArgument` for more than [`MAX_SLOTS`] blocks.
    pub fn slots(&self, blocks: Range<u64>) -> Result<Vec<u32>> {
        let count = blocks.end.saturating_sub(blocks.start);
        if count > MAX_SLOTS || blocks.end > MAX_FILE_BYTES / BLOCK {
            let what = format!("checksums of blocks {blocks:?}, at most {MAX_SLOTS} at once");
            return Err(self.error(ErrorKind::InvalidArgument, what));
        }
        let _writer = self.lock_for_reading();
        let end = blocks.end.min(block_count(self.len()));
        let mut slots = Vec::with_capacity(count as usize);
        for run in Run::split(blocks.start * BLOCK, end * BLOCK) {
            let mut bytes = vec![0; run.block_count() * SLOT_BYTES];
            self.file
                .read_full(&mut bytes, slot_position(run.first_block()))
                .map_err(|e| self.os_error("read its checksums", e))?;
            let stored = bytes.as_chunks::<SLOT_BYTES>().0.iter();
            slots.extend(stored.map(|slot| u32::from_le_bytes(*slot)));
        }
        slots.resize(count as usize, 0);
        Ok(slots)
    }
}
