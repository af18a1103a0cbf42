//! Works off the gap log of one target, in one thread for each.
//!
//! A gap of another copy is filled from here if this copy orders the changes of the column, and is
//! left to the ordering copy otherwise. A gap of this copy is told to the ordering copy. If this
//! copy orders itself, its own bytes count, and the others get the gap.

mod lost;
mod run;
mod take;
mod tell;
mod unheard;

use super::columns;
use super::pacer::Pacer;
use crate::disk::Disk;
use crate::state::Shared;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use weir_host::net::Signal;
use weir_types::{Epoch, ObjectId, Result, TargetId};
use weir_wire::peer::Copies as Column;

/// Target, epoch and ranges of a gap that was told.
type Told = (TargetId, Epoch, Vec<Range<u64>>);

/// Progress of the search for lost gaps: finished ranges, and the last object of the next range.
#[derive(Default)]
struct Search {
    done: usize,
    after: Option<ObjectId>,
}

/// The thread of one target.
pub(crate) struct Resync {
    shared: Arc<Shared>,
    disk: Arc<Disk>,
    shutdown: Signal,
    buffer: Vec<u8>,
    /// Gaps of this copy that were told: to which target, under which epoch.
    told: BTreeMap<ObjectId, (Told, Instant)>,
    /// The epoch under which ordering copies were told of all gaps of bytes that are elsewhere.
    /// Earlier replies came from a copy that may not order any more, or may have forgotten.
    confirmed: Epoch,
    search: Search,
    pacer: Pacer,
    /// Targets for which not everything could be done at the last attempt.
    failed: BTreeSet<TargetId>,
}

impl Resync {
    pub(crate) fn new(shared: Arc<Shared>, disk: Arc<Disk>, shutdown: Signal) -> Self {
        let (buffer, told, search) = (Vec::new(), BTreeMap::new(), Search::default());
        let pacer = Pacer::new(shared.clone(), shutdown.clone(), 1);
        let (confirmed, failed) = (Epoch(0), BTreeSet::new());
        Self { shared, disk, shutdown, buffer, told, confirmed, search, pacer, failed }
    }

    fn own(&self) -> TargetId {
        self.disk.served.id
    }

    fn find(&self, objects: Vec<ObjectId>) -> Result<Vec<Option<Column>>> {
        columns::find(&self.shared, objects)
    }
}
