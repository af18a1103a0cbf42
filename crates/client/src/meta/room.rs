//! Asks how far a file with a quota may grow. Without a quota nothing is asked.

use crate::context::Context;
use crate::state::{Call, OpenState};
use weir_types::{Caller, ErrorKind, Result};
use weir_wire::quota::RoomRequest;

impl OpenState {
    /// Makes sure that the file may grow up to `end`. The request conflicts with no other client's
    /// leases.
    ///
    /// # Errors
    /// `QuotaExceeded`, and those of asking.
    pub(crate) fn require_room(&self, call: Call<'_>, end: u64) -> Result<()> {
        let Some(generation) = self.lacks_room(end) else { return Ok(()) };
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
        self.has_room(generation, room.up_to);
        Ok(())
    }
}
