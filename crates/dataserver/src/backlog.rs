//! A bounded queue in front of threads: those of a disk, or those that copy.

use crate::queue::{Admission, TargetQueue};
use crate::service::Event;
use weir_host::sync::{Condvar, Mutex};
use weir_net::{ConnId, LoopHandle};

/// A connection that paused because the queue was full.
struct Paused {
    conn: ConnId,
    resume: LoopHandle<Event>,
}

struct State<T> {
    queue: TargetQueue<T, Paused>,
    stop: bool,
}

/// What waits for a thread.
pub(crate) struct Backlog<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Backlog<T> {
    /// Connections pause when so many wait.
    pub(crate) fn new(limit: usize) -> Self {
        let state = State { queue: TargetQueue::new(limit), stop: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Takes a task; `Full` if its connection must pause. `note` is told how many
    /// wait now.
    pub(crate) fn submit(
        &self,
        task: T,
        conn: ConnId,
        resume: LoopHandle<Event>,
        note: impl FnOnce(usize),
    ) -> Admission {
        let mut state = self.state.lock();
        let admission = state.queue.push(task, Paused { conn, resume });
        note(state.queue.len());
        drop(state);
        self.changed.notify_one();
        admission
    }

    /// Waits for a task; `None` at the end, when nothing is left.
    pub(crate) fn next(&self, note: impl FnOnce(usize)) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            let task = state.queue.pop(|Paused { conn, resume }| resume.post(Event::Resume(conn)));
            if task.is_some() {
                note(state.queue.len());
                return task;
            }
            if state.stop {
                return None;
            }
            state = self.changed.wait(state);
        }
    }

    /// Ends the threads once the queue is empty.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }
}
