//! Moving commits from memory into redb: one thread that takes a generation of
//! writes at a time.

use crate::directory::Home;
use crate::engine::Sequence;
use crate::overlay::Overlay;
use crate::syncer::{Notify, SyncState};
use crate::tree::{Tree, TreeSnapshot};
use std::sync::Arc;
use std::time::Duration;
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_host::thread::{self, JoinHandle};
use weir_types::{Error, Result};

/// A generation of writes for the tree.
pub(crate) struct Job {
    /// The writes.
    pub overlay: Arc<Overlay>,
    /// The last commit among them.
    pub upto: Sequence,
    /// Name of the log segment that holds the writes; removed after they are in the tree.
    pub retire: String,
    /// The number of the segment that follows.
    pub next_segment: u64,
}

/// At most one job for the thread, and at most one result from it.
#[derive(Default)]
struct Exchange {
    job: Option<Job>,
    applied: Option<Result<TreeSnapshot>>,
    /// No more jobs will come.
    closing: bool,
    /// The thread has ended, or is about to.
    stopped: bool,
}

#[derive(Default)]
struct Shared {
    exchange: Mutex<Exchange>,
    /// Wakes the thread.
    work: Condvar,
    /// Wakes a caller that waits for the result.
    done: Condvar,
}

/// The thread that applies.
pub(crate) struct Applier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle>,
}

impl Applier {
    pub fn start(
        home: Home,
        tree: Arc<Tree>,
        sync: Arc<SyncState>,
        notify: Notify,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let inside = Arc::clone(&shared);
        let run = move || {
            // The same if redb panics: no caller may wait for ever.
            let _stop = StopOnDrop(&inside);
            while let Some(job) = next_job(&inside) {
                let result = apply(&home, &tree, &sync, job);
                let failed = result.is_err();
                if let Err(e) = &result {
                    sync.fail(e.clone());
                }
                inside.exchange.lock().applied = Some(result);
                inside.done.notify_all();
                if failed {
                    return;
                }
                notify();
            }
        };
        let thread = thread::spawn("meta-apply", run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Hands a generation to the thread, which must have finished the previous one.
    pub fn give(&self, job: Job) -> Result<()> {
        let mut exchange = self.shared.exchange.lock();
        if exchange.stopped {
            return Err(stopped());
        }
        exchange.job = Some(job);
        self.shared.work.notify_all();
        Ok(())
    }

    /// The tree with the generation of [`Applier::give`], if it is finished.
    pub fn try_take(&self) -> Option<Result<TreeSnapshot>> {
        let mut exchange = self.shared.exchange.lock();
        let stopped_now = exchange.stopped;
        exchange.applied.take().or_else(|| stopped_now.then(|| Err(stopped())))
    }

    /// As [`Applier::try_take`], but waits for at most `time`.
    pub fn take_within(&self, time: Duration) -> Option<Result<TreeSnapshot>> {
        let start = clock::now();
        let mut exchange = self.shared.exchange.lock();
        while exchange.applied.is_none() && !exchange.stopped {
            let rest = time.saturating_sub(clock::elapsed(start));
            if rest.is_zero() {
                return None;
            }
            exchange = self.shared.done.wait_timeout(exchange, rest);
        }
        drop(exchange);
        self.try_take()
    }

    /// Waits until the generation of [`Applier::give`] is in the tree.
    pub fn take(&self) -> Result<TreeSnapshot> {
        let mut exchange = self.shared.exchange.lock();
        loop {
            if let Some(applied) = exchange.applied.take() {
                return applied;
            }
            if exchange.stopped {
                return Err(stopped());
            }
            exchange = self.shared.done.wait(exchange);
        }
    }
}

impl Drop for Applier {
    fn drop(&mut self) {
        self.shared.exchange.lock().closing = true;
        self.shared.work.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported; there is nothing to add.
            let _ = thread.join();
        }
    }
}

struct StopOnDrop<'a>(&'a Shared);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.exchange.lock().stopped = true;
        self.0.done.notify_all();
    }
}

fn next_job(shared: &Shared) -> Option<Job> {
    let mut exchange = shared.exchange.lock();
    loop {
        if let Some(job) = exchange.job.take() {
            return Some(job);
        }
        if exchange.closing {
            return None;
        }
        exchange = shared.work.wait(exchange);
    }
}

fn stopped() -> Error {
    Error::new(weir_types::ErrorKind::Io, "the thread that commits to tree.redb has stopped")
}

fn apply(home: &Home, tree: &Tree, sync: &SyncState, job: Job) -> Result<TreeSnapshot> {
    // redb must not get ahead of the log: otherwise, after a power cut, the log would lack commits
    // that redb has, and would have no segment that continues after them.
    sync.wait_for_segment(job.next_segment)?;
    tree.apply(&job.overlay, job.upto)?;
    if let Err(error) = home.remove(&job.retire) {
        // Only disk space is lost, until the next start.
        tracing::warn!(%error, "cannot remove an applied log segment");
    }
    home.fill_reserve()?;
    tree.snapshot()
}
