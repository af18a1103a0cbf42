//! A bounded queue in front of threads: those of a disk, or those that copy.

use super::tasks::Event;
use super::{Admission, Arrival, Order, TargetQueue};
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_net::{ConnId, LoopHandle};
use weir_policy::Micros;

/// A connection that is paused because the queue was full.
struct Paused {
    conn: ConnId,
    resume: LoopHandle<Event>,
}

struct State<O> {
    queue: TargetQueue<O, Paused>,
    stop: bool,
}

/// Tasks that wait for a thread.
pub(crate) struct Backlog<T, O: Order<Item = T> = Arrival<T>> {
    state: Mutex<State<O>>,
    changed: Condvar,
}

impl<T, O: Order<Item = T> + Default> Backlog<T, O> {
    /// Connections pause when `limit` tasks wait.
    pub(crate) fn new(limit: usize) -> Self {
        let state = State { queue: TargetQueue::new(O::default(), limit), stop: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds a task. Returns `Full` if its connection must pause. `note` is called with the number
    /// of waiting tasks.
    pub(crate) fn submit(
        &self,
        task: O::Entry,
        conn: ConnId,
        resume: LoopHandle<Event>,
        note: impl FnOnce(usize),
    ) -> Admission {
        let mut state = self.state.lock();
        let admission = state.queue.push(now(), task, Paused { conn, resume });
        note(state.queue.len());
        drop(state);
        self.changed.notify_one();
        admission
    }

    /// Waits for a task. Returns `None` at the end, when nothing is left.
    pub(crate) fn next(&self, note: impl FnOnce(usize)) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            let task =
                state.queue.pop(now(), |Paused { conn, resume }| resume.post(Event::Resume(conn)));
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

    /// Removes certain tasks out of turn: see [`TargetQueue::take_out`].
    pub(crate) fn take_out(
        &self,
        is_meant: impl Fn(&T) -> bool,
        entry: impl Fn(T) -> O::Entry,
    ) -> Vec<T> {
        let resume = |Paused { conn, resume }: Paused| resume.post(Event::Resume(conn));
        self.state.lock().queue.take_out(now(), is_meant, entry, resume)
    }

    /// Number of waiting tasks.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Ends the threads once the queue is empty.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }
}

fn now() -> Micros {
    clock::uptime().as_micros() as Micros
}
