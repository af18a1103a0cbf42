//! Files that this client has open: counted as the metadata server counts them.

use crate::context::Context;
use crate::core::news::Found;
use crate::state::{Inner, OpenState};
use std::collections::btree_map::Entry;
use std::sync::Arc;
use weir_types::{Attr, FileId, Result};
use weir_wire::meta::{OpenFile, ReassertRequest};

/// Marks an open as under way until it is dropped.
pub(crate) struct OpenUnderWay<'a>(&'a Inner);

impl Drop for OpenUnderWay<'_> {
    fn drop(&mut self) {
        self.0.holdings.opened.lock().departed.end();
    }
}

impl Inner {
    /// To be held from before an open is requested until its reply is handled.
    pub(crate) fn begin_open(&self) -> OpenUnderWay<'_> {
        self.holdings.opened.lock().departed.begin();
        OpenUnderWay(self)
    }

    /// Adds a handle of an opened file. Returns `None` if the reply is older than the close of the
    /// last handle, so that the file has to be opened again (`fresh`).
    pub(crate) fn enter_opened(
        &self,
        open: &OpenFile,
        fresh: &mut Option<Arc<OpenState>>,
    ) -> Option<Arc<OpenState>> {
        let file = open.attr.file;
        let mut opened = self.holdings.opened.lock();
        let unconfirmed = opened.unconfirmed.contains(&file);
        let known = fresh.as_ref().map_or(open.attr.change, |state| state.newest_change());
        let outdated = opened.departed.is_newer(file, known);
        let (sizing, cut) = (opened.cuts.lock_of(file).cloned(), opened.departed.cut_of(file));
        match opened.files.entry(file) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().1 += 1;
                let state = entry.get().0.clone();
                drop(opened);
                state.update(open);
                Some(state)
            }
            Entry::Vacant(_) if outdated => None,
            Entry::Vacant(entry) => {
                let mut state = fresh.take().unwrap_or_else(|| Arc::new(OpenState::new(open)));
                // Nobody else has the state yet.
                if let (Some(lock), Some(new)) = (sizing, Arc::get_mut(&mut state)) {
                    new.sizing = lock;
                }
                if let Some(generation) = cut {
                    state.is_own(generation);
                }
                if unconfirmed {
                    // Opened again before it was told: the file was not fenced.
                    state.leave_unconfirmed();
                }
                entry.insert((state.clone(), 1));
                Some(state)
            }
        }
    }

    /// Records that this client has cut a file, also for opens that are under way: what they were
    /// answered before has the old size. Returns its state, if it is open.
    pub(crate) fn was_cut(&self, attr: &Attr) -> Option<Arc<OpenState>> {
        let mut opened = self.holdings.opened.lock();
        opened.departed.cut(attr.file, attr.generation);
        opened.departed.left(attr.file, attr.change);
        let (state, _) = opened.files.get(&attr.file)?;
        state.is_own(attr.generation);
        Some(state.clone())
    }

    /// Reports an open file again if the server has restarted, or the session has ended, since the
    /// reply: the report of open files may have been sent before this file was added.
    pub(crate) fn say_opened(&self, ctx: &Context, file: FileId, found: Found) -> Result<()> {
        if self.session.epoch() == found.epoch {
            return Ok(());
        }
        let (first, last) = (false, false);
        let (held, leases) = (Vec::new(), Vec::new());
        let request = ReassertRequest { first, files: vec![file], held, leases, last };
        self.session.call(ctx, &request).map(drop)
    }

    /// Counts a file without names as open, because the session holds it.
    pub(crate) fn is_held(&self, file: FileId, found: Found) {
        *self.holdings.opened.lock().counts.entry(file).or_default() += 1;
        if let Err(error) = self.say_opened(&Context::root(), file, found) {
            tracing::debug!("file {file}: cannot report again that it is held: {error}");
        }
    }
}
