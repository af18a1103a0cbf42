//! A simulated disk: a file system in memory that knows what is durable, fails
//! when it is told to, and can be turned into any state that a power cut may
//! leave. All chance comes from seeds.
//!
//! What it promises is what POSIX and the file systems of Linux promise, and
//! nothing more:
//!
//! - [`sync`](weir_host::fs::File::sync) of a file makes its data and its length
//!   durable as they were when it was called, but not its name.
//! - `sync` of a directory makes the names in it durable, but no data.
//! - A rename is atomic.
//! - After a failed sync the changes it was for are forgotten: they may be
//!   there or not, and no later sync tells.
//!
//! ```
//! use weir_host::fs::{Directory, OpenHow};
//! use weir_simhost::disk::{SimDisk, with_disk};
//!
//! let disk = SimDisk::new(1);
//! with_disk(&disk, 1, || {
//!     let root = Directory::open("/".as_ref()).unwrap();
//!     let file = root.open_file("log", OpenHow::CREATE).unwrap();
//!     file.write_full(b"hello", 0).unwrap();
//!     file.sync("example").unwrap();
//!     root.sync("example-name").unwrap();
//! });
//! for seed in 0..100 {
//!     let image = disk.copy();
//!     image.power_cut(&mut fastrand::Rng::with_seed(seed));
//!     assert_eq!(image.read_file("log").unwrap(), b"hello");
//! }
//! ```

mod content;
mod controls;
mod faults;
mod file_node;
mod handles;
mod latency;
mod machine;
mod power;
mod ranges;
mod rot;
mod state;
#[cfg(test)]
mod tests;

pub use faults::Operation;
pub use machine::{DiskMachine, with_disk};

use state::State;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_host::simulated;

/// A simulated disk. Clones share it; [`SimDisk::copy`] makes another one.
///
/// Paths are relative to its root: `a/b`, without `.` and `..`.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk with 1 TiB of room and no faults.
    pub fn new(seed: u64) -> Self {
        Self::from_state(State::new(seed))
    }

    fn from_state(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Never held while anything waits.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its root directory. After a power cut the old one is dead, ask again.
    pub fn root(&self) -> Arc<dyn simulated::Directory> {
        let boot = self.state().boot;
        Arc::new(handles::DirectoryHandle { disk: self.clone(), inode: state::ROOT, boot })
    }

    /// Another disk that is the same now: what processes see, what is durable
    /// and the changes in between, faults too. Nobody has anything on it open
    /// or locked. Contents are shared until one of them changes.
    pub fn copy(&self) -> Self {
        let mut state = self.state().clone();
        state.close_all();
        Self::from_state(state)
    }

    /// The power fails and comes back: turns the disk into a state that a
    /// power cut may leave now, by `rng`. Open files and directories are dead
    /// (`IO`), locks are free, a disk that stopped works again; other faults
    /// stay.
    pub fn power_cut(&self, rng: &mut fastrand::Rng) {
        let mut state = self.state();
        power::cut(&mut state, rng);
        state.faults.frozen = false;
        state.faults.crash_in = None;
    }

    /// How many in eight power cuts lose changes of names in one directory out
    /// of order, so that only each single name keeps its order (POSIX promises
    /// no more); in the others the first few of a directory last. 2 of 8 at
    /// first.
    pub fn set_loose_names(&self, of_8: u8) {
        self.state().loose_names_of_8 = of_8;
    }

    /// Empties it and frees its memory. Handles are dead.
    pub fn wipe(&self) {
        self.state().clear();
    }

    /// Frees the locks of a process that died.
    pub fn release_locks(&self, process: u64) {
        self.state().locks.retain(|_, (owner, _)| *owner != process);
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimDisk")
    }
}
