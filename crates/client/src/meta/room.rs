//! How far a file with a quota may grow. Without a quota nothing is asked.

use super::OpenState;
use crate::context::Context;
use crate::drive::Call;
use std::sync::atomic::Ordering;
use weir_types::{Caller, ErrorKind, Result};
use weir_wire::lease::ROOM_LIMITED;
use weir_wire::quota::RoomRequest;

/// The value when no quota applies to the file.
pub(super) const UNLIMITED: u64 = u64::MAX;

impl OpenState {
    /// Handles the flags of a reply, which say whether a quota applies to the file. `size` is the
    /// size in that reply. A client that learns of a quota asks before it writes the next byte
    /// beyond.
    pub(crate) fn saw_limits(&self, keep: u8, size: u64) {
        if keep & ROOM_LIMITED == 0 {
            self.room.store(UNLIMITED, Ordering::Release);
            return;
        }
        let is_news = self
            .room
            .compare_exchange(UNLIMITED, size, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if is_news {
            self.room_generation.store(self.generation().0, Ordering::Release);
        }
    }

    /// Forgets granted space, because this client has set the size or the metadata server has
    /// restarted.
    pub(crate) fn forget_room(&self, size: u64) {
        let limited = |room: u64| (room != UNLIMITED).then_some(size);
        let _ = self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, limited);
    }

    /// Makes sure that the file may grow up to `end`. The request conflicts with no other client's
    /// leases.
    ///
    /// # Errors
    /// `QuotaExceeded`, and those of asking.
    pub(crate) fn require_room(&self, call: Call<'_>, end: u64) -> Result<()> {
        let room = self.room.load(Ordering::Acquire);
        if room == UNLIMITED {
            return Ok(());
        }
        let generation = self.generation().0;
        if end <= room && generation == self.room_generation.load(Ordering::Acquire) {
            return Ok(());
        }
        let uid = call.ctx.writer.unwrap_or(call.ctx.caller.uid);
        let caller = Caller { uid, ..call.ctx.caller.clone() };
        let by = Context { caller, ..call.ctx.clone() };
        let ask = || call.inner.session.call(&by, &RoomRequest { file: self.id, end });
        let room = match ask() {
            // What was removed and has just been closed counts until that is told.
            Err(error) if error.kind == ErrorKind::QuotaExceeded && call.inner.send_closes() => {
                ask()?
            }
            room => room?,
        };
        self.room_generation.store(generation, Ordering::Release);
        self.room.store(room.up_to, Ordering::Release);
        Ok(())
    }
}
