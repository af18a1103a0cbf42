//! A target's disk: its queue, and the few threads that work it off.

use crate::machine::{OpId, Outcome, ReadWork, ServedTarget, Work};
use crate::queue::{Admission, TargetQueue};
use crate::service::Event;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use weir_net::{ConnId, LoopHandle, PooledBuf};
use weir_store::{ReadMode, ReadOutcome, Target};
use weir_types::{Error, ErrorKind, FsUsage, Generation, Result};
use weir_wire::data::ObjectStat;

/// The bulk data of an operation.
#[derive(Debug, Default)]
pub(crate) struct Data {
    /// What was read, or is to be written.
    pub(crate) buf: Option<PooledBuf>,
    /// Its checksums.
    pub(crate) checks: Vec<u32>,
}

/// An operation in the queue.
pub(crate) struct Task {
    pub(crate) op: OpId,
    pub(crate) work: Work,
    pub(crate) data: Data,
    pub(crate) reply_to: LoopHandle<Event>,
}

/// A connection that paused because the queue was full.
struct Paused {
    conn: ConnId,
    resume: LoopHandle<Event>,
}

struct State {
    queue: TargetQueue<Task, Paused>,
    stop: bool,
}

/// What was last known of the space, or what is wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    pub(crate) usage: FsUsage,
    pub(crate) trouble: String,
}

/// One target with its queue.
pub(crate) struct Disk {
    pub(crate) store: Target,
    pub(crate) served: Arc<ServedTarget>,
    state: Mutex<State>,
    changed: Condvar,
    health: Mutex<Health>,
}

impl Disk {
    pub(crate) fn new(store: Target, served: Arc<ServedTarget>, queue_limit: usize) -> Self {
        let state = State { queue: TargetQueue::new(queue_limit), stop: false };
        let disk = Self {
            store,
            served,
            state: Mutex::new(state),
            changed: Condvar::new(),
            health: Mutex::default(),
        };
        disk.check_health();
        disk
    }

    /// Takes a task; `Full` if its connection must pause.
    pub(crate) fn submit(&self, task: Task, conn: ConnId) -> Admission {
        let paused = Paused { conn, resume: task.reply_to.clone() };
        let mut state = self.lock();
        let admission = state.queue.push(task, paused);
        self.note_depth(&state);
        drop(state);
        self.changed.notify_one();
        admission
    }

    /// Ends the threads once the queue is empty.
    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    /// The life of a disk thread.
    pub(crate) fn work_off(&self) {
        while let Some(task) = self.next() {
            let Task { op, work, mut data, reply_to } = task;
            let result = perform(&self.store, work, &mut data);
            reply_to.post(Event::Done { op, result, data });
        }
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            let task = state.queue.pop(|Paused { conn, resume }| resume.post(Event::Resume(conn)));
            if task.is_some() {
                self.note_depth(&state);
                return task;
            }
            if state.stop {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Asks for the space; it may take as long as the disk likes.
    pub(crate) fn check_health(&self) -> Health {
        let health = match self.store.usage() {
            Ok(usage) => Health { usage, trouble: String::new() },
            Err(e) => Health { trouble: e.to_string(), ..self.health() },
        };
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = health.clone();
        health
    }

    /// What the last [`Disk::check_health`] found.
    pub(crate) fn health(&self) -> Health {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_depth(&self, state: &State) {
        self.served.load.queued.store(state.queue.len() as u32, Relaxed);
    }
}

/// Reads from the page cache; `None` if it would have to wait for the disk.
/// Never waits, so the event loop may call it.
///
/// Here it is decided how data gets from the page cache to the socket: copied
/// into a warm buffer and sent from there. On loopback that costs 0.23 CPU s/GB
/// and `sendfile` 0.32, which would also keep the data from being checked
/// before it leaves.
pub(crate) fn read_cached(
    store: &Target,
    work: &ReadWork,
    data: &mut Data,
) -> Option<Result<Outcome>> {
    let object = store.open_object(work.object)?;
    let buf = data.buf.as_deref_mut().unwrap_or_default();
    data.checks.clear();
    match object.read_pieces(&work.pieces, buf, &mut data.checks, ReadMode::Nowait) {
        Ok(ReadOutcome::WouldBlock) => None,
        Ok(ReadOutcome::Done { bytes, object_bytes }) => {
            Some(Ok(finish_read(work, data, bytes, object_bytes)))
        }
        Err(e) => Some(Err(e)),
    }
}

fn finish_read(work: &ReadWork, data: &mut Data, bytes: usize, object_len: u64) -> Outcome {
    if let Some(buf) = &mut data.buf {
        buf.set_len(bytes);
    }
    if work.unchecked {
        data.checks.clear();
    }
    Outcome::Read { bytes: bytes as u64, object_len }
}

/// Does an operation, however long the disk takes.
fn perform(store: &Target, work: Work, data: &mut Data) -> Result<Outcome> {
    match work {
        Work::Read(work) => read(store, &work, data),
        Work::Write { object, pieces, generation, sync } => {
            let object = store.object_or_create(object)?;
            let payload = data.buf.as_deref().unwrap_or_default();
            let object_len = object.write_pieces(&pieces, payload, &data.checks, generation)?;
            if sync {
                object.sync()?;
            }
            Ok(Outcome::Written { object_len })
        }
        Work::Sync { object } => {
            if let Some(object) = store.object(object)? {
                object.sync()?;
            }
            Ok(Outcome::Synced)
        }
        Work::Truncate { object, len, generation } => {
            let object = store.object_or_create(object)?;
            // Never extends: what lies beyond an object reads as zeros anyway.
            let object_len = object.truncate(len.min(object.len()), generation)?;
            Ok(Outcome::Truncated { object_len })
        }
        Work::Stat { object } => {
            let object = store.object(object)?;
            let (len, generation) =
                object.as_ref().map_or((0, Generation(0)), |o| (o.len(), o.generation()));
            Ok(Outcome::Stat(ObjectStat { exists: object.is_some(), len, generation }))
        }
    }
}

fn read(store: &Target, work: &ReadWork, data: &mut Data) -> Result<Outcome> {
    data.checks.clear();
    let Some(object) = store.object(work.object)? else {
        return Ok(finish_read(work, data, 0, 0));
    };
    let mode = if work.locked { ReadMode::Locked } else { ReadMode::Blocking };
    let buf = data.buf.as_deref_mut().unwrap_or_default();
    match object.read_pieces(&work.pieces, buf, &mut data.checks, mode)? {
        ReadOutcome::Done { bytes, object_bytes } => {
            Ok(finish_read(work, data, bytes, object_bytes))
        }
        ReadOutcome::WouldBlock => {
            Err(Error::new(ErrorKind::Internal, "a blocking read did not block"))
        }
    }
}
