//! What is used by many at once, how much, and what each kind has to say.

use super::calls::Place;
use crate::Outcome;
use crate::linear::Event;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// States that a search may try, for each object.
pub const SEARCH_BOUND: usize = 2_000_000;

/// What is used by many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Aligned blocks of a file, each written and read whole.
    Blocks,
    /// Records appended to one file.
    Appends,
    /// A few names of one directory.
    Names,
    /// The size of a file. `SEEK_END` may tell an end that is too far.
    Sizes,
    /// The same, and `SEEK_END` must be right.
    Ends,
}

impl Kind {
    /// All of them; what one holds another one need not do again.
    pub const ALL: [Self; 4] = [Self::Blocks, Self::Appends, Self::Names, Self::Ends];
}

/// How much.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Brings the same choices back; what overlaps is left to the machine.
    pub seed: u64,
    /// Processes.
    pub processes: u32,
    /// Threads of each.
    pub threads: u32,
    /// Operations of each thread.
    pub operations: u32,
    /// Each thread rests at most so long after each operation, microseconds.
    pub rest_us: u64,
}

impl Plan {
    /// A run of a second or less.
    pub fn short(seed: u64) -> Self {
        Self { seed, processes: 2, threads: 2, operations: 150, rest_us: 200 }
    }
}

/// What one kind does, for one thread.
pub(super) trait Exercise: Sized {
    type Op: Clone + Debug + Send + Serialize + DeserializeOwned;
    type Result: Clone + Debug + Send + Serialize + DeserializeOwned;

    /// Before anybody begins.
    fn prepare(at: &Place) -> Outcome;
    /// For one thread of a worker.
    fn open(at: &Place, caller: u32) -> Outcome<Self>;
    /// What to do next.
    fn choose(&mut self, rng: &mut fastrand::Rng) -> Self::Op;
    /// Does it.
    fn perform(&mut self, op: &Self::Op) -> Outcome<Self::Result>;
    /// Whether everything can be explained; `places` is the directory as each
    /// mount shows it, now that all is over.
    fn check(events: &[Event<Self::Op, Self::Result>], places: &[Place]) -> Outcome;
}
