//! Truncations that have not reached all objects, and writes of clients that were cut off. The
//! client that finds them ends them.

use super::control::{Control, run_control};
use crate::core::plan::columns;
use crate::state::{Call, OpenState};
use weir_types::{ErrorKind, Generation, Result};
use weir_wire::capability::Rights;
use weir_wire::lease::{RecoveredRequest, TO_THE_END};
use weir_wire::meta::{OpenFile, PendingTruncate, TruncateDoneRequest};

impl OpenState {
    /// Applies a truncation to the objects and reports that.
    pub(crate) fn finish_truncate(&self, call: Call<'_>, open: &OpenFile) -> Result<()> {
        let Some(pending) = &open.pending_truncate else { return Ok(()) };
        self.carry_out(call, pending)
    }

    /// Carries out a pending truncation that another client has left.
    pub(crate) fn carry_out(&self, call: Call<'_>, pending: &PendingTruncate) -> Result<()> {
        if pending.size == TO_THE_END {
            return self.recover(call, pending.generation);
        }
        let list = columns(self.id, &self.layout(), pending.size)
            .into_iter()
            .map(|(place, len)| (place, Control::Truncate { len, generation: pending.generation }))
            .collect();
        match run_control(call, list) {
            Err(error) if error.kind == ErrorKind::Stale => {
                self.refresh(call.inner, call.ctx)?;
                // Overtaken by one that cuts at least as much, and is carried
                // out by whoever made it, or by the next to ask.
                return if self.generation() > pending.generation { Ok(()) } else { Err(error) };
            }
            result => drop(result?),
        }
        let done = TruncateDoneRequest { file: self.id, generation: pending.generation };
        call.inner.session.change(call.ctx, &done)
    }

    /// Ends the writes of a client that was cut off: fences off its generation, and sets the size
    /// that follows from the objects.
    fn recover(&self, call: Call<'_>, generation: Generation) -> Result<()> {
        // To find the size, all of the layout is needed.
        self.fetch_layout(call.inner, call.ctx, 0, Rights::READ_WRITE)?;
        let fenced = self.fence_objects(call, generation)?;
        let request = RecoveredRequest { file: self.id, generation, size: fenced.size };
        let (result, _) = call.inner.alter(call.ctx, &request, &[self.id], &[]);
        self.saw_attr(&result?);
        self.refresh(call.inner, call.ctx)
    }
}
