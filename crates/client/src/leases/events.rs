//! Events of the metadata server: one thread polls for them, and some threads carry out those that
//! take long.

use crate::context::Context;
use crate::core::news::Numbered;
use crate::counters::add;
use crate::rpc::session::Joined;
use crate::state::{Duty, Inner, Told};
use std::sync::Arc;
use std::time::Duration;
use weir_host::clock;
use weir_host::net::{Interest, Woken};
use weir_host::thread;
use weir_net::Wait;
use weir_types::{Error, ErrorKind, FileId, Result, Retry, SessionId};
use weir_wire::lease::{
    AckEventsRequest, Event, EventAck, EventKind, Events, LeaseRange, PollEventsRequest,
};
use weir_wire::meta::{MetaPrefix, ReassertRequest};
use weir_wire::{Header, Request};

/// Length of a wait where nothing interrupts it.
const SLICE: Duration = Duration::from_millis(100);

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
                self.events.pause();
            }
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
        self.events.wait_for_room();
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
            let interrupted = self.events.ending().fd().is_some();
            let slice = match interrupted && !self.session.has_several_servers() {
                true => wait.remaining(),
                false => SLICE,
            };
            if conn.has_some() {
                break;
            }
            match conn.socket().wait(Interest::READ, slice, self.events.ending().fd()) {
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
        let spawn = || {
            let inner = self.clone();
            thread::spawn("weir-events", move || inner.work(duty))
        };
        self.events.push(duty, (file, Told { which, what }), spawn);
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
            EventKind::Name { dir, .. } => upper.names_change(*dir),
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
            self.events.pause();
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
