//! What the processes of a run and its driver share, outside of the simulated
//! machines: the history, and what the clients have still to do.

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

/// What was made before anything goes wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    /// Ids of the fixed directories.
    pub directories: Vec<u64>,
    /// Ids of the files.
    pub files: Vec<u64>,
    /// Where their bytes are.
    pub layouts: Vec<FileLayout>,
}

/// Shared by everything in a run. One thread of the operating system runs all
/// of it, and nothing is borrowed while a simulated thread waits.
pub(crate) struct Shared {
    pub plan: Plan,
    history: RefCell<History>,
    calls: Cell<u32>,
    pub made: RefCell<Made>,
    /// How to ask a server to end.
    pub signals: RefCell<BTreeMap<NodeName, Signal>>,
    /// Servers that ended by themselves or when asked, and how.
    pub ended: RefCell<Vec<(NodeName, Result<()>)>>,
    /// The next call of each client; beyond the last: done.
    pub next: RefCell<Vec<usize>>,
    /// What the targets are good for, when somebody last looked.
    pub states: RefCell<String>,
    /// Layouts of files that were found at the end, besides those that were made.
    pub found: RefCell<BTreeMap<FileId, FileLayout>>,
    /// What the targets hold at the end.
    pub held: RefCell<Held>,
    /// What stopped a helper process, if something did.
    pub trouble: RefCell<Option<String>>,
    /// Targets that have been taken out of the cluster.
    pub removed: RefCell<BTreeSet<u32>>,
    /// Files that could not be opened when somebody last looked at everything.
    pub unopened: RefCell<BTreeSet<u8>>,
    /// Whether he was refused something.
    pub refused: Cell<bool>,
    /// Files of which the loss of something has been accepted.
    pub accepted: RefCell<BTreeSet<u8>>,
    /// Orders of administrators that have to be carried out before a run ends.
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

    /// The targets of a data server that have not been taken out of the cluster.
    pub fn members_of(&self, shape: &Shape, server: u8) -> Vec<u32> {
        let removed = self.removed.borrow();
        targets_of(shape, server).into_iter().filter(|target| !removed.contains(target)).collect()
    }

    /// Writes an entry of a simulated process.
    pub fn record(&self, what: What) {
        let now = simulated::current().map_or(Duration::ZERO, |machine| machine.now());
        self.record_at(now, what);
    }

    /// Writes an entry of the driver.
    pub fn record_at(&self, now: Duration, what: What) {
        self.history.borrow_mut().push(now, what);
    }

    /// The number that the next call will have.
    pub fn next_call(&self) -> u32 {
        self.calls.get()
    }

    /// A client asks; returns the number of the call.
    pub fn begin(&self, client: u8, call: Call) -> u32 {
        let id = self.calls.get();
        self.calls.set(id + 1);
        self.record(What::Begin { client, id, call });
        id
    }

    /// A client was told.
    pub fn end(&self, id: u32, outcome: Outcome) {
        self.record(What::End { id, outcome });
    }

    /// The history, at the end.
    pub fn take_history(&self) -> History {
        self.history.take()
    }
}
