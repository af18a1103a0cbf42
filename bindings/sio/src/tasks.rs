//! Asynchronous operations: a bounded queue, threads that work it off, and handles.
//!
//! An operation is queued, runs, and is done. Its handle then waits to be asked for, and becomes
//! invalid after that.

use crate::core::codes::{Code, Failure, Result};
use crate::core::limits::{MAX_ASYNC_OUTSTANDING, MAX_WORKERS};
use crate::core::table::Table;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(2);

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Bytes transferred.
    pub count: u64,
    /// The error, if it failed.
    pub result: Result<()>,
}

/// The work of a thread for one or several handles. Returns one end for each handle.
pub type Work = Box<dyn FnOnce(&AtomicBool) -> Vec<Ended> + Send>;

struct Task {
    /// Whether it belongs to a collective.
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
    /// Whether idle threads end at once.
    stopped: bool,
}

/// All operations of a process.
pub struct Tasks {
    state: Mutex<State>,
    /// Signalled when an operation is queued.
    queued: Condvar,
    /// Signalled when an operation is done.
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

    /// Reserves a handle for an operation that is not queued yet.
    ///
    /// # Errors
    /// `MaxAsyncOutstandingExceeded`.
    pub fn reserve(&self, collective: bool, cancel: Arc<AtomicBool>) -> Result<u32> {
        let task = Task { collective, cancel, ended: None };
        let full = |_| Failure::from(Code::MaxAsyncOutstandingExceeded);
        self.state().tasks.add(task).map_err(full)
    }

    /// Frees a handle that no caller knows yet.
    pub fn give_back(&self, handle: u32) {
        self.state().tasks.remove(handle);
    }

    /// Queues the work for these handles.
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
                // A running thread will take it.
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

    /// The body of a thread.
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
                    // Frees the file and memory of the operation before its end is reported.
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

    /// The first of these handles whose operation is done, with its position in the list. The
    /// handle becomes invalid. `None` stands for a position without handle.
    ///
    /// # Errors
    /// `InvalidHandle`, also if the list has none; `MixedCollAndAsync`; `IoInProgress` if none is
    /// done and the call does not wait.
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

    /// Requests that these operations end soon.
    ///
    /// # Errors
    /// `InvalidHandle` or `MixedCollAndAsync`; then none is cancelled.
    pub fn cancel(&self, handles: &[Option<u32>]) -> Result<()> {
        let state = self.state();
        check(&state, handles)?;
        for task in handles.iter().flatten().filter_map(|handle| state.tasks.get(*handle)) {
            task.cancel.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Refuses further operations.
    pub fn stop(&self) {
        self.state().stopped = true;
        self.queued.notify_all();
    }

    /// Whether no handle is valid.
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
