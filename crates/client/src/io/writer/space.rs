//! Punching and preallocation, in the order of the writes.

use super::{now, patient};
use crate::io::control::run_control_under;
use crate::io::space::{Space, space_requests, steps};
use crate::state::{Call, Writer};
use std::ops::Range;
use std::sync::atomic::Ordering;
use weir_layout::covered_bytes;
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{ErrorKind, Generation, Result};

impl Writer {
    /// Punches or preallocates a range while no request of the file is on its way. Unless
    /// `keep_size` is set, the file grows to hold it.
    pub(crate) fn change_space(
        call: Call<'_>,
        space: Space,
        offset: u64,
        len: u64,
        keep_size: bool,
    ) -> Result<()> {
        let end = offset.checked_add(len).filter(|&end| end <= MAX_FILE_BYTES);
        let end = end.ok_or(ErrorKind::FileTooLarge)?;
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let covered = if space == Space::Reserve { end } else { 0 };
        let mut writer = Self::begin(call, covered, 0)?;
        writer.send_gathered(call);
        writer.finish_all(call);
        let makes_holes = space == Space::Punch || keep_size && end > call.file.size();
        if makes_holes && let Err(error) = writer.note_sparse(call) {
            writer.note_clean(call);
            return Err(error);
        }
        let changed = writer.change_objects(call, space, offset..end, None);
        call.file.changes.fetch_add(1, Ordering::AcqRel);
        if let Err(error) = &changed {
            call.file.change_failed(error);
        }
        // What was fetched ahead meanwhile may be of before.
        call.file.reader().clear();
        let grows = !keep_size && end > call.file.size();
        if changed.is_ok() {
            // Who has heard what the file takes asks again.
            let (start, end) = if grows { (offset, end) } else { (0, 0) };
            call.file.wrote(start, end, now());
            writer.is_to_be_committed();
        }
        let result = changed.and_then(|()| if grows { writer.commit(call) } else { Ok(()) });
        if grows {
            // What was lost meanwhile was not there to be committed.
            writer.notice_loss(call);
        }
        writer.note_clean(call);
        writer.failures.tell_own()?;
        result
    }

    /// Shortens the file by refused bytes at its end when nothing is under way any more, because
    /// the next append would leave zeros before it. Refused bytes that may be on disk are punched
    /// first. If that fails, or other clients know the size, the file keeps its size.
    pub(super) fn give_back(&mut self, call: Call<'_>) {
        if !self.tail.is_refused() {
            return;
        }
        if !self.is_idle() {
            // Comes back here.
            self.send_gathered(call);
            return self.finish_all(call);
        }
        let file = call.file;
        // Without its lease others may have written there since.
        let leased = !file.unleased.load(Ordering::Acquire);
        // Whoever gets the lease if this client falls silent fences the file first.
        let generation = file.generation();
        let held = leased && self.losses == file.losses_so_far();
        let size = file.size();
        let Some((end, left)) = self.tail.give_back(size, file.told_size()).filter(|_| held) else {
            return;
        };
        let punched = self.change_objects(call, Space::Punch, left, Some(generation));
        file.changes.fetch_add(1, Ordering::AcqRel);
        file.reader().clear();
        let given_back = punched.map(|()| file.ends_at(end));
        tracing::debug!("file {}: {end} to {size} was refused: {given_back:?}", file.id);
    }

    pub(super) fn change_objects(
        &mut self,
        call: Call<'_>,
        space: Space,
        range: Range<u64>,
        bound: Option<Generation>,
    ) -> Result<()> {
        if space == Space::Punch && covered_bytes(&call.file.layout()) < range.end {
            // Another client may have made the file longer.
            call.file.refresh(call.inner, call.ctx)?;
        }
        let layout = call.file.layout();
        for step in steps(space, range) {
            let list = space_requests(call.file.id, &layout, space, step);
            for (place, ..) in &list {
                self.unsynced.sent(*place);
            }
            let requests = list.iter().map(|&(place, control, _)| (place, control)).collect();
            let done = run_control_under(call, requests, bound)?;
            for ((place, _, start), taken) in list.iter().zip(done) {
                if let Some(taken) = taken {
                    self.unsynced.confirmed(*place, taken);
                }
                if space == Space::Reserve {
                    self.written.note(place.object.segment, *start, place.object.column);
                }
            }
        }
        Ok(())
    }
}
