//! Events of the metadata server that wait to be carried out.
//!
//! Invariant: recalls of one file are carried out one at a time, in order. No report waits for a
//! recall, neither one of the same file nor for a thread, because a recall waits for calls, and a
//! call may wait for reports.

use crate::core::news::Numbered;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::Duration;
use weir_host::net::Signal;
use weir_host::sync::{Condvar, Mutex};
use weir_host::thread::{self, JoinHandle};
use weir_types::{Error, FileId, Result};
use weir_wire::lease::EventKind;

/// Number of threads for recalls. Each may wait for a data server that is away.
const RECALL_WORKERS: usize = 64;
/// Number of threads for reports.
const REPORT_WORKERS: usize = 4;
/// The most queued events. Beyond it no events are fetched.
const MAX_QUEUED: usize = 65_536;
/// Length of a wait where nothing interrupts it.
const SLICE: Duration = Duration::from_millis(100);
/// Pause between two attempts to reach the server.
const PAUSE: Duration = Duration::from_millis(50);

/// Kind of event that a thread carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    Recalls,
    Reports,
}

/// A queued event.
pub(crate) struct Told {
    pub(crate) which: Numbered,
    pub(crate) what: EventKind,
}

/// Queued events of one kind, for the threads of that kind.
#[derive(Default)]
struct Lane {
    /// Queued events of each file, in order.
    waiting: BTreeMap<FileId, VecDeque<Told>>,
    /// Files with queued events that no thread is working on, in order of arrival.
    ready: VecDeque<FileId>,
    busy: BTreeSet<FileId>,
    queued: usize,
    idle: usize,
    threads: usize,
}

#[derive(Default)]
struct Queue {
    recalls: Lane,
    reports: Lane,
    stopped: bool,
    workers: Vec<JoinHandle>,
}

/// Events that wait to be carried out.
pub(crate) struct EventQueue {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Ends the poll.
    stop: Signal,
}

impl EventQueue {
    pub(crate) fn new() -> Result<Self> {
        let stop = Signal::new().map_err(|e| Error::from(std::io::Error::from(e)))?;
        Ok(Self { queue: Mutex::default(), changed: Condvar::new(), stop })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.queue.lock().stopped
    }

    /// Ends the threads: the poll at once, the others after their present event.
    pub(crate) fn stop(&self) -> Vec<JoinHandle> {
        let mut queue = self.queue.lock();
        queue.stopped = true;
        let workers = std::mem::take(&mut queue.workers);
        drop(queue);
        self.stop.raise();
        self.changed.notify_all();
        workers
    }

    /// What ends a wait of the poll at the end of the client.
    pub(crate) fn ending(&self) -> &Signal {
        &self.stop
    }

    /// Pauses between two attempts to reach the server, at most until the end of the client.
    pub(crate) fn pause(&self) {
        match self.stop.fd() {
            Some(_) => drop(self.stop.wait(Some(PAUSE))),
            None => thread::sleep(PAUSE),
        }
    }

    /// Queues an event of a file, and wakes a thread for it, or begins one with `spawn`.
    pub(crate) fn push(
        &self,
        duty: Duty,
        (file, told): (FileId, Told),
        spawn: impl FnOnce() -> io::Result<JoinHandle>,
    ) {
        let mut queue = self.queue.lock();
        queue.lane(duty).push(file, told);
        let stopped = queue.stopped;
        let lane = queue.lane(duty);
        if lane.idle == 0 && lane.threads < duty.most_threads() && !stopped {
            match spawn() {
                Ok(worker) => {
                    lane.threads += 1;
                    queue.workers.push(worker);
                }
                Err(error) => tracing::error!("no thread for events: {error}"),
            }
        }
        drop(queue);
        self.changed.notify_all();
    }

    /// Waits while too many events are queued.
    pub(crate) fn wait_for_room(&self) {
        let mut queue = self.queue.lock();
        while queue.queued() > MAX_QUEUED && !queue.stopped {
            queue = self.changed.wait_timeout(queue, SLICE);
        }
    }

    /// The next event; `None` at the end of the client.
    pub(crate) fn next(&self, duty: Duty) -> Option<(FileId, Told)> {
        let mut queue = self.queue.lock();
        loop {
            if queue.stopped {
                return None;
            }
            if let Some(next) = queue.lane(duty).pop() {
                return Some(next);
            }
            queue.lane(duty).idle += 1;
            queue = self.changed.wait(queue);
            queue.lane(duty).idle -= 1;
        }
    }

    /// An event was carried out.
    pub(crate) fn done(&self, duty: Duty, file: FileId) {
        self.queue.lock().lane(duty).done(file);
        self.changed.notify_all();
    }
}

impl Duty {
    fn most_threads(self) -> usize {
        match self {
            Duty::Recalls => RECALL_WORKERS,
            Duty::Reports => REPORT_WORKERS,
        }
    }
}

impl Queue {
    fn lane(&mut self, duty: Duty) -> &mut Lane {
        match duty {
            Duty::Recalls => &mut self.recalls,
            Duty::Reports => &mut self.reports,
        }
    }

    fn queued(&self) -> usize {
        self.recalls.queued + self.reports.queued
    }
}

impl Lane {
    fn push(&mut self, file: FileId, event: Told) {
        self.queued += 1;
        let waiting = self.waiting.entry(file).or_default();
        waiting.push_back(event);
        if waiting.len() == 1 && !self.busy.contains(&file) {
            self.ready.push_back(file);
        }
    }

    fn pop(&mut self) -> Option<(FileId, Told)> {
        let file = self.ready.pop_front()?;
        let event = self.waiting.get_mut(&file)?.pop_front()?;
        self.queued -= 1;
        self.busy.insert(file);
        Some((file, event))
    }

    fn done(&mut self, file: FileId) {
        self.busy.remove(&file);
        match self.waiting.get(&file).map(VecDeque::len) {
            Some(0) => drop(self.waiting.remove(&file)),
            Some(_) => self.ready.push_back(file),
            None => {}
        }
    }
}
