//! Queues of asynchronous calls and of their completions.
//!
//! Invariants: at most `depth` calls of a queue are submitted and not yet reaped. The descriptor is
//! readable exactly while there are completions.

use crate::args::copy_text;
use crate::error::guard;
use crate::handles::Handled;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use std::collections::VecDeque;
use std::ffi::c_char;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_types::{Error, ErrorKind, Result};

/// Maximum depth of a queue: calls that are under way or not reaped.
pub const WEIR_QUEUE_MOST: u32 = 4096;
/// Threads of a queue: maximum number of calls that run at the same time.
const MAX_THREADS: usize = 16;

/// The completion of an asynchronous call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_completion_t {
    /// The tag that the caller gave the call.
    pub tag: u64,
    /// The result of the call: bytes, or a negative error.
    pub result: i64,
    /// WEIR_DONE_CALL, or WEIR_DONE_RECALL: then `tag` is the handle of a recalled lease.
    pub kind: u32,
    /// The text of an error, with server and target; otherwise empty.
    pub message: [c_char; 256],
}

/// Kind of a completion: a call has ended.
pub const WEIR_DONE_CALL: u32 = 0;
/// Kind of a completion: a lease is recalled, or was lost (`result` is `-EIO`).
pub const WEIR_DONE_RECALL: u32 = 1;

/// A call, as a thread of the queue runs it.
pub(crate) type Job = Box<dyn FnOnce() -> Result<i64> + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<(u64, Job)>,
    done: VecDeque<weir_completion_t>,
    /// Number of calls that are submitted and not yet reaped.
    taken: usize,
    threads: usize,
    idle: usize,
    ended: bool,
}

pub(crate) struct Queue {
    depth: usize,
    event: OwnedFd,
    // A child of `fork` cannot use it: see `SURVIVES_FORK`.
    state: Mutex<State>,
    changed: Condvar,
}

impl Handled for Queue {
    const KIND: u64 = 4;
    const NAME: &'static str = "queue";
    const SURVIVES_FORK: bool = false;
}

impl Queue {
    /// A queue of this depth.
    pub(crate) fn new(depth: u32) -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(std::io::Error::from)?;
        let (state, changed) = (Mutex::default(), Condvar::new());
        Ok(Self { depth: depth as usize, event, state, changed })
    }

    /// Readable while there are completions.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn submit(self: &Arc<Self>, tag: u64, job: Job) -> Result<()> {
        let mut state = self.lock();
        if state.ended {
            return Err(Error::new(ErrorKind::BadHandle, "the queue is being closed"));
        }
        if state.taken >= self.depth {
            let text = format!("{} calls are outstanding: reap some", self.depth);
            return Err(Error::new(ErrorKind::Overloaded, text));
        }
        if state.idle <= state.waiting.len() && state.threads < MAX_THREADS.min(self.depth) {
            let queue = self.clone();
            let name = std::thread::Builder::new().name("weir-queue".into());
            match name.spawn(move || queue.work()) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => return Err(error.into()),
                Err(_) => {}
            }
        }
        state.taken += 1;
        state.waiting.push_back((tag, job));
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some((tag, job)) = state.waiting.pop_front() {
                drop(state);
                let mut error = None;
                let result = guard(|| job().inspect_err(|e| error = Some(e.to_string())));
                let message = copy_text(error.as_deref().unwrap_or_default());
                self.complete(weir_completion_t { tag, result, kind: WEIR_DONE_CALL, message });
                state = self.lock();
            } else if state.ended {
                state.threads -= 1;
                self.changed.notify_all();
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    /// Adds a completion.
    pub(crate) fn complete(&self, completion: weir_completion_t) {
        let mut state = self.lock();
        state.done.push_back(completion);
        if state.done.len() == 1 {
            // The write can fail only at a count of 2^64.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
        drop(state);
        self.changed.notify_all();
    }

    pub(crate) fn reap(&self, room: usize, timeout: Option<Duration>) -> Vec<weir_completion_t> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let mut state = self.lock();
        while state.done.is_empty() && !state.ended {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match left {
                Some(left) if left.is_zero() => break,
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
        let n = state.done.len().min(room);
        let reaped: Vec<_> = state.done.drain(..n).collect();
        state.taken -= reaped.iter().filter(|done| done.kind == WEIR_DONE_CALL).count();
        if n > 0 && state.done.is_empty() {
            let mut count = [0; 8];
            // The read does not block, and all counted completions are reaped.
            let _ = rustix::io::read(&self.event, &mut count);
        }
        reaped
    }

    /// Waits until all calls have ended.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        self.changed.notify_all();
        while state.threads > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
