//! Making the log durable: one thread, and what it shares with the owner of the
//! engine and with the applier. One sync covers every commit flushed before it.

use crate::directory::Home;
use crate::engine::Sequence;
use crate::log::SegmentFile;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_host::sync::{Condvar, Mutex};
use weir_host::thread::JoinHandle;
use weir_host::{clock, thread};
use weir_types::{Error, ErrorKind, Result};

/// Called when background work has something for [`crate::Engine::poll`].
pub(crate) type Notify = Arc<dyn Fn() + Send + Sync>;

struct State {
    /// The last commit that is in the log files.
    flushed: Sequence,
    /// The last commit that a caller wants to be durable.
    wanted: Sequence,
    /// Complete segments that are not synced yet, in order.
    complete: Vec<Arc<SegmentFile>>,
    /// The segment before `current`, which redb may not hold yet.
    previous: Option<Arc<SegmentFile>>,
    /// The segment that takes appends.
    current: Arc<SegmentFile>,
    /// Number of segments that were begun.
    begun: u64,
    /// Number of segments that are durable with their names.
    begun_synced: u64,
    /// Number of durable segments that a caller waits for.
    begun_wanted: u64,
    /// When the first unsynced commit was flushed.
    dirty_since: Option<Instant>,
    closing: bool,
    failure: Option<Error>,
}

/// The state that the threads of one engine share. The lock is never held across I/O.
pub(crate) struct SyncState {
    state: Mutex<State>,
    /// Wakes the syncer.
    work: Condvar,
    /// Wakes callers that wait for a sync.
    done: Condvar,
    synced: AtomicU64,
    failed: AtomicBool,
    notify: Notify,
}

impl SyncState {
    pub fn new(current: Arc<SegmentFile>, synced: Sequence, notify: Notify) -> Self {
        let state = State {
            flushed: synced,
            wanted: Sequence::ZERO,
            complete: Vec::new(),
            previous: None,
            current,
            begun: 0,
            begun_synced: 0,
            begun_wanted: 0,
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

    /// What is called when there is something for [`crate::Engine::poll`].
    pub fn notify(&self) -> Notify {
        Arc::clone(&self.notify)
    }

    /// The last durable commit.
    pub fn synced(&self) -> Sequence {
        Sequence(self.synced.load(Ordering::Acquire))
    }

    /// Fails if background work has failed.
    pub fn check_sound(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let cause = self.state.lock().failure.clone();
        let kind = cause.as_ref().map_or(ErrorKind::Io, |cause| match cause.kind {
            // A lost lead is not a failed disk.
            ErrorKind::Corrupt | ErrorKind::NotLeader => cause.kind,
            _ => ErrorKind::Io,
        });
        let cause = cause.map_or_else(String::new, |cause| cause.to_string());
        let what = format!("the metadata engine failed earlier, restart the server: {cause}");
        Err(Error::new(kind, what))
    }

    /// Stops the engine for good. The first reason is kept.
    pub fn fail(&self, error: Error) {
        if self.failed.load(Ordering::Acquire) {
            return;
        }
        tracing::error!(%error, "the metadata engine has failed and takes no more commits");
        {
            let mut state = self.state.lock();
            state.failure.get_or_insert(error);
            self.failed.store(true, Ordering::Release);
        }
        (self.notify)();
        self.work.notify_all();
        self.done.notify_all();
    }

    /// Notes that the log files hold every commit up to `upto`.
    pub fn flushed(&self, upto: Sequence) {
        let mut state = self.state.lock();
        state.flushed = upto;
        let first = state.dirty_since.is_none();
        if first {
            state.dirty_since = Some(clock::now());
        }
        if first || state.wanted > self.synced() {
            self.work.notify_one();
        }
    }

    /// Notes that appends go to a new segment. Returns its number.
    pub fn rotated(&self, next: Arc<SegmentFile>) -> u64 {
        let mut state = self.state.lock();
        let complete = std::mem::replace(&mut state.current, next);
        state.previous = Some(Arc::clone(&complete));
        state.complete.push(complete);
        state.begun += 1;
        state.begun
    }

    /// Asks for a sync as soon as `upto` is flushed.
    pub fn request(&self, upto: Sequence) {
        let mut state = self.state.lock();
        if upto > state.wanted {
            state.wanted = upto;
            // A commit that is not flushed yet wakes the syncer when it is flushed.
            if state.flushed > self.synced() {
                self.work.notify_one();
            }
        }
    }

    /// Asks for a sync of a flushed commit and waits for it.
    pub fn wait(&self, upto: Sequence) -> Result<()> {
        self.request(upto);
        self.wait_until(|_| self.synced() >= upto)
    }

    /// Waits until a segment is durable with its name, and so every commit before it. Only the
    /// syncer syncs the log: of two threads, one would take the error of a failed sync away from
    /// the other.
    pub fn wait_for_segment(&self, number: u64) -> Result<()> {
        {
            let mut state = self.state.lock();
            state.begun_wanted = state.begun_wanted.max(number);
            self.work.notify_one();
        }
        self.wait_until(|state| state.begun_synced >= number)
    }

    fn wait_until(&self, reached: impl Fn(&State) -> bool) -> Result<()> {
        let mut state = self.state.lock();
        while !reached(&state) {
            if let Some(error) = &state.failure {
                return Err(error.clone());
            }
            if state.closing {
                return Err(Error::new(ErrorKind::Interrupted, "the metadata engine is closing"));
            }
            state = self.done.wait(state);
        }
        Ok(())
    }

    fn close(&self) {
        self.state.lock().closing = true;
        self.work.notify_all();
        self.done.notify_all();
    }
}

/// The thread that syncs.
pub(crate) struct Syncer {
    shared: Arc<SyncState>,
    thread: Option<JoinHandle>,
}

impl Syncer {
    /// Starts the thread. It syncs `delay` after the first flush, and on request.
    pub fn start(shared: Arc<SyncState>, home: Home, delay: Duration) -> std::io::Result<Self> {
        let state = Arc::clone(&shared);
        let thread = thread::spawn("meta-sync", move || run(&state, &home, delay))?;
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

/// The files and commits of one sync.
struct Batch {
    complete: Vec<Arc<SegmentFile>>,
    previous: Option<Arc<SegmentFile>>,
    current: Arc<SegmentFile>,
    /// Whether the name of `current` may not be durable yet.
    new_name: bool,
    begun: u64,
    upto: Sequence,
}

impl Batch {
    fn sync(&self, home: &Home) -> Result<()> {
        let log = |e: rustix::io::Errno| {
            let what = format!("sync of the log in {}", home.path().display());
            Error::from(std::io::Error::from(e)).context(what)
        };
        // In order, so that what survives a power cut is a prefix.
        for file in self.complete.iter().chain([&self.current]) {
            file.sync("meta-log").map_err(log)?;
        }
        if self.new_name {
            home.sync("meta-log-name")?;
        }
        // The next open must notice if the end of the log, or its whole last segment, is missing.
        for file in self.previous.iter().chain([&self.current]) {
            file.mark_synced(self.upto).map_err(log)?;
        }
        Ok(())
    }
}

fn run(shared: &SyncState, home: &Home, delay: Duration) {
    while let Some(batch) = next_batch(shared, delay) {
        if let Err(e) = batch.sync(home) {
            shared.fail(e);
            return;
        }
        shared.synced.store(batch.upto.0, Ordering::Release);
        (shared.notify)();
        // Under the lock, so that no waiter is between its test and its wait.
        shared.state.lock().begun_synced = batch.begun;
        shared.done.notify_all();
    }
}

/// Waits until a sync is due. `None`: stop.
fn next_batch(shared: &SyncState, delay: Duration) -> Option<Batch> {
    let mut state = shared.state.lock();
    loop {
        if state.closing || state.failure.is_some() {
            return None;
        }
        let synced = shared.synced();
        let behind = state.flushed > synced;
        let waited = state.dirty_since.map_or(Duration::ZERO, clock::elapsed);
        let due = behind && (state.wanted > synced || waited >= delay);
        if due || state.begun_wanted > state.begun_synced {
            state.dirty_since = None;
            return Some(Batch {
                complete: std::mem::take(&mut state.complete),
                previous: state.previous.clone(),
                current: Arc::clone(&state.current),
                new_name: state.begun > state.begun_synced,
                begun: state.begun,
                upto: state.flushed,
            });
        }
        state = if behind {
            shared.work.wait_timeout(state, delay.saturating_sub(waited))
        } else {
            shared.work.wait(state)
        };
    }
}
