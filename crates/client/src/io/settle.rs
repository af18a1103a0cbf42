//! Truncations that are pending: finished by this client, for itself or under its own identity.

use crate::context::Context;
use crate::state::{Call, Inner, OpenState};
use weir_layout::covered_bytes;
use weir_types::{FileId, Result};
use weir_wire::capability::Rights;
use weir_wire::meta::{OpenFile, OpenRequest, PendingTruncate};

impl Inner {
    /// Carries out a truncation that another client has left pending. A caller with read permission
    /// cannot; this program does it under its own identity.
    pub(crate) fn settle_pending(&self, call: Call<'_>, pending: &PendingTruncate) -> Result<()> {
        if call.file.is_writable() {
            return call.file.carry_out(call, pending);
        }
        self.settle_in_own_name(&Context::root(), call.file.id).map_err(|e| {
            e.context("a truncation that another client left pending has to be finished first")
        })?;
        call.file.refresh(self, call.ctx)
    }

    /// Opens a file for writing under this program's own identity, to carry out a pending
    /// truncation. `ctx` may interrupt it.
    pub(crate) fn settle_in_own_name(&self, ctx: &Context, file: FileId) -> Result<()> {
        // Opened and closed in any case: who is interrupted leaves nothing open.
        let own = Context::root();
        let request = OpenRequest { file, rights: Rights::READ_WRITE };
        let (open, found) = self.session.alter(&own, &request);
        let (open, _) = open?;
        // It counts like any other: a server that starts anew is told of it, and does
        // not take its close for another one's.
        *self.holdings.opened.lock().counts.entry(file).or_default() += 1;
        let state = OpenState::new(&open);
        let by = Context { interrupt: ctx.interrupt, ..Context::root() };
        let told = self.say_opened(&own, file, found);
        let done = told.and_then(|()| self.settle_truncate(&by, &state, &open));
        self.holdings.opened.lock().closing.push(file);
        done
    }

    /// Finishes the truncation of which a reply says that it is pending.
    pub(crate) fn settle_truncate(
        &self,
        ctx: &Context,
        state: &OpenState,
        reply: &OpenFile,
    ) -> Result<()> {
        if reply.more_segments {
            let rights = reply.capability.capability.rights;
            state.fetch_layout(self, ctx, covered_bytes(&reply.layout), rights)?;
        }
        state.finish_truncate(Call { inner: self, file: state, ctx }, reply)
    }
}
