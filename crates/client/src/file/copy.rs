//! Copies between files that the servers carry out. No bytes pass through the client, unless a
//! server cannot reach another one, or rotted bytes have to be located.

use super::File;
use crate::context::Context;
use crate::core::copy::MAX_COPY_CALL_BYTES;
use crate::core::lease::CallKind;
use crate::core::plan::MAX_CALL_BYTES;
use crate::counters::add;
use crate::io::writer::Returns;
use crate::leases::span;
use crate::state::{Call, Reader, Writer};
use std::ops::Range;
use std::sync::Arc;
use weir_net::Wait;
use weir_types::{Error, ErrorKind, Result};

/// Bytes read and written at once where the servers cannot copy.
const STEP_BYTES: u64 = 1 << 20;

impl File {
    /// Copies bytes of this file to another file of the same client, or within this one. Returns
    /// the number of copied bytes. It is less than `len` if the file ends earlier, and for very
    /// large ranges. The servers copy among themselves, and keep holes.
    ///
    /// # Errors
    /// `InvalidArgument` if the ranges overlap in one file, `CrossDevice` if the files are not of
    /// the same client; those of reading and writing. The destination range may then hold old or
    /// new bytes.
    pub fn copy_range(
        &self,
        ctx: &Context,
        offset: u64,
        to: &File,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        if !Arc::ptr_eq(&self.inner, &to.inner) {
            return Err(ErrorKind::CrossDevice.into());
        }
        let len = len.min(MAX_COPY_CALL_BYTES);
        let (source, dest) = (span(offset, len)?, span(to_offset, len)?);
        if len == 0 {
            return Ok(0);
        }
        let same = self.id() == to.id();
        if same && source.start < dest.end && dest.start < source.end {
            return Err(Error::new(ErrorKind::InvalidArgument, "the ranges overlap"));
        }
        // Before there are leases, or the call could be in the way of who knows it. Should
        // the file be cut until then, getting the lease tells.
        let timeout_ms = self.inner.config.request_timeout_ms;
        self.learn_size(self.call(ctx), source.end, timeout_ms)?;
        let wait = Wait::for_ms(timeout_ms).interruptible(ctx.interrupt);
        let pair = if same { None } else { Some(self.inner.pairs.enter(&wait)?) };
        // In the order of their ids, or two such calls could wait for each other.
        let (_one, _other) = if same {
            (to.enter_all(ctx, &[source.clone(), dest], CallKind::Write)?, None)
        } else if self.id() < to.id() {
            let reading = self.enter(ctx, source.clone(), CallKind::Look)?;
            (reading, Some(to.enter(ctx, dest, CallKind::Write)?))
        } else {
            let writing = to.enter(ctx, dest, CallKind::Write)?;
            (writing, Some(self.enter(ctx, source.clone(), CallKind::Look)?))
        };
        drop(pair);
        let from = self.call(ctx);
        Writer::settle(from)?;
        let end = source.end.min(self.size());
        if end <= source.start {
            return Ok(0);
        }
        let source = source.start..end;
        if !Writer::copy(to.call(ctx), from, source.clone(), to_offset)? {
            self.copy_by_hand(from, source.clone(), to.call(ctx), to_offset)?;
        }
        to.pass_on(to.call(ctx))?;
        Ok(end - source.start)
    }

    /// Copies by reading and writing, under the leases of the call.
    fn copy_by_hand(
        &self,
        from: Call<'_>,
        source: Range<u64>,
        to: Call<'_>,
        to_offset: u64,
    ) -> Result<()> {
        const { assert!(STEP_BYTES as usize <= MAX_CALL_BYTES) };
        let mut buffer = vec![0; STEP_BYTES.min(source.end - source.start) as usize];
        let mut at = source.start;
        // What was fetched ahead of a reader may be older than the writes before.
        self.state.reader().clear();
        while at < source.end {
            let len = STEP_BYTES.min(source.end - at) as usize;
            let mut done = 0;
            while done < len {
                let dest = &mut buffer[done..len];
                done += Reader::read(
                    from,
                    (self.consistency(), self.pattern()),
                    at + done as u64,
                    dest,
                )?;
            }
            add(&to.inner.counters.copied_by_hand_bytes, len as u64);
            Writer::write(to, to_offset + (at - source.start), &buffer[..len], Returns::Taken)?;
            at += len as u64;
        }
        Ok(())
    }
}
