//! A model of the metadata engine in a machine. It survives the process, loses unsynced changes at
//! a power cut, and has occasional conflicts with other writers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_metaserver::Notify;
use weir_metastore::{
    Commit, CommitOutcome, Engine, Injection, Key, ModelEngine, Sequence, Snapshot, Versioned,
};
use weir_types::Result;

/// The contents of an engine, shared by its processes.
#[derive(Clone)]
pub struct SharedModel {
    state: Arc<Mutex<Contents>>,
}

struct Contents {
    engine: ModelEngine,
    rng: fastrand::Rng,
    conflict_ppm: u32,
}

/// The engine of one process.
pub struct RunningModel {
    model: SharedModel,
    notify: Option<Notify>,
}

impl SharedModel {
    /// An empty engine.
    pub fn new(seed: u64, conflict_ppm: u32) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        let contents = Contents { engine: ModelEngine::new(), rng, conflict_ppm };
        Self { state: Arc::new(Mutex::new(contents)) }
    }

    /// Opens the engine for a process. It calls `notify` when it wants to be polled.
    pub fn open(&self, notify: Option<Notify>) -> RunningModel {
        RunningModel { model: self.clone(), notify }
    }

    /// Undoes what is not durable.
    pub fn power_cut(&self) {
        self.lock().engine.power_cut();
    }

    // Never held while a simulated thread waits.
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for RunningModel {
    fn sequence(&self) -> Sequence {
        self.model.lock().engine.sequence()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        self.model.lock().engine.get(key)
    }

    fn range(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Key, Versioned)>> {
        self.model.lock().engine.range(start, end, limit)
    }

    fn commit(&mut self, commit: Commit) -> Result<CommitOutcome> {
        let mut contents = self.model.lock();
        let Contents { engine, rng, conflict_ppm } = &mut *contents;
        if !commit.writes.is_empty() && rng.u32(0..1_000_000) < *conflict_ppm {
            engine.inject(Injection::Conflict);
        }
        engine.commit(commit)
    }

    fn flush(&mut self) -> Result<Sequence> {
        self.model.lock().engine.flush()
    }

    fn request_sync(&mut self, upto: Sequence) {
        self.model.lock().engine.request_sync(upto);
        if let Some(notify) = &self.notify {
            notify();
        }
    }

    fn synced(&self) -> Sequence {
        self.model.lock().engine.synced()
    }

    /// Everything becomes durable about once a second.
    fn poll(&mut self) -> Result<()> {
        let mut contents = self.model.lock();
        let all = contents.engine.sequence();
        contents.engine.request_sync(all);
        contents.engine.poll()
    }

    fn sync(&mut self) -> Result<()> {
        self.model.lock().engine.sync()
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.model.lock().engine.snapshot()
    }
}
