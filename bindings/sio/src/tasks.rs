//! Asynchronous operations: a queue with a bound, threads that work it off, and handles.
//!
//! An operation is queued, runs, and is done; then its handle waits to be asked for, and is dead
//! after that.

use crate::core::codes::{Code, Failure, Result};
use crate::core::limits::{MAX_ASYNC_OUTSTANDING, MAX_WORKERS};
use crate::core::table::Table;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A thread with nothing to do ends after this time.
const IDLE: Duration = Duration::from_secs(2);

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Bytes transferred.
    pub count: u64,
    /// What went wrong.
    pub result: Result<()>,
}

/// What a thread does for one or several handles: as many ends as handles.
pub type Work = Box<dyn FnOnce(&AtomicBool) -> Vec<Ended> + Send>;

struct Task {
    /// It belongs to a collective.
    collective: bool,
    cancel: Arc<AtomicBool>,
    ended: Option<Ended>,
}

struct Job {
    handles: Vec<u32>,
    cancel: Arc<AtomicBool>,
    work: Work,
}

struct State {
    tasks: Table<Task>,
    queue: VecDeque<Job>,
    workers: usize,
    idle: usize,
    /// Threads with nothing to do end at once.
    stopped: bool,
}

/// All operations of a process.
pub struct Tasks {
    state: Mutex<State>,
    /// Something is queued.
    queued: Condvar,
    /// Something is done.
    done: Condvar,
}

impl Default for Tasks {
    fn default() -> Self {
        let tasks = Table::new(MAX_ASYNC_OUTSTANDING);
        let state = State { tasks, queue: VecDeque::new(), workers: 0, idle: 0, stopped: false };
        Self { state: Mutex::new(state), queued: Condvar::new(), done: Condvar::new() }
    }
}

impl Tasks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle for an operation that is not queued yet.
    ///
    /// # Errors
    /// `MaxAsyncOutstandingExceeded`.
    pub fn reserve(&self, collective: bool, cancel: Arc<AtomicBool>) -> Result<u32> {
        let task = Task { collective, cancel, ended: None };
        let full = |_| Failure::from(Code::MaxAsyncOutstandingExceeded);
        self.state().tasks.add(task).map_err(full)
    }

    /// Takes a handle back that nobody knows of.
    pub fn give_back(&self, handle: u32) {
        self.state().tasks.remove(handle);
    }

    /// Queues what is done for these handles.
    pub fn queue(self: &Arc<Self>, handles: Vec<u32>, cancel: Arc<AtomicBool>, work: Work) {
        let mut state = self.state();
        state.queue.push_back(Job { handles, cancel, work });
        if state.idle >= state.queue.len() || state.workers == MAX_WORKERS {
            self.queued.notify_one();
            return;
        }
        state.workers += 1;
        drop(state);
        let tasks = self.clone();
        let started =
            std::thread::Builder::new().name("sio".into()).spawn(move || tasks.work_off());
        if let Err(error) = started {
            let mut state = self.state();
            state.workers -= 1;
            if state.workers > 0 {
                // One that runs will come to it.
                return;
            }
            let why = format!("no thread can be started: {error}");
            let failure = Failure::new(Code::IoFailed, why);
            for job in std::mem::take(&mut state.queue) {
                for handle in job.handles {
                    let ended = Ended { count: 0, result: Err(failure.clone()) };
                    end(&mut state, handle, ended);
                }
            }
            self.done.notify_all();
        }
    }

    /// What a thread does.
    fn work_off(&self) {
        let mut state = self.state();
        loop {
            let Some(job) = state.queue.pop_front() else {
                if state.stopped {
                    state.workers -= 1;
                    return;
                }
                state.idle += 1;
                let waited = self.queued.wait_timeout(state, IDLE);
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = woken;
                state.idle -= 1;
                if timeout.timed_out() && state.queue.is_empty() {
                    state.workers -= 1;
                    return;
                }
                continue;
            };
            drop(state);
            let count = job.handles.len();
            let run = std::panic::AssertUnwindSafe(|| match job.cancel.load(Ordering::Relaxed) {
                true => {
                    // What it holds is free before anybody hears of it.
                    drop(job.work);
                    vec![Ended { count: 0, result: Err(Code::IoCanceled.into()) }; count]
                }
                false => (job.work)(&job.cancel),
            });
            let ends = std::panic::catch_unwind(run).unwrap_or_else(|_| {
                let failure = Failure::new(Code::IoFailed, "internal error: a panic");
                vec![Ended { count: 0, result: Err(failure) }; count]
            });
            state = self.state();
            for (handle, ended) in job.handles.into_iter().zip(ends) {
                end(&mut state, handle, ended);
            }
            self.done.notify_all();
        }
    }

    /// Ends operations that were never queued.
    pub fn end_all(&self, handles: &[u32], ended: &Ended) {
        let mut state = self.state();
        for handle in handles {
            end(&mut state, *handle, ended.clone());
        }
        self.done.notify_all();
    }

    /// The first of these handles whose operation is done, with its place in the list: the handle
    /// is dead then. `None` stands for a place without handle.
    ///
    /// # Errors
    /// `InvalidHandle`, also if there is none in the list; `MixedCollAndAsync`; `IoInProgress` if
    /// none is done and the call does not wait.
    pub fn any_done(&self, handles: &[Option<u32>], waits: bool) -> Result<(usize, Ended)> {
        let mut state = self.state();
        loop {
            check(&state, handles)?;
            let is_done = |handle: &Option<u32>| {
                handle.and_then(|handle| state.tasks.get(handle)).is_some_and(|t| t.ended.is_some())
            };
            if let Some(at) = handles.iter().position(is_done) {
                let task = handles[at].and_then(|handle| state.tasks.remove(handle));
                let ended = task.and_then(|task| task.ended);
                return ended.map(|ended| (at, ended)).ok_or(Code::InvalidHandle.into());
            }
            if !waits {
                return Err(Code::IoInProgress.into());
            }
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Asks that these end soon.
    ///
    /// # Errors
    /// `InvalidHandle` or `MixedCollAndAsync`, and none is cancelled.
    pub fn cancel(&self, handles: &[Option<u32>]) -> Result<()> {
        let state = self.state();
        check(&state, handles)?;
        for task in handles.iter().flatten().filter_map(|handle| state.tasks.get(*handle)) {
            task.cancel.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Nothing is queued any more.
    pub fn stop(&self) {
        self.state().stopped = true;
        self.queued.notify_all();
    }

    /// Whether any handle is alive.
    pub fn is_idle(&self) -> bool {
        self.state().tasks.is_empty()
    }
}

fn end(state: &mut State, handle: u32, ended: Ended) {
    if let Some(task) = state.tasks.get_mut(handle) {
        task.ended = Some(ended);
    }
}

fn check(state: &State, handles: &[Option<u32>]) -> Result<()> {
    let (mut collective, mut other) = (false, false);
    for (at, handle) in handles.iter().enumerate() {
        let Some(handle) = handle else { continue };
        match state.tasks.get(*handle) {
            None => {
                return Err(Failure::new(Code::InvalidHandle, format!("handle {at} of the list")));
            }
            Some(task) if task.collective => collective = true,
            Some(_) => other = true,
        }
    }
    match (collective, other) {
        (true, true) => Err(Code::MixedCollAndAsync.into()),
        (false, false) => Err(Failure::new(Code::InvalidHandle, "the list has no handle")),
        _ => Ok(()),
    }
}
