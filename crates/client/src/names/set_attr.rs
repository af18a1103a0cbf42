//! Changes of attributes, and of the size of a file.

use crate::context::Context;
use crate::leases::Cut;
use crate::state::{Call, Inner, OpenState, Writer};
use std::sync::Arc;
use std::time::Duration;
use weir_types::{Attr, Caller, Result};
use weir_wire::meta::SetAttrRequest;

impl Inner {
    /// Changes attributes. A new size is also applied to the objects.
    pub(crate) fn set_attr(
        self: &Arc<Self>,
        ctx: &Context,
        request: &SetAttrRequest,
    ) -> Result<Attr> {
        let cut = request.size.map(|_| Cut::begin(self, request.file));
        let _alone = cut.as_ref().and_then(Cut::alone);
        let mut state = self.open_state(request.file);
        if let Some(state) = &state {
            // Times and size that are set now must not be overtaken by those
            // of earlier writes.
            let call = Call { inner: self, file: state, ctx };
            Writer::flush(call)?;
            // What others were told of before may still be under way.
            drop(state.reporting.lock());
            // By path it is the server that judges, in the name of who asks.
            if ctx.writer.is_some() {
                state.require_room(call, request.size.unwrap_or(0))?;
            }
        }
        // What was opened may be cut whatever the mode says now; but it grows in the name of whose
        // process does it, as far as quotas go.
        let writer = ctx
            .writer
            .filter(|_| is_of_size_only(request))
            .map(|uid| Context { caller: Caller { uid, ..ctx.caller.clone() }, ..ctx.clone() });
        let by = writer.as_ref().unwrap_or(ctx);
        if request.atime.is_some() {
            let longest = Duration::from_millis(self.config.request_timeout_ms);
            self.accesses.forget(request.file, longest);
        }
        let resized = state.clone().filter(|_| request.size.is_some());
        if let Some(state) = &resized {
            state.begin_resize();
        }
        let (reply, changed) = self.alter(by, request, &[request.file], &[]);
        if let Some(state) = &resized {
            // In this order: nobody sees the new generation and not whose it is.
            state.end_resize(reply.as_ref().ok().map(|reply| reply.attr.generation));
            if reply.is_err() {
                // It may have been done all the same: the next call asks for its
                // lease again, and learns of that.
                state.lease().lose();
            }
        }
        let reply = reply?;
        self.keep_changed(&changed, &reply.attr, None);
        if request.size.is_some() {
            // It may have been opened meanwhile, or closed and opened again.
            state = self.was_cut(&reply.attr);
        }
        match (&state, request.size) {
            (Some(state), Some(size)) => {
                state.update(&reply);
                if size == 0 {
                    state.writer().forget_objects();
                }
                state.resized(&reply.attr);
                state.saw_limits(changed.found.keep, size);
                state.forget_room(size);
                let _cutting = state.cutting();
                let cut = self.settle_truncate(ctx, state, &reply);
                if cut.is_err() && reply.pending_truncate.is_some() {
                    state.leave_half_cut();
                }
                cut?;
            }
            (None, Some(_)) if reply.pending_truncate.is_some() => {
                let state = OpenState::new(&reply);
                self.settle_truncate(ctx, &state, &reply)?;
            }
            _ => {}
        }
        Ok(reply.attr)
    }
}

/// Whether the request changes the size alone, as `ftruncate` does.
fn is_of_size_only(request: &SetAttrRequest) -> bool {
    let SetAttrRequest { file: _, mode, uid, gid, size, atime, mtime } = request;
    let others = [mode.is_some(), uid.is_some(), gid.is_some(), atime.is_some(), mtime.is_some()];
    size.is_some() && others == [false; 5]
}
