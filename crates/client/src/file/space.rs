//! Disk space: punching holes, preallocation, and finding data and holes.

use super::File;
use crate::context::Context;
use crate::core::lease::CallKind;
use crate::io::space::{Space, seek_from};
use crate::io::writer::Returns;
use crate::state::{Call, Writer};
use std::ops::Range;
use weir_layout::covered_bytes;
use weir_types::limits::BLOCK;
use weir_types::{ErrorKind, Result};
use weir_wire::lease::TO_THE_END;

/// Zeros are written in pieces of this many bytes where their space cannot be preallocated.
const ZEROS_BYTES: usize = 1 << 20;

impl File {
    /// Punches a hole: makes a range zeros and frees its disk space. The size stays. Bytes behind
    /// the end of the file are not touched.
    pub fn punch(&self, ctx: &Context, offset: u64, len: u64) -> Result<()> {
        let _entered = self.enter_whole(ctx)?;
        Writer::change_space(self.call(ctx), Space::Punch, offset, len, true)
    }

    /// Preallocates disk space for a range, so that a write there does not fail with a full disk.
    /// Unless `keep_size` is set, the file grows by zeros to hold the range.
    ///
    /// # Errors
    /// `NoSpace`: some of the space may have been preallocated; `Unsupported` if the local file
    /// system of a target cannot preallocate.
    pub fn allocate(&self, ctx: &Context, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let _entered = self.enter_whole(ctx)?;
        Writer::change_space(self.call(ctx), Space::Reserve, offset, len, keep_size)
    }

    /// Makes a range zeros and keeps its space preallocated. Unless `keep_size` is set, the file
    /// grows to hold the range.
    ///
    /// # Errors
    /// `NoSpace`: the range is unchanged, unless other writers have taken its space meanwhile.
    pub fn zero(&self, ctx: &Context, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let _entered = self.enter_whole(ctx)?;
        let call = self.call(ctx);
        // First, so that it is refused before anything has become zeros.
        Writer::change_space(call, Space::Reserve, offset, len, keep_size)?;
        Writer::change_space(call, Space::Punch, offset, len, true)?;
        match Writer::change_space(call, Space::Reserve, offset, len, true) {
            // The last of a disk is not reserved, also for who has just given it back, but whoever
            // writes gets it.
            Err(error) if error.kind == ErrorKind::NoSpace => {
                let end = offset.saturating_add(len).min(self.size());
                write_zeros(call, offset..end)
            }
            reserved => reserved,
        }
    }

    /// First byte at or after `offset` of a block ([`BLOCK`]) that may hold bytes other than
    /// zero; `None` if there is none before the end of the file. Preallocated bytes that were not
    /// written count as data or as a hole.
    pub fn next_data(&self, ctx: &Context, offset: u64) -> Result<Option<u64>> {
        self.seek(ctx, offset, false)
    }

    /// First byte at or after `offset` of a block without data, or else the end of the file; `None`
    /// if `offset` is not before the end.
    pub fn next_hole(&self, ctx: &Context, offset: u64) -> Result<Option<u64>> {
        Ok(match self.seek(ctx, offset, true)? {
            None if offset < self.size() => Some(self.size()),
            found => found,
        })
    }

    fn seek(&self, ctx: &Context, offset: u64, hole: bool) -> Result<Option<u64>> {
        let call = self.call(ctx);
        let range = offset..TO_THE_END;
        let _entered = self.enter_reading(ctx, (range, TO_THE_END), CallKind::Look, &|_| ())?;
        let size = self.size();
        if offset >= size {
            return Ok(None);
        }
        if covered_bytes(&self.layout()) < size {
            // Another client made the file longer.
            self.state.refresh(&self.inner, ctx)?;
        }
        let layout = self.layout();
        // An object ends with its last byte of data, a block of it does not end there.
        let mut at = offset / BLOCK * BLOCK;
        while at < size {
            let Some(found) = seek_from(call, &layout, (at, size), hole)? else { break };
            let block = found / BLOCK * BLOCK;
            if !hole || found == block {
                return Ok(Some(block.max(offset)));
            }
            at = block + BLOCK;
        }
        Ok(None)
    }
}

fn write_zeros(call: Call<'_>, range: Range<u64>) -> Result<()> {
    let (zeros, mut at) = (vec![0; ZEROS_BYTES], range.start);
    while at < range.end {
        let n = (range.end - at).min(ZEROS_BYTES as u64);
        Writer::write(call, at, &zeros[..n as usize], Returns::Taken)?;
        at += n;
    }
    Writer::flush(call)
}
