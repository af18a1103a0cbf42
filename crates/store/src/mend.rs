//! Finding and replacing rotted parts of an object, with the help of another copy.

use crate::blocks::{Slots, next_used};
use crate::geometry::{Run, SLOT_BYTES};
use crate::object::Object;
use crate::piece::slot_of;
use std::ops::Range;
use weir_types::checksum::crc32c;
use weir_types::limits::{BLOCK, BLOCK_BYTES, MAX_FILE_BYTES};
use weir_types::{ErrorKind, ObjectId, Result};

impl Object {
    /// The blocks of a range that do not match their checksums or cannot be read. Each range ends
    /// at the latest with the object. Waits for writers, and blocks them meanwhile.
    pub fn damaged(&self, bytes: &Range<u64>) -> Vec<Range<u64>> {
        let _lock = self.lock_for_reading();
        let len = self.len();
        let mut found = Vec::new();
        let (mut from, end) = (bytes.start / BLOCK * BLOCK, bytes.end.min(len));
        loop {
            match next_used(&self.file, from, end) {
                Ok(Some(run)) => {
                    self.damaged_of(run, len, &mut found);
                    from = run.end;
                }
                Ok(None) => break,
                // The contents are unknown.
                Err(_) => {
                    found.push(from..end);
                    break;
                }
            }
        }
        found
    }

    fn damaged_of(&self, run: Run, len: u64, found: &mut Vec<Range<u64>>) {
        match Slots::read(&self.file, run, len) {
            Ok(slots) => found.extend(
                slots.mismatches().map(|block| block * BLOCK..((block + 1) * BLOCK).min(len)),
            ),
            Err(_) if run.block_count() > 1 => {
                for block in run.first_block()..=run.last_block() {
                    let (start, end) = (block * BLOCK, ((block + 1) * BLOCK).min(run.end));
                    self.damaged_of(Run { start, end }, len, found);
                }
            }
            Err(_) => found.push(run.start..run.end),
        }
    }

    /// Checks that the header on disk is still that of this object.
    ///
    /// # Errors
    /// `Corrupt`: the header is another one; `Io`.
    pub fn check(&self) -> Result<()> {
        let _lock = self.lock_for_reading();
        self.check_header()
    }

    /// Rewrites the header if it has rotted on disk since the object was opened.
    ///
    /// # Errors
    /// `Io`, `ReadOnly`, `NoSpace`.
    pub fn rewrite_header(&self) -> Result<()> {
        let change = self.begin_change()?;
        match self.check_header() {
            Err(error) if error.kind == ErrorKind::Corrupt => self.put_header(&change),
            other => other,
        }
    }

    /// Whether `bytes` match the stored checksum of the block that begins at `offset`. The last
    /// block of an object is to be padded with zeros. If they match, they are what was written,
    /// wherever they come from.
    ///
    /// # Errors
    /// `Io`: the checksum cannot be read.
    pub fn vouches_for(&self, offset: u64, bytes: &[u8]) -> Result<bool> {
        let _lock = self.lock_for_reading();
        let (mut slot, mut block) = ([0; SLOT_BYTES], [0; BLOCK_BYTES]);
        let Some(start) = block.get_mut(..bytes.len()) else { return Ok(false) };
        start.copy_from_slice(bytes);
        self.read_slots(offset / BLOCK, &mut slot)?;
        Ok(slot_of(&block) == u32::from_le_bytes(slot))
    }

    /// Replaces a block that does not match its checksum. `bytes` are those of the whole block, or
    /// for the last block those up to the end of the object. Returns `false`, and changes nothing,
    /// if the block matches or the object has another end, because it was written meanwhile.
    ///
    /// # Errors
    /// `Io`, `NoSpace`, `ReadOnly`.
    pub fn replace_damaged(&self, offset: u64, bytes: &[u8]) -> Result<bool> {
        let mut change = self.begin_change()?;
        let (len, end) = (self.len(), offset + bytes.len() as u64);
        if !offset.is_multiple_of(BLOCK) || bytes.is_empty() || end != len.min(offset + BLOCK) {
            return Ok(false);
        }
        let (run, mut found) = (Run { start: offset, end }, Vec::new());
        self.damaged_of(run, len, &mut found);
        if found.is_empty() {
            return Ok(false);
        }
        self.cover(&mut change, &[(offset, bytes.len() as u64)])?;
        self.write_run(&mut change, run, bytes, &[crc32c(bytes)])?;
        Ok(true)
    }

    /// Among the blocks that a change of these pieces `(offset, length)` would change in part, the
    /// first that does not verify.
    pub fn damaged_edge(&self, pieces: &[(u64, u64)]) -> Option<Range<u64>> {
        let len = self.len();
        let edges = pieces.iter().flat_map(|&(start, size)| {
            let end = start.saturating_add(size).min(MAX_FILE_BYTES);
            [(start, start, end), (end.saturating_sub(1), start, end)]
        });
        let in_part = |&(at, start, end): &(u64, u64, u64)| {
            let block = at / BLOCK * BLOCK;
            let block_end = (block + BLOCK).min(len);
            start < end && block < len && start < block_end && (start > block || end < block_end)
        };
        let mut edges = edges.filter(in_part).map(|(at, ..)| at / BLOCK * BLOCK);
        edges.find_map(|block| self.damaged(&(block..block + BLOCK)).pop())
    }
}

impl crate::Target {
    /// Removes, durably, the file of an object with a damaged header. The caller has noted before
    /// what the copy lacks; those notes stay.
    ///
    /// # Errors
    /// `Exists` if the object can be opened; `Io`.
    pub fn discard(&self, id: ObjectId) -> Result<()> {
        let damaged = match self.object(id) {
            Ok(None) => return Ok(()),
            Ok(Some(object)) => object.check().is_err_and(|e| e.kind == ErrorKind::Corrupt),
            Err(error) if error.kind == ErrorKind::Corrupt => true,
            Err(error) => return Err(error),
        };
        if !damaged {
            let what = format!("object {id} is not damaged");
            return Err(weir_types::Error::new(ErrorKind::Exists, what));
        }
        self.unlink(id)?;
        self.sync_removals()
    }
}
