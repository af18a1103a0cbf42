//! Ranges of an open file: allocating and punching them, data and holes, and copies within a cluster.

use crate::kernel::opening::Passed;
use crate::translate::{context, data_context};
use crate::weirfs::WeirFs;
use weir_client::core::copy::MAX_COPY_CALL_BYTES;
use weir_fuse::{CopyArgs, Errno, NodeId, Reply, RequestContext};

/// Modes of `fallocate(2)`.
const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
const PUNCH_HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
const ZERO_RANGE: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;

impl WeirFs {
    /// Allocates, zeroes or punches a range, as `fallocate(2)` does.
    pub(crate) fn allocate(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Reply<()> {
        let (handle, by) = (self.handle(fh)?, data_context(ctx));
        let file = &handle.file()?.file;
        let keep_size = mode & KEEP_SIZE != 0;
        let is_offered = match mode & !KEEP_SIZE {
            0 | ZERO_RANGE => true,
            PUNCH_HOLE => keep_size,
            _ => false,
        };
        if is_offered && ctx.uid != 0 {
            // The kernel leaves that to us, and does not say when.
            self.clear_suid(&context(ctx), self.file(node)?)?;
        }
        match mode & !KEEP_SIZE {
            0 => file.allocate(&by, offset, length, keep_size)?,
            PUNCH_HOLE if keep_size => file.punch(&by, offset, length)?,
            ZERO_RANGE => file.zero(&by, offset, length, keep_size)?,
            // Bytes do not move from column to column.
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }

    /// The next data, or the next hole.
    pub(crate) fn seek(
        &self,
        ctx: &RequestContext<'_>,
        fh: u64,
        offset: u64,
        whence: u32,
    ) -> Reply<u64> {
        let (handle, by) = (self.handle(fh)?, data_context(ctx));
        let file = &handle.file()?.file;
        let found = match whence as i32 {
            libc::SEEK_DATA => self.next_data(&by, file, offset)?,
            libc::SEEK_HOLE => self.next_hole(&by, file, offset)?,
            _ => return Err(Errno::EINVAL),
        };
        found.ok_or(Errno::ENXIO)
    }

    /// Copies bytes from one open file to another. Returns how many.
    pub(crate) fn copy_range(&self, ctx: &RequestContext<'_>, args: &CopyArgs) -> Reply<u64> {
        if args.flags != 0 {
            return Err(Errno::EINVAL);
        }
        let (from, to) = (self.handle(args.fh_in)?, self.handle(args.fh_out)?);
        let (source, to, by) = (from.file()?, to.file()?, data_context(ctx));
        let from = &source.file;
        if ctx.uid != 0 {
            // The kernel leaves that to us, and does not say when.
            self.clear_suid(&context(ctx), self.file(args.node_out)?)?;
        }
        let (start, len) = (args.offset_out, args.length.min(MAX_COPY_CALL_BYTES));
        // The kernel has written its pages back, holds the file's lock, and drops what
        // it has of the bytes when this returns: as for a write past its pages.
        let mut copied = 0;
        to.opening.passing(ctx.pid, || {
            copied = from.copy_range(&by, args.offset_in, &to.file, start, len)?;
            let believed_end = if copied > 0 { start + copied } else { 0 };
            Ok::<_, Errno>(Passed { bytes: start..start + copied, believed_end })
        })?;
        if copied > 0 {
            self.is_read(from.id(), 0, &source.access, 0);
        }
        if to.synchronous {
            to.file.sync(&by)?;
        }
        Ok(copied)
    }
}
