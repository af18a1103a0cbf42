//! State that the processes of a run share with its driver, outside of the simulated machines: the
//! history, and the remaining calls of clients.

use crate::held::Held;
use crate::history::{Call, History, Outcome, What};
use crate::plan::targets_of;
use crate::plan::{NodeName, Plan, Shape};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use weir_host::net::Signal;
use weir_host::simulated;
use weir_types::{FileId, FileLayout, Result};

/// What was made before the faults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    /// Ids of the fixed directories.
    pub directories: Vec<u64>,
    /// Ids of the files.
    pub files: Vec<u64>,
    /// Their layouts.
    pub layouts: Vec<FileLayout>,
}

/// Shared by all parts of a run. One thread of the operating system runs all of them, and nothing
/// is borrowed while a simulated thread waits.
pub(crate) struct Shared {
    pub plan: Plan,
    history: RefCell<History>,
    calls: Cell<u32>,
    pub made: RefCell<Made>,
    /// The signal that asks a server to end.
    pub signals: RefCell<BTreeMap<NodeName, Signal>>,
    /// Servers that have ended, and how.
    pub ended: RefCell<Vec<(NodeName, Result<()>)>>,
    /// The next call of each client; beyond the last one: finished.
    pub next: RefCell<Vec<usize>>,
    /// The states of the targets at the last look.
    pub states: RefCell<String>,
    /// Layouts of files that were found at the end, besides those made before the faults.
    pub found: RefCell<BTreeMap<FileId, FileLayout>>,
    /// The contents of the targets at the end.
    pub held: RefCell<Held>,
    /// The error that stopped a helper process, if any.
    pub trouble: RefCell<Option<String>>,
    /// Targets that were removed from the cluster.
    pub removed: RefCell<BTreeSet<u32>>,
    /// Files that could not be opened in the last inspection.
    pub unopened: RefCell<BTreeSet<u8>>,
    /// Whether the inspecting client was refused something.
    pub refused: Cell<bool>,
    /// Files with accepted losses.
    pub accepted: RefCell<BTreeSet<u8>>,
    /// Number of administrators' orders to be carried out before the run ends.
    pub ordered: Cell<u32>,
}

impl Shared {
    pub fn new(plan: Plan) -> Self {
        let next = RefCell::new(vec![0; plan.clients.len()]);
        Self {
            plan,
            history: RefCell::default(),
            calls: Cell::new(0),
            made: RefCell::default(),
            signals: RefCell::default(),
            ended: RefCell::default(),
            next,
            states: RefCell::default(),
            found: RefCell::default(),
            held: RefCell::default(),
            trouble: RefCell::default(),
            removed: RefCell::default(),
            unopened: RefCell::default(),
            refused: Cell::new(false),
            accepted: RefCell::default(),
            ordered: Cell::new(0),
        }
    }

    /// The targets of a data server that were not removed from the cluster.
    pub fn members_of(&self, shape: &Shape, server: u8) -> Vec<u32> {
        let removed = self.removed.borrow();
        targets_of(shape, server).into_iter().filter(|target| !removed.contains(target)).collect()
    }

    /// Adds an entry from a simulated process.
    pub fn record(&self, what: What) {
        let now = simulated::current().map_or(Duration::ZERO, |machine| machine.now());
        self.record_at(now, what);
    }

    /// Adds an entry from the driver.
    pub fn record_at(&self, now: Duration, what: What) {
        self.history.borrow_mut().push(now, what);
    }

    /// The number of the next call.
    pub fn next_call(&self) -> u32 {
        self.calls.get()
    }

    /// Records the begin of a call; returns its number.
    pub fn begin(&self, client: u8, call: Call) -> u32 {
        let id = self.calls.get();
        self.calls.set(id + 1);
        self.record(What::Begin { client, id, call });
        id
    }

    /// Records the result of a call.
    pub fn end(&self, id: u32, outcome: Outcome) {
        self.record(What::End { id, outcome });
    }

    /// Takes the history at the end.
    pub fn take_history(&self) -> History {
        self.history.take()
    }
}
