//! Appends to the journal, in a thread of its own, so that its owner goes on meanwhile.
//!
//! Invariants
//! - One append is under way at a time, and batches go in order: each is appended behind the one
//!   before it. After a failure nothing more is appended.
//! - What waits becomes one batch: the owner lets no more wait than a batch may have.
//!
//! What arrives while an append is under way waits for its end, and then a little longer for the
//! requests of those whose replies that end has released. So a group of callers shares an append.

use crate::engine::Sequence;
use crate::journal::{Batch, Journal, MAX_BATCH_BYTES};
use crate::syncer::Notify;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_host::thread::{self, JoinHandle};
use weir_types::{Error, ErrorKind, Result};

/// The longest wait for more commits, as a part of the duration of the append before.
const GATHER_SHARE: u32 = 4;
/// The longest wait for more commits.
const MAX_GATHER: Duration = Duration::from_millis(5);

struct State {
    /// Records that are not being appended yet.
    waiting: Vec<u8>,
    /// The last record among `waiting`, or that was taken from there.
    given: Sequence,
    /// The last record that was taken from `waiting`.
    taken: Sequence,
    /// The last record that is in the journal.
    published: Sequence,
    /// Whether the owner waits for everything.
    urgent: bool,
    closing: bool,
    failure: Option<Error>,
}

struct Shared {
    journal: Arc<dyn Journal>,
    state: Mutex<State>,
    /// Wakes the thread.
    work: Condvar,
    /// Wakes the owner.
    done: Condvar,
}

/// The thread that appends. Dropping this waits for the append that is under way, which is bounded,
/// and gives up what waits.
pub(super) struct Publisher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle>,
}

impl Publisher {
    /// Starts the thread, for a journal that ends with `head`. `notify` is called after each append,
    /// and after a failure.
    pub fn start(journal: Arc<dyn Journal>, head: Sequence, notify: Notify) -> Result<Self> {
        let state = State {
            waiting: Vec::new(),
            given: head,
            taken: head,
            published: head,
            urgent: false,
            closing: false,
            failure: None,
        };
        let (work, done) = (Condvar::default(), Condvar::default());
        let shared = Arc::new(Shared { journal, state: Mutex::new(state), work, done });
        let inside = Arc::clone(&shared);
        let run = move || {
            // The same if an append panics: the owner must not wait for ever.
            let _stop = StopOnDrop(&inside);
            run(&inside, &notify);
        };
        let thread = thread::spawn("meta-publish", run);
        let thread =
            thread.map_err(|e| Error::from(e).context("start a metadata engine thread"))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Hands over records, of which `last` is the last one.
    pub fn give(&self, records: &[u8], last: Sequence) {
        let mut state = self.shared.state.lock();
        state.waiting.extend_from_slice(records);
        debug_assert!(state.waiting.len() <= MAX_BATCH_BYTES);
        state.given = last;
        self.shared.work.notify_one();
    }

    /// The last record that is in the journal. Fails after a failed append.
    pub fn published(&self) -> Result<Sequence> {
        let state = self.shared.state.lock();
        state.failure.clone().map_or(Ok(state.published), Err)
    }

    /// Waits until everything that was handed over is in the journal.
    pub fn wait(&self) -> Result<Sequence> {
        let mut state = self.shared.state.lock();
        while state.published < state.given {
            if let Some(error) = &state.failure {
                return Err(error.clone());
            }
            state.urgent = true;
            self.shared.work.notify_one();
            state = self.shared.done.wait(state);
        }
        Ok(state.published)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.shared.state.lock().closing = true;
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
        let ended =
            || Error::new(ErrorKind::Io, "the thread that appends to the journal has ended");
        self.0.state.lock().failure.get_or_insert_with(ended);
        self.0.done.notify_all();
    }
}

/// How long to wait for more commits before an append.
#[derive(Default)]
struct Gathering {
    /// When the append before has ended; `None` before the first one.
    since: Option<Instant>,
    /// As many commits are enough.
    enough: u64,
    patience: Duration,
}

impl Gathering {
    /// After an append of `done` commits that took so long, while `waiting` others have come.
    fn next(done: u64, waiting: u64, took: Duration) -> Self {
        // Nearly all callers of before, who either wait or have just got their replies.
        let enough = (done + waiting) / 8 * 7;
        Self { since: Some(clock::now()), enough, patience: MAX_GATHER.min(took / GATHER_SHARE) }
    }

    /// The rest of the wait, with so many commits.
    fn rest(&self, waiting: u64) -> Duration {
        match self.since {
            Some(since) if waiting < self.enough => {
                self.patience.saturating_sub(clock::elapsed(since))
            }
            _ => Duration::ZERO,
        }
    }
}

fn run(shared: &Shared, notify: &Notify) {
    let mut gathering = Gathering::default();
    while let Some((previous, batch)) = next_batch(shared, &gathering) {
        let begun = clock::now();
        let appended =
            shared.journal.check().and_then(|()| shared.journal.append(previous, &batch));
        {
            let mut state = shared.state.lock();
            let failed = appended.is_err();
            match appended {
                Ok(()) => state.published = batch.last,
                Err(error) => state.failure = Some(error),
            }
            if failed {
                drop(state);
                notify();
                return;
            }
            let [done, waiting] = [batch.last.0 - previous.0, state.given.0 - batch.last.0];
            gathering = Gathering::next(done, waiting, clock::elapsed(begun));
            shared.done.notify_all();
        }
        notify();
    }
}

/// Waits for commits. `None`: stop.
fn next_batch(shared: &Shared, gathering: &Gathering) -> Option<(Sequence, Batch)> {
    let mut state = shared.state.lock();
    loop {
        if state.closing {
            return None;
        }
        let waiting = state.given.0 - state.taken.0;
        if waiting == 0 {
            state.urgent = false;
            state = shared.work.wait(state);
            continue;
        }
        let rest = gathering.rest(waiting);
        if state.urgent || rest.is_zero() {
            let batch = Batch { last: state.given, records: std::mem::take(&mut state.waiting) };
            let previous = std::mem::replace(&mut state.taken, batch.last);
            return Some((previous, batch));
        }
        state = shared.work.wait_timeout(state, rest);
    }
}
