//! What this client holds: open files with their leases, and its cache of names and attributes. The
//! session reports them to a new run of the server.

use crate::core::departed::Departed;
use crate::core::kept::Kept;
use crate::core::news::Numbered;
use crate::core::unknown_sizes::UnknownSizes;
use crate::drops::Drops;
use crate::file::OpenState;
use crate::lease_clock::LeaseClock;
use crate::locks::LockBook;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_host::sync::Mutex;
use weir_types::FileId;
use weir_wire::lease::{HeldLease, LeaseRange};

/// The open files.
#[derive(Default)]
pub(crate) struct Opened {
    pub(crate) files: BTreeMap<FileId, (Arc<OpenState>, u32)>,
    /// Number of opens that the metadata server counts for each file, including those being closed.
    pub(crate) counts: BTreeMap<FileId, u32>,
    /// Closed files that were not reported yet.
    pub(crate) closing: Vec<FileId>,
    /// Files held because of an event whose acknowledgement the metadata server does not have yet.
    pub(crate) unheard: BTreeSet<FileId>,
    /// Closed files that were not reported yet, with writes that may still reach a data server.
    pub(crate) unconfirmed: BTreeSet<FileId>,
    pub(crate) departed: Departed,
}

/// Open files, cache and drops of this client.
#[derive(Default)]
pub(crate) struct Holdings {
    pub(crate) opened: Mutex<Opened>,
    pub(crate) kept: Mutex<Kept>,
    pub(crate) clock: LeaseClock,
    pub(crate) locks: LockBook,
    pub(crate) unknown_sizes: Mutex<UnknownSizes>,
    /// Drops of the upper layer's cache after leases were lost.
    pub(crate) drops: Drops,
}

impl Holdings {
    /// Begins a new run of session or server. Returns the open files (once for each open) and the
    /// leases to report. All cached data is dropped. `forgets` says that the server may have
    /// forgotten the last reports.
    pub(crate) fn begin(&self, epoch: u64, forgets: bool) -> (Vec<FileId>, Vec<HeldLease>) {
        {
            let mut kept = self.kept.lock();
            kept.clear();
            kept.news.begin(epoch);
        }
        let opened = self.opened.lock();
        let times = |(file, n): (&FileId, &u32)| std::iter::repeat_n(*file, *n as usize);
        let files = opened.counts.iter().flat_map(times).collect();
        let mut leases = Vec::new();
        for (state, _) in opened.files.values() {
            state.server_is_new(forgets);
            let generation = state.generation();
            let held = state.lease().held().clone();
            let lease = |(start, end, mode)| LeaseRange { file: state.id, start, end, mode };
            leases.extend(held.list().map(lease).map(|lease| HeldLease { lease, generation }));
        }
        (files, leases)
    }

    /// Handles the loss of leases on these files.
    pub(crate) fn lost(&self, files: &[FileId]) {
        if files.is_empty() {
            return;
        }
        self.drops.after(|| {
            let opened = self.opened.lock();
            for (state, _) in files.iter().filter_map(|file| opened.files.get(file)) {
                state.lose_leases();
            }
        });
    }

    /// Handles the loss of everything, also of what is still on its way in replies from before this
    /// event.
    pub(crate) fn lost_all(&self, event: Numbered) {
        self.drops.after(|| {
            {
                let mut kept = self.kept.lock();
                kept.clear();
                kept.news.lapsed(event);
            }
            for (state, _) in self.opened.lock().files.values() {
                state.lose_leases();
            }
        });
    }
}
