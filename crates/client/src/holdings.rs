//! What this client holds: open files with their leases, and what it keeps of
//! names and attributes. The session tells a new run of the server about it.

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

/// The files that are open.
#[derive(Default)]
pub(crate) struct Opened {
    pub(crate) files: BTreeMap<FileId, (Arc<OpenState>, u32)>,
    /// Opens that the metadata server counts, those being closed included.
    pub(crate) counts: BTreeMap<FileId, u32>,
    /// Closed, but not yet told.
    pub(crate) closing: Vec<FileId>,
    /// Held since an event of which the metadata server has not heard yet that it was obeyed.
    pub(crate) unheard: BTreeSet<FileId>,
    /// Closed, with writes that may still reach a data server; not yet told.
    pub(crate) unconfirmed: BTreeSet<FileId>,
    pub(crate) departed: Departed,
}

/// What this client holds.
#[derive(Default)]
pub(crate) struct Holdings {
    pub(crate) opened: Mutex<Opened>,
    pub(crate) kept: Mutex<Kept>,
    pub(crate) clock: LeaseClock,
    pub(crate) locks: LockBook,
    pub(crate) unknown_sizes: Mutex<UnknownSizes>,
    /// What the layer above keeps under leases that were lost.
    pub(crate) drops: Drops,
}

impl Holdings {
    /// Session or server are new: what is open (once for each open) and leased.
    /// Nothing is believed any more. `forgets`: the last that the server was told it may have
    /// forgotten.
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

    /// Leases on these files are lost.
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

    /// Everything is lost, also what is still on its way in answers that were found
    /// before this event.
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
