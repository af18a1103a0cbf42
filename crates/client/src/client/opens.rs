//! Handles of files, from the replies to opens.

use crate::context::Context;
use crate::core::news::Found;
use crate::file::File;
use crate::state::{Call, Inner, OpenState};
use std::sync::Arc;
use weir_layout::covered_bytes;
use weir_types::Result;
use weir_wire::meta::{GetAttrRequest, OpenFile};

impl Inner {
    /// Makes a handle from the reply to an open or create.
    pub(crate) fn opened(
        self: &Arc<Self>,
        ctx: &Context,
        open: &OpenFile,
        found: Found,
    ) -> Result<File> {
        let file = open.attr.file;
        *self.holdings.opened.lock().counts.entry(file).or_default() += 1;
        if !open.loads.is_empty() && self.servers.will_have_questions() {
            // Who asks is there before the first reads are over.
            self.turns.hurry();
        }
        self.servers.is_going_to_be_used(&self.session);
        self.servers.told_loads(&open.loads);
        if !self.config.lazy {
            let columns = open.layout.segments.iter().flat_map(|segment| &segment.columns);
            let targets = columns.filter_map(|column| Some(column.copies().next()?.1));
            if self.servers.will_be_connected(targets) {
                self.turns.hurry();
            }
        }
        let mut fresh = None;
        let state = loop {
            if let Some(state) = self.enter_opened(open, &mut fresh) {
                break state;
            }
            // From before the last handle was closed.
            let state = OpenState::new(open);
            let asked = state
                .refresh(self, ctx)
                .and_then(|()| self.session.call(ctx, &GetAttrRequest { file }));
            match asked {
                Ok(attr) => state.saw_attr(&attr),
                Err(error) => {
                    self.holdings.opened.lock().closing.push(file);
                    return Err(error);
                }
            }
            fresh = Some(Arc::new(state));
        };
        state.saw_limits(found.keep, open.attr.size);
        let handle = File::new(state.clone(), self.clone());
        self.say_opened(ctx, file, found)?;
        let call = Call { inner: self, file: &state, ctx };
        if open.more_segments {
            let rights = open.capability.capability.rights;
            state.fetch_layout(self, ctx, covered_bytes(&open.layout), rights)?;
        }
        if let Some(pending) = &open.pending_truncate {
            self.settle_pending(call, pending)?;
            if state.generation() > pending.generation {
                // Cut since: whoever asks for a lease is told what is left of that.
                return Ok(handle);
            }
        }
        state.take_lease(self, found);
        Ok(handle)
    }
}
