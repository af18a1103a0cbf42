//! What this client holds: open files with their leases, and its cache of names and attributes. The
//! session reports them to a new run of the server.

use super::drops::Drops;
use super::locks::LockBook;
use super::open::OpenState;
use super::sizing::Cuts;
use super::upper::UpperCache;
use crate::core::departed::Departed;
use crate::core::kept::Kept;
use crate::core::news::Numbered;
use crate::core::unknown_sizes::UnknownSizes;
use crate::rpc::lease_clock::LeaseClock;
use crate::rpc::session::claims::{Claimed, Claims};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_host::sync::Mutex;
use weir_types::FileId;
use weir_wire::lease::{HeldLease, LeaseRange};
use weir_wire::lock::Lock;
use weir_wire::meta::WrittenColumns;

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
    pub(crate) cuts: Cuts,
    /// Written columns of closed files, to be reported with the closes.
    pub(crate) written: BTreeMap<FileId, Vec<WrittenColumns>>,
    /// Under which epoch the metadata server was told of all this.
    epoch: u64,
}

impl Opened {
    /// A file is held since an event under this epoch. `None`: the answer to the event says so;
    /// else a later run of the server has been told of all but this, under that epoch, and is to
    /// be told of this by itself.
    pub(crate) fn hold(&mut self, file: FileId, epoch: u64) -> Option<u64> {
        *self.counts.entry(file).or_default() += 1;
        if epoch != self.epoch {
            return Some(self.epoch);
        }
        self.unheard.insert(file);
        None
    }

    /// Records that the metadata server needs no more to be told of these written columns. Others
    /// of the same files may have come meanwhile.
    pub(crate) fn forget_written(&mut self, told: &[(FileId, Vec<WrittenColumns>)]) {
        for (file, told) in told {
            if let Entry::Occupied(mut left) = self.written.entry(*file) {
                left.get_mut().retain(|columns| !told.contains(columns));
                if left.get().is_empty() {
                    left.remove();
                }
            }
        }
    }

    /// Whether a file stays though no program has it open. One with writes under way, or of which
    /// written columns are still to be told, counts as open.
    fn only_holds(&self, file: FileId) -> bool {
        !self.files.contains_key(&file)
            && !self.unconfirmed.contains(&file)
            && !self.written.contains_key(&file)
    }
}

/// Open files, cache and drops of this client.
#[derive(Default)]
pub(crate) struct Holdings {
    pub(crate) opened: Mutex<Opened>,
    pub(crate) kept: Mutex<Kept>,
    pub(crate) clock: Arc<LeaseClock>,
    pub(crate) locks: LockBook,
    pub(crate) unknown_sizes: Mutex<UnknownSizes>,
    /// Drops of the upper layer's cache after leases were lost.
    pub(crate) drops: Drops,
    /// The cache of the layer above.
    pub(crate) upper: Option<Arc<dyn UpperCache>>,
}

impl Holdings {
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

impl Claims for Holdings {
    fn begin(&self, epoch: u64, forgets: bool) -> Claimed {
        {
            let mut kept = self.kept.lock();
            kept.clear();
            kept.news.begin(epoch);
        }
        if let Some(upper) = &self.upper {
            upper.forget_all_attributes();
        }
        let mut opened = self.opened.lock();
        opened.epoch = epoch;
        let times = |(file, n): (&FileId, &u32)| std::iter::repeat_n(*file, *n as usize);
        let (held, files) =
            opened.counts.iter().flat_map(times).partition(|file| opened.only_holds(*file));
        let mut leases = Vec::new();
        for (state, _) in opened.files.values() {
            state.server_is_new(forgets);
            let generation = state.generation();
            let held = state.lease().held().clone();
            let lease = |(start, end, mode)| LeaseRange { file: state.id, start, end, mode };
            leases.extend(held.list().map(lease).map(|lease| HeldLease { lease, generation }));
        }
        Claimed { files, held, leases }
    }

    fn locks(&self) -> Vec<Lock> {
        self.locks.all()
    }

    fn lost_locks(&self, locks: &[Lock]) {
        self.locks.lost(locks);
    }

    fn lost(&self, files: &[FileId]) {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::SegmentIndex;
    use weir_types::codec::Bytes;

    fn columns(bits: u8) -> WrittenColumns {
        WrittenColumns { segment: SegmentIndex(0), start: 0, columns: Bytes(vec![bits]) }
    }

    #[test]
    fn what_is_only_held_is_not_said_to_be_open() {
        let holdings = Holdings::default();
        holdings.begin(1, true);
        let (held, writing, told) = (FileId(7), FileId(8), FileId(9));
        {
            let mut opened = holdings.opened.lock();
            assert_eq!((opened.hold(held, 1), opened.hold(held, 1)), (None, None));
            opened.counts.insert(writing, 1);
            opened.unconfirmed.insert(writing);
            opened.counts.insert(told, 1);
            opened.written.insert(told, vec![columns(1)]);
        }
        let claimed = holdings.begin(2, true);
        assert_eq!((claimed.files, claimed.held), (vec![writing, told], vec![held, held]));
    }

    #[test]
    fn columns_that_came_while_others_were_told_stay_to_be_told() {
        let (mut opened, file) = (Opened::default(), FileId(7));
        opened.written.insert(file, vec![columns(1), columns(2)]);
        opened.forget_written(&[(file, vec![columns(1)]), (FileId(8), vec![columns(2)])]);
        assert_eq!(opened.written[&file], [columns(2)]);
        opened.forget_written(&[(file, vec![columns(2)])]);
        assert!(opened.written.is_empty());
    }

    /// Between the answer to a poll and its events another thread tells a new run of the server
    /// what is held.
    #[test]
    fn a_hold_by_an_event_of_before_is_told_by_itself() {
        let holdings = Holdings::default();
        let file = FileId(7);
        assert!(holdings.begin(2, true).held.is_empty());
        assert_eq!(holdings.opened.lock().hold(file, 1), Some(2), "that answer goes to nobody");
        // Whatever comes next knows of it.
        assert_eq!(holdings.begin(3, true).held, [file]);
        assert_eq!(holdings.opened.lock().hold(file, 3), None);
    }
}
