//! Making the log durable: one thread, and what it shares with the owner of the
//! engine and with the applier. One sync covers every commit flushed before it.

use crate::engine::Sequence;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_types::{Error, ErrorKind, Result};

/// Called when background work has something for [`crate::Engine::poll`].
pub(crate) type Notify = Arc<dyn Fn() + Send + Sync>;

struct State {
    /// The last commit that is in the log files.
    flushed: Sequence,
    /// The last commit that someone asked to be durable.
    wanted: Sequence,
    /// Complete segments that are not synced yet, in order.
    complete: Vec<Arc<File>>,
    /// The segment that takes appends.
    current: Arc<File>,
    /// Whether the name of `current` may not be durable yet.
    new_name: bool,
    /// When the first commit that is not synced was flushed.
    dirty_since: Option<Instant>,
    closing: bool,
    failure: Option<Error>,
}

/// What the threads of one engine share. The lock is never held across I/O.
pub(crate) struct SyncState {
    state: Mutex<State>,
    /// Wakes the syncer.
    work: Condvar,
    /// Wakes those who wait for it.
    done: Condvar,
    synced: AtomicU64,
    failed: AtomicBool,
    notify: Notify,
}

impl SyncState {
    pub fn new(current: Arc<File>, synced: Sequence, notify: Notify) -> Self {
        let state = State {
            flushed: synced,
            wanted: Sequence::ZERO,
            complete: Vec::new(),
            current,
            new_name: false,
            dirty_since: None,
            closing: false,
            failure: None,
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
            synced: AtomicU64::new(synced.0),
            failed: AtomicBool::new(false),
            notify,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock; if it did, the state would be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last durable commit.
    pub fn synced(&self) -> Sequence {
        Sequence(self.synced.load(Ordering::Acquire))
    }

    /// Fails if anything has failed before.
    pub fn check_sound(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let cause = self.lock().failure.as_ref().map_or_else(String::new, Error::to_string);
        let what = format!("the metadata engine failed earlier, restart the server: {cause}");
        Err(Error::new(ErrorKind::Io, what))
    }

    /// Breaks the engine for good; the first reason is kept.
    pub fn fail(&self, error: Error) {
        tracing::error!(%error, "the metadata engine has failed and takes no more commits");
        self.lock().failure.get_or_insert(error);
        self.failed.store(true, Ordering::Release);
        self.work.notify_all();
        self.done.notify_all();
        (self.notify)();
    }

    /// Tells that the log files hold every commit up to `upto`.
    pub fn flushed(&self, upto: Sequence) {
        let mut state = self.lock();
        state.flushed = upto;
        let first = state.dirty_since.is_none();
        if first {
            state.dirty_since = Some(Instant::now());
        }
        if first || state.wanted > self.synced() {
            self.work.notify_one();
        }
    }

    /// Tells that appends go to a new segment.
    pub fn rotated(&self, next: Arc<File>) {
        let mut state = self.lock();
        let complete = std::mem::replace(&mut state.current, next);
        state.complete.push(complete);
        state.new_name = true;
    }

    /// Asks for a sync as soon as `upto` is flushed.
    pub fn request(&self, upto: Sequence) {
        let mut state = self.lock();
        if upto > state.wanted {
            state.wanted = upto;
            // What is not flushed yet wakes the syncer when it is.
            if state.flushed > self.synced() {
                self.work.notify_one();
            }
        }
    }

    /// Asks for a sync of a flushed commit and waits for it.
    pub fn wait(&self, upto: Sequence) -> Result<()> {
        self.request(upto);
        let mut state = self.lock();
        while self.synced() < upto {
            if let Some(error) = &state.failure {
                return Err(error.clone());
            }
            if state.closing {
                return Err(Error::new(ErrorKind::Interrupted, "the metadata engine is closing"));
            }
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    fn close(&self) {
        self.lock().closing = true;
        self.work.notify_all();
        self.done.notify_all();
    }
}

/// The thread that syncs.
pub(crate) struct Syncer {
    shared: Arc<SyncState>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts it: it syncs `delay` after the first flush, and when asked.
    pub fn start(shared: Arc<SyncState>, dir: PathBuf, delay: Duration) -> std::io::Result<Self> {
        let state = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("meta-sync".into())
            .spawn(move || run(&state, &dir, delay))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// What one sync covers.
struct Batch {
    files: Vec<Arc<File>>,
    new_name: bool,
    upto: Sequence,
}

fn run(shared: &SyncState, dir: &std::path::Path, delay: Duration) {
    while let Some(batch) = next_batch(shared, delay) {
        let sync = || -> std::io::Result<()> {
            // In order, so that what survives a power cut is a prefix.
            for file in &batch.files {
                file.sync_data()?;
            }
            if batch.new_name { crate::directory::sync_directory(dir) } else { Ok(()) }
        };
        if let Err(e) = sync() {
            shared.fail(Error::from(e).context(format!("sync of the log in {}", dir.display())));
            return;
        }
        shared.synced.store(batch.upto.0, Ordering::Release);
        // Taken once, so that no waiter is between its test and its wait.
        drop(shared.lock());
        shared.done.notify_all();
        (shared.notify)();
    }
}

/// Waits until a sync is due. `None`: stop.
fn next_batch(shared: &SyncState, delay: Duration) -> Option<Batch> {
    let mut state = shared.lock();
    loop {
        if state.closing || state.failure.is_some() {
            return None;
        }
        let synced = shared.synced();
        let behind = state.flushed > synced;
        let waited = state.dirty_since.map_or(Duration::ZERO, |since| since.elapsed());
        if behind && (state.wanted > synced || waited >= delay) {
            let mut files = std::mem::take(&mut state.complete);
            files.push(Arc::clone(&state.current));
            state.dirty_since = None;
            let new_name = std::mem::take(&mut state.new_name);
            return Some(Batch { files, new_name, upto: state.flushed });
        }
        state = if behind {
            let rest = delay.saturating_sub(waited);
            let woken = shared.work.wait_timeout(state, rest);
            woken.unwrap_or_else(PoisonError::into_inner).0
        } else {
            shared.work.wait(state).unwrap_or_else(PoisonError::into_inner)
        };
    }
}
