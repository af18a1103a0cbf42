//! Calls under way, and what became of those that have ended.
//!
//! Invariants: of a queue at most `depth` calls are submitted and not yet reaped; the descriptor is
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

/// Calls that a queue may have under way or unreaped.
pub const WEIR_QUEUE_MOST: u32 = 4096;
/// Threads of a queue: calls that are served at the same time.
const MAX_THREADS: usize = 16;

/// What became of an asynchronous call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_completion_t {
    /// What the caller gave the call.
    pub tag: u64,
    /// What the call returned: bytes, or a negative error.
    pub result: i64,
    /// WEIR_DONE_CALL, or WEIR_DONE_RECALL: `tag` is the handle of a lease that is wanted back.
    pub kind: u32,
    /// The text of an error, with server and target; empty if there is none.
    pub message: [c_char; 256],
}

/// A call has ended.
pub const WEIR_DONE_CALL: u32 = 0;
/// A lease is wanted back, or was lost (`result` is `-EIO`).
pub const WEIR_DONE_RECALL: u32 = 1;

/// A call, as a thread of the queue makes it.
pub(crate) type Job = Box<dyn FnOnce() -> Result<i64> + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<(u64, Job)>,
    done: VecDeque<weir_completion_t>,
    /// Of calls, submitted and not yet reaped.
    taken: usize,
    threads: usize,
    idle: usize,
    ended: bool,
}

pub(crate) struct Queue {
    depth: usize,
    event: OwnedFd,
    // A child of `fork` has no use of it: see `SURVIVES_FORK`.
    state: Mutex<State>,
    changed: Condvar,
}

impl Handled for Queue {
    const KIND: u64 = 4;
    const NAME: &'static str = "queue";
    const SURVIVES_FORK: bool = false;
}

impl Queue {
    /// For so many calls.
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
            // It can only fail if it counts to 2^64.
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
            // It does not block; whatever it counted is reaped.
            let _ = rustix::io::read(&self.event, &mut count);
        }
        reaped
    }

    /// Waits for all that is under way.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        self.changed.notify_all();
        while state.threads > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
