//! Kinds of concurrent exercises, and their size.

use super::calls::Place;
use crate::Outcome;
use crate::linear::Event;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// Maximum number of states in a search, for each object.
pub const SEARCH_BOUND: usize = 2_000_000;

/// The object that is used concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Aligned blocks of a file, each written and read whole.
    Blocks,
    /// Records appended to one file.
    Appends,
    /// A few names of one directory.
    Names,
    /// The size of a file. `SEEK_END` may return an end that is too far.
    Sizes,
    /// The size of a file. `SEEK_END` must be right.
    Ends,
}

impl Kind {
    /// The kinds of a complete run. A kind that is covered by another one is left out.
    pub const ALL: [Self; 4] = [Self::Blocks, Self::Appends, Self::Names, Self::Ends];
}

/// The size of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Seed that repeats the choices; the machine determines what overlaps.
    pub seed: u64,
    /// Number of processes.
    pub processes: u32,
    /// Threads of each process.
    pub threads: u32,
    /// Operations of each thread.
    pub operations: u32,
    /// Longest pause of a thread after each operation, microseconds.
    pub rest_us: u64,
}

impl Plan {
    /// A run of a second or less.
    pub fn short(seed: u64) -> Self {
        Self { seed, processes: 2, threads: 2, operations: 150, rest_us: 200 }
    }
}

/// One kind of exercise, for one thread.
pub(super) trait Exercise: Sized {
    type Op: Clone + Debug + Send + Serialize + DeserializeOwned;
    type Result: Clone + Debug + Send + Serialize + DeserializeOwned;

    /// Prepares the directory before any thread begins.
    fn prepare(at: &Place) -> Outcome;
    /// Opens what one thread needs.
    fn open(at: &Place, caller: u32) -> Outcome<Self>;
    /// Chooses the next operation.
    fn choose(&mut self, rng: &mut fastrand::Rng) -> Self::Op;
    /// Carries out an operation.
    fn perform(&mut self, op: &Self::Op) -> Outcome<Self::Result>;
    /// Checks that all events can be explained. `places`: the directory on each mount, after the
    /// run.
    fn check(events: &[Event<Self::Op, Self::Result>], places: &[Place]) -> Outcome;
}
