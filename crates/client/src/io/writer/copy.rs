//! Copies between files that the servers make among themselves, in the order of the writes.

use super::{now, patient};
use crate::config::Consistency;
use crate::core::copy::plan_copy;
use crate::counters::add;
use crate::io::copy::{BATCH, Done, run_copy};
use crate::io::space::Space;
use crate::state::{Call, Writer};
use std::ops::Range;
use std::sync::atomic::Ordering;
use weir_layout::covered_bytes;
use weir_types::{ErrorKind, Result};

impl Writer {
    /// Lets the servers copy bytes of a file to this one, while no request of the file is on its
    /// way. Returns false if they cannot, or have found rot: reading and writing the bytes then
    /// shows which bytes have rotted.
    pub(crate) fn copy(
        call: Call<'_>,
        from: Call<'_>,
        source: Range<u64>,
        to_offset: u64,
    ) -> Result<bool> {
        let end = to_offset + (source.end - source.start);
        let ctx = patient(call.ctx);
        let sure = Call { ctx: &ctx, ..call };
        let mut writer = Self::begin(sure, end, 0)?;
        writer.send_gathered(sure);
        writer.finish_all(sure);
        let ready = writer.failures.tell_next();
        // What are holes there become holes here, among bytes that were written before.
        let leased = call.inner.config.consistency == Consistency::Strict
            && !call.file.unleased.load(Ordering::Acquire);
        let covers = to_offset < call.file.size() || !leased;
        let makes_holes = covers && (from.file.may_have_holes() || !leased);
        let ready =
            ready.and_then(|()| if makes_holes { writer.note_sparse(sure) } else { Ok(()) });
        // Of a copy that ends half way some bytes may be there.
        if ready.is_ok() {
            call.file.wrote(to_offset, end, now());
            writer.is_to_be_committed();
        }
        let generation = call.file.generation();
        // Bytes that nobody was promised yet: a signal may end it.
        let copied = ready.and_then(|()| writer.copy_objects(call, from, source, to_offset));
        call.file.changes.fetch_add(1, Ordering::AcqRel);
        // What was fetched ahead meanwhile may be of before.
        call.file.reader().clear();
        writer.note_clean(sure);
        match copied {
            Ok((bytes, written)) => {
                add(&call.inner.counters.copied_bytes, bytes);
                match written == bytes {
                    true => writer.filled.note(generation, (to_offset, end)),
                    // Of a file from before holes were known, say.
                    false if covers => writer.note_sparse(sure)?,
                    false => {}
                }
            }
            Err(e) if matches!(e.kind, ErrorKind::Unsupported | ErrorKind::Corrupt) => {
                tracing::debug!("file {}: not copied by the servers: {e}", call.file.id);
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Returns the number of copied bytes, and how many of them were not holes.
    fn copy_objects(
        &mut self,
        call: Call<'_>,
        from: Call<'_>,
        source: Range<u64>,
        to_offset: u64,
    ) -> Result<(u64, u64)> {
        if covered_bytes(&from.file.layout()) < source.end {
            // Another client may have made the file longer.
            from.file.refresh(from.inner, from.ctx)?;
        }
        let (layout, to_layout) = (from.file.layout(), call.file.layout());
        // What no segment was granted for was never written.
        let covered = covered_bytes(&layout).clamp(source.start, source.end);
        let to = |at: u64| to_offset + (at - source.start);
        let (of, range) = ((from.file.id, &layout), source.start..covered);
        let list = plan_copy(of, range, (call.file.id, &to_layout), to_offset)?;
        for part in &list {
            self.unsynced.sent(part.to);
        }
        let (mut done, mut written) = (Vec::new(), 0);
        for batch in list.chunks(BATCH) {
            let result = run_copy(from, call, batch, &mut done);
            for (part, done) in batch.iter().zip(&done) {
                let Some(Done { taken, copied }) = done else { continue };
                self.unsynced.confirmed(part.to, taken.clone());
                written += copied.written;
                if copied.written > 0 {
                    let object = part.to.object;
                    self.written.note(object.segment, part.segment_start, object.column);
                }
            }
            result?;
        }
        if covered < source.end {
            self.change_objects(call, Space::Punch, to(covered)..to(source.end), None)?;
        }
        Ok((source.end - source.start, written))
    }
}
