//! Events of the metadata server: one thread polls for them, and some threads carry out those that
//! take long.
//!
//! Invariant: recalls of one file are carried out one at a time, in order. No report waits for a
//! recall, neither one of the same file nor for a thread, because a recall waits for calls, and a
//! call may wait for reports.

use crate::client::Inner;
use crate::context::Context;
use crate::core::news::Numbered;
use crate::counters::add;
use crate::session::Joined;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use weir_host::clock;
use weir_host::net::{Interest, Signal, Woken};
use weir_host::sync::{Condvar, Mutex};
use weir_host::thread::{self, JoinHandle};
use weir_net::Wait;
use weir_types::{Error, ErrorKind, FileId, Result, Retry, SessionId};
use weir_wire::lease::{
    AckEventsRequest, Event, EventAck, EventKind, Events, LeaseRange, PollEventsRequest,
};
use weir_wire::meta::{MetaPrefix, ReassertRequest};
use weir_wire::{Header, Request};

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
enum Duty {
    Recalls,
    Reports,
}

/// A queued event.
struct Told {
    which: Numbered,
    what: EventKind,
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

    fn next(&self, duty: Duty) -> Option<(FileId, Told)> {
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

    fn done(&self, duty: Duty, file: FileId) {
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

/// State of the polling thread.
struct Poll {
    conn: Option<(Joined, SessionId)>,
    epoch: u64,
    have: u64,
    /// Acknowledgements of carried-out events that the server does not have yet.
    acks: Vec<EventAck>,
    /// Held by events of an epoch that was over, each with the one under which the server is to
    /// be told. Bounded as the events of one answer.
    late: Vec<(FileId, u64)>,
}

impl Inner {
    /// Polls until the client ends.
    pub(crate) fn poll_events(self: &Arc<Self>) {
        let mut poll = Poll { conn: None, epoch: 0, have: 0, acks: Vec::new(), late: Vec::new() };
        while !self.events.is_stopped() {
            if let Err(error) = self.poll_once(&mut poll)
                && !self.events.is_stopped()
            {
                tracing::debug!("poll for events: {error}");
                if let Some((_, session)) = poll.conn.take()
                    && error.kind == ErrorKind::SessionExpired
                {
                    self.session.forget_session(session);
                }
                self.pause();
            }
        }
    }

    pub(crate) fn pause(&self) {
        match self.events.stop.fd() {
            Some(_) => drop(self.events.stop.wait(Some(PAUSE))),
            None => thread::sleep(PAUSE),
        }
    }

    fn poll_once(self: &Arc<Self>, poll: &mut Poll) -> Result<()> {
        let timeout_ms = self.config.request_timeout_ms;
        let (joined, _) = match &mut poll.conn {
            Some(conn) => conn,
            none => none.insert(self.session.own_connection(&Wait::for_ms(timeout_ms))?),
        };
        if joined.epoch != poll.epoch {
            (poll.epoch, poll.have) = (joined.epoch, 0);
            poll.acks.clear();
            // It was told what is held.
            self.holds_are_heard();
        }
        let sent = clock::since_boot();
        let events = self.exchange_poll(joined, poll.have)?;
        self.session.was_used();
        self.counters.presence.heard(crate::presence::Peer::Metadata);
        add(&self.counters.polls, 1);
        if events.lapsed {
            add(&self.counters.leases_lost, 1);
            tracing::warn!(
                "the metadata server has not heard of this client for too long: everything kept \
                 is given up"
            );
            // The first event is the one that says so.
            let number = events.events.first().map_or(0, |event| event.number);
            self.holdings.lost_all(Numbered { epoch: poll.epoch, number });
            self.holdings.locks.doubt();
        }
        self.reassert_doubtful_locks()?;
        self.holdings.clock.polled(sent, events.lease_ms);
        for event in events.events {
            poll.have = poll.have.max(event.number);
            self.take_event(event, poll);
        }
        // Under a later one it has been told.
        let epoch = self.session.epoch();
        poll.late.retain(|(_, of)| *of == epoch);
        if !poll.late.is_empty() {
            let (files, leases) = (Vec::new(), Vec::new());
            let held = poll.late.iter().map(|(file, _)| *file).collect();
            let request = ReassertRequest { first: false, files, held, leases, last: false };
            self.session.call(&Context::root(), &request)?;
            poll.late.clear();
        }
        if !poll.acks.is_empty() {
            let acks = AckEventsRequest { acks: poll.acks.clone() };
            self.session.call(&Context::root(), &acks)?;
            poll.acks.clear();
            self.holds_are_heard();
        }
        self.wait_for_room();
        Ok(())
    }

    fn exchange_poll(&self, joined: &mut Joined, have: u64) -> Result<Events> {
        let timeout_ms = self.config.request_timeout_ms;
        let Joined { conn, epoch, .. } = joined;
        let prefix = MetaPrefix { caller: Context::root().caller, mutation: None };
        let header = Header::request(PollEventsRequest::OP, conn.next_request_id());
        let wait = Wait::for_ms(timeout_ms);
        conn.send(header, &(&prefix, &PollEventsRequest { have }), &[], &[], &wait)?;
        // The answer may take as long as the server lets a poll wait.
        let longest = self.holdings.clock.lease_ms().unwrap_or_default() + timeout_ms;
        let wait = Wait::for_ms(longest);
        loop {
            if self.events.is_stopped() {
                return Err(ErrorKind::Interrupted.into());
            }
            if wait.expired() {
                return Err(ErrorKind::TimedOut.into());
            }
            // The session may go to another server, and this one never reply.
            if self.session.epoch() != *epoch {
                return Err(ErrorKind::Unreachable.into());
            }
            let interrupted = self.events.stop.fd().is_some();
            let slice = match interrupted && !self.session.has_several_servers() {
                true => wait.remaining(),
                false => SLICE,
            };
            match conn.socket().wait(Interest::READ, slice, self.events.stop.fd()) {
                Ok(Woken::Ready) => break,
                Ok(_) => {}
                Err(e) => {
                    let error = Error::from(std::io::Error::from(e));
                    // A signal ends a wait; it goes on.
                    if error.kind != ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        let wait = Wait::for_ms(timeout_ms);
        let header = conn.recv_answer(&wait)?;
        conn.reply(&header)
    }

    fn take_event(self: &Arc<Self>, event: Event, poll: &mut Poll) {
        add(&self.counters.events, 1);
        let Event { number, what } = event;
        let which = Numbered { epoch: poll.epoch, number };
        let forgotten = self.holdings.kept.lock().obey(which, &what);
        let (duty, file) = match &what {
            EventKind::Recall(LeaseRange { file, .. }) => (Duty::Recalls, *file),
            EventKind::Report { file } => (Duty::Reports, *file),
            EventKind::Name { .. } | EventKind::Attributes { .. } | EventKind::Removal { .. } => {
                let holds = self.obey_above(&what, poll);
                poll.acks.push(EventAck { number, forgotten, unconfirmed: false, holds });
                return;
            }
        };
        self.events.queue.lock().lane(duty).push(file, Told { which, what });
        self.wake_worker(duty);
    }

    /// What the layer above keeps is forgotten; returns whether it holds a file that loses a name,
    /// or would if it did.
    fn obey_above(&self, what: &EventKind, poll: &mut Poll) -> bool {
        let Some(upper) = &self.upper else { return false };
        match what {
            EventKind::Attributes { file } => {
                upper.forget_attributes(*file);
                return upper.knows(*file);
            }
            EventKind::Name { dir, .. } => upper.attributes_change(*dir),
            EventKind::Removal { file } => {
                upper.forget_attributes(*file);
                if upper.holds(*file) {
                    let later = self.holdings.opened.lock().hold(*file, poll.epoch);
                    poll.late.extend(later.map(|epoch| (*file, epoch)));
                    return later.is_none();
                }
            }
            _ => {}
        }
        false
    }

    fn holds_are_heard(&self) {
        self.holdings.opened.lock().unheard.clear();
    }

    fn wake_worker(self: &Arc<Self>, duty: Duty) {
        let mut queue = self.events.queue.lock();
        let stopped = queue.stopped;
        let lane = queue.lane(duty);
        if lane.idle == 0 && lane.threads < duty.most_threads() && !stopped {
            let inner = self.clone();
            match thread::spawn("weir-events", move || inner.work(duty)) {
                Ok(worker) => {
                    lane.threads += 1;
                    queue.workers.push(worker);
                }
                Err(error) => tracing::error!("no thread for events: {error}"),
            }
        }
        drop(queue);
        self.events.changed.notify_all();
    }

    fn wait_for_room(&self) {
        let mut queue = self.events.queue.lock();
        while queue.queued() > MAX_QUEUED && !queue.stopped {
            queue = self.events.changed.wait_timeout(queue, SLICE);
        }
    }

    fn work(&self, duty: Duty) {
        while let Some((file, event)) = self.events.next(duty) {
            self.carry_out(file, &event);
            self.events.done(duty, file);
        }
    }

    /// Acknowledges an event until the server has received it, because another client waits for
    /// that.
    fn acknowledge(&self, file: FileId, number: u64, unconfirmed: bool) {
        let ack = EventAck { number, forgotten: false, unconfirmed, holds: false };
        let request = AckEventsRequest { acks: vec![ack] };
        while let Err(error) = self.session.call(&Context::root(), &request) {
            tracing::warn!("file {file}: could not say that its lease is given up: {error}");
            if error.kind.retry() == Retry::Never || self.events.is_stopped() {
                return;
            }
            self.pause();
        }
    }

    fn carry_out(&self, file: FileId, event: &Told) {
        let mut state = self.open_state(file);
        if let (EventKind::Recall(_), None) = (&event.what, &state) {
            // Before another look: whoever opens it meanwhile, and was given a lease
            // before, either is seen or sees this.
            self.holdings.kept.lock().news.given_up(event.which, file);
            state = self.open_state(file);
        }
        let obeyed = match (&event.what, &state) {
            (EventKind::Recall(lease), Some(state)) => self.recall(state, event.which, lease),
            (EventKind::Report { .. }, Some(state)) => self.report(state),
            _ => {
                // Closed, and perhaps the server does not know: then it need not
                // ask again, and whoever waits finds nobody here.
                self.send_closes();
                true
            }
        };
        let recalled = state.as_ref().filter(|_| matches!(event.what, EventKind::Recall(_)));
        if obeyed {
            let unconfirmed = recalled.is_some_and(|state| state.take_unconfirmed());
            self.acknowledge(file, event.which.number, unconfirmed);
        }
        if let Some(state) = recalled {
            self.end_recall(state);
        }
    }
}
