//! Connects the event loop and the machine. One thread owns both. Replies are held back until their
//! turn was flushed: with a journal that happens in the background, while later turns go on.
//!
//! Once the engine has failed, every change that waits is refused with the reason, no other reply is
//! sent, and the server ends.

use crate::machine::{Answer, MetaMachine, Moment, ParkedTicket, Peer, Reply};
use crate::metrics::{Observer, RequestTimes, Told};
use crate::news::News;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::net::Signal;
use weir_host::plant::{Bug, planted};
use weir_host::sync::Mutex;
use weir_metastore::{Embedded, Engine, Sequence};
use weir_net::{ConnId, Frame, Outbox, Service};
use weir_types::{Encode, Error, ErrorKind, Result, Retry, Timestamp};
use weir_wire::handshake::{Hello, Identity, Welcome};
use weir_wire::message::Op;
use weir_wire::{Header, Key, Level};

/// Background transactions at the end of a turn with such work.
const STEPS_PER_TURN: usize = 8;
/// Without progress of the journal for so long, others get no replies and fall silent.
const STALL: Duration = Duration::from_secs(1);

/// Reports a fatal error from the service to its owner.
#[derive(Debug)]
pub(crate) struct Failure {
    error: Mutex<Option<Error>>,
    /// Raised when there is an error.
    wake: Signal,
}

impl Failure {
    pub(crate) fn new(wake: Signal) -> Self {
        Self { error: Mutex::new(None), wake }
    }

    fn report(&self, error: &Error) {
        let mut first = self.error.lock();
        if first.is_none() {
            tracing::error!("the metadata server stops: {error}");
            *first = Some(error.clone());
        }
        self.wake.raise();
    }

    pub(crate) fn take(&self) -> Option<Error> {
        self.error.lock().take()
    }

    pub(crate) fn wake(&self) -> &Signal {
        &self.wake
    }
}

pub(crate) struct MetaService<E: Engine> {
    machine: MetaMachine<E>,
    start: Instant,
    /// Replies of this turn.
    turn: Vec<(Asked, Reply)>,
    /// Replies of turns that are not flushed yet, each with the last commit of its turn, in order.
    held: VecDeque<(Sequence, Asked, Reply)>,
    /// Whether somebody was welcomed whose session is not flushed yet.
    has_new_session: bool,
    /// Replies that wait for the disk, in order of their commits.
    waiting: VecDeque<(Sequence, Asked, Reply)>,
    /// Requests that wait for other clients; the machine bounds their number.
    parked: BTreeMap<ParkedTicket, Asked>,
    observer: Arc<Observer>,
    failure: Arc<Failure>,
    /// What changes are answered once the engine has failed.
    refusal: Option<Error>,
    /// Whether nothing is answered any more, because another server may lead.
    silent: bool,
    /// Whether background work waits until the next tick because the disk is full.
    work_waits: bool,
    /// While the journal lacks commits: the last one that it has, and since when.
    behind: Option<(Sequence, Instant)>,
}

/// A request.
struct Asked {
    conn: ConnId,
    header: Header,
    arrived: Instant,
    /// Whether it has waited for other clients.
    was_parked: bool,
}

/// An encoded body.
struct Encoded(Vec<u8>);

impl Encode for Encoded {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}

impl<E: Engine> MetaService<E> {
    pub(crate) fn new(
        machine: MetaMachine<E>,
        start: Instant,
        observer: Arc<Observer>,
        failure: Arc<Failure>,
    ) -> Self {
        let (turn, waiting) = (Vec::new(), VecDeque::new());
        Self {
            machine,
            start,
            turn,
            held: VecDeque::new(),
            has_new_session: false,
            waiting,
            parked: BTreeMap::new(),
            observer,
            failure,
            refusal: None,
            silent: false,
            work_waits: false,
            behind: None,
        }
    }

    /// Whether requests are carried out no more.
    fn has_failed(&self) -> bool {
        self.silent || self.refusal.is_some()
    }

    fn has_work(&self) -> bool {
        !self.work_waits && self.machine.has_work()
    }

    /// Refuses the changes that have no reply yet, then reports the error to the owner. Without a
    /// reply each of their callers would wait for a server that does not come back.
    fn fail(&mut self, error: &Error, out: &mut Outbox) {
        let engine = self.machine.engine();
        if engine.is_deposed() || engine.check_lead().is_err() {
            // Whoever leads next knows what became of them. Their senders ask that one.
            self.turn.clear();
            self.held.clear();
            self.waiting.clear();
            self.parked.clear();
            self.silent = true;
            return self.failure.report(error);
        }
        let refusal = refusal(error);
        let turn = self.turn.drain(..).map(|(asked, _)| asked);
        let held = self.held.drain(..).chain(self.waiting.drain(..)).map(|(_, asked, _)| asked);
        let parked = std::mem::take(&mut self.parked).into_values();
        let refused: BTreeSet<ConnId> = turn
            .chain(held)
            .chain(parked)
            .filter_map(|asked| refuse(asked.conn, &asked.header, &refusal, out))
            .collect();
        self.refusal = Some(refusal);
        // The loop ends as soon as its owner knows.
        refused.into_iter().for_each(|conn| out.flush(conn));
        self.failure.report(error);
    }

    fn answer(&mut self, asked: Asked, answer: Answer) {
        match answer {
            Answer::Now(reply) => self.turn.push((asked, reply)),
            Answer::AfterSync(upto, reply) => {
                let engine = self.machine.engine();
                // Nor does it tell of anything that is not in the journal yet.
                let seen = if engine.has_journal() { engine.sequence() } else { upto };
                self.waiting.push_back((upto.max(seen), asked, reply));
            }
            Answer::Parked(ticket) => {
                self.parked.insert(ticket, Asked { was_parked: true, ..asked });
            }
        }
    }

    /// Returns the last commit up to which everything may be answered.
    fn finish_turn(&mut self) -> Result<Sequence> {
        for (ticket, answer) in self.machine.take_ready(now(self.start)) {
            if let Some(asked) = self.parked.remove(&ticket) {
                self.answer(asked, answer);
            }
        }
        if self.has_work() {
            match self.machine.work(STEPS_PER_TURN, now(self.start)) {
                Err(error) if error.kind == ErrorKind::NoSpace => self.work_waits = true,
                other => other?,
            }
        }
        if planted(Bug::AckBeforeAppend) {
            return Ok(self.machine.engine().sequence());
        }
        // A welcome does not wait as replies do.
        match std::mem::take(&mut self.has_new_session) {
            true => self.machine.flush(),
            false => self.machine.begin_flush(),
        }
    }

    fn tick(&mut self) -> Result<()> {
        let stalls = |(_, since)| clock::elapsed(since) >= STALL;
        self.machine.set_stalled(self.behind.is_some_and(stalls));
        self.machine.on_tick(now(self.start))?;
        if planted(Bug::AckBeforeAppend) { self.machine.flush().map(drop) } else { Ok(()) }
    }

    /// Sends the replies of turns up to this commit.
    fn release_flushed(&mut self, flushed: Sequence, out: &mut Outbox) {
        let upto = self.machine.engine().sequence();
        self.behind = match self.behind {
            _ if flushed >= upto => None,
            Some((last, since)) if last == flushed => Some((last, since)),
            _ => Some((flushed, clock::now())),
        };
        while self.held.front().is_some_and(|(upto, ..)| *upto <= flushed) {
            if let Some((_, asked, reply)) = self.held.pop_front() {
                self.observer.times.add(&asked, false);
                send(asked, reply, out);
            }
        }
        let commits_nothing = self.held.back().is_some_and(|(last, ..)| *last == upto);
        let waits = upto > flushed && !(commits_nothing && planted(Bug::ReadBeforeAppend));
        for (asked, reply) in self.turn.drain(..) {
            if waits {
                self.held.push_back((upto, asked, reply));
            } else {
                self.observer.times.add(&asked, false);
                send(asked, reply, out);
            }
        }
    }

    fn release_synced(&mut self, out: &mut Outbox) {
        let synced = self.machine.synced();
        while self.waiting.front().is_some_and(|(upto, ..)| *upto <= synced) {
            if let Some((_, asked, reply)) = self.waiting.pop_front() {
                self.observer.times.add(&asked, true);
                send(asked, reply, out);
            }
        }
    }
}

impl RequestTimes {
    fn add(&self, asked: &Asked, after_sync: bool) {
        let times = match (asked.was_parked, after_sync) {
            (true, _) => &self.parked,
            (false, true) => &self.synced,
            (false, false) => &self.now,
        };
        times.add(clock::elapsed(asked.arrived));
    }
}

fn send(Asked { conn, header, .. }: Asked, reply: Reply, out: &mut Outbox) {
    let header = reply_header(&header, &reply);
    out.reply(conn, header, &Encoded(reply.body), &[], None);
}

fn reply_header(request: &Header, reply: &Reply) -> Header {
    Header::reply_to(request, reply.status).after_events(reply.events, reply.keep)
}

/// The answer to changes after the engine has failed with this error.
fn refusal(error: &Error) -> Error {
    let kind = match error.kind.retry() {
        Retry::Never => error.kind,
        // Nobody is to try again: the server ends.
        _ => ErrorKind::Io,
    };
    let what = "the metadata server cannot use its disk and stops: see to that disk, then run \
                `weir up`";
    Error::new(kind, format!("{what}: {error}"))
}

/// Refuses a change. Other requests get no reply: their senders ask again when the server is back,
/// and an error would tell them that what they hold is gone.
fn refuse(conn: ConnId, request: &Header, refusal: &Error, out: &mut Outbox) -> Option<ConnId> {
    let by_an_administrator = matches!(
        request.op,
        Op::SetClient | Op::SetQuota | Op::SetTarget | Op::RemoveTarget | Op::RemoveServer
    );
    let of_a_file = request.op.is_for_once() || matches!(request.op, Op::Extend | Op::CommitSize);
    if !(of_a_file || by_an_administrator || request.op == Op::SyncMeta) {
        return None;
    }
    let reply = Reply::error(refusal);
    out.reply(conn, reply_header(request, &reply), &Encoded(reply.body), &[], None);
    Some(conn)
}

/// The time, for a process that started at `start`.
pub(crate) fn now(start: Instant) -> Moment {
    let unix = Timestamp(i64::try_from(clock::unix_now().as_nanos()).unwrap_or(i64::MAX));
    let monotonic_ms = u64::try_from(clock::elapsed(start).as_millis()).unwrap_or(u64::MAX);
    Moment { monotonic_ms, unix }
}

impl<E: Engine + Send + 'static> Service for MetaService<E> {
    type Event = News;

    fn key_for(&mut self, hello: &Hello) -> Result<Key> {
        self.machine.engine().check_lead()?;
        self.machine.key_for(hello)
    }

    fn protection(&self) -> Level {
        self.machine.protection()
    }

    fn welcome(&mut self, _conn: ConnId, hello: &Hello) -> Result<Welcome> {
        self.machine.engine().check_lead()?;
        let before = self.machine.engine().sequence();
        let welcome = self.machine.welcome(hello, now(self.start))?;
        self.has_new_session |= self.machine.engine().sequence() > before;
        Ok(welcome)
    }

    fn on_frame(&mut self, frame: Frame<'_>, out: &mut Outbox) {
        if self.silent {
            return;
        }
        if let Some(refusal) = &self.refusal {
            refuse(frame.conn, &frame.header, refusal, out);
            return;
        }
        let peer = match frame.peer.identity {
            Identity::Client(_) => Peer::Client(frame.peer.session),
            Identity::Server(server) => Peer::Server(server),
            Identity::Metadata => Peer::Metadata,
            // Never welcomed.
            Identity::Ticket(..) => return,
        };
        let arrived = clock::now();
        let answer = self.machine.on_request(peer, &frame.header, frame.body, now(self.start));
        let (conn, header) = (frame.conn, frame.header);
        self.answer(Asked { conn, header, arrived, was_parked: false }, answer);
    }

    fn on_event(&mut self, news: News, out: &mut Outbox) {
        match news {
            News::Engine if self.has_failed() => {}
            News::Engine => {
                if let Err(error) = self.machine.poll() {
                    self.fail(&error, out);
                }
            }
            News::Observer => {
                let now = now(self.start);
                let (status, targets) = (self.machine.status(now), self.machine.all_targets(now));
                self.observer.answer(Told { status, targets });
            }
            News::Room(room) => self.machine.set_room(room),
            News::Members(members) => self.machine.set_members(members),
            News::Lead => {}
        }
    }

    fn on_turn_end(&mut self, out: &mut Outbox) {
        if self.has_failed() {
            return;
        }
        match self.finish_turn() {
            Ok(flushed) => self.release_flushed(flushed, out),
            Err(error) => return self.fail(&error, out),
        }
        self.release_synced(out);
        if self.has_work() {
            out.turn_again_soon();
        }
    }

    fn on_tick(&mut self, out: &mut Outbox) {
        if self.has_failed() {
            return;
        }
        self.work_waits = false;
        if let Err(error) = self.tick() {
            // What a tick does can wait; only a broken engine cannot go on.
            self.work_waits = error.kind == ErrorKind::NoSpace;
            match error.kind {
                ErrorKind::Busy | ErrorKind::TooBig | ErrorKind::NoSpace => {
                    tracing::warn!("metadata tick: {error}")
                }
                _ => self.fail(&error, out),
            }
        }
        if self.has_work() {
            out.turn_again_soon();
        }
    }

    fn on_closed(&mut self, conn: ConnId) {
        self.machine.disconnected();
        self.held.retain(|(_, held, _)| held.conn != conn);
        self.waiting.retain(|(_, waiting, _)| waiting.conn != conn);
        let machine = &mut self.machine;
        self.parked.retain(|ticket, parked| {
            if parked.conn == conn {
                machine.dropped(*ticket);
            }
            parked.conn != conn
        });
    }
}

impl<E: Engine> Drop for MetaService<E> {
    fn drop(&mut self) {
        self.machine.end_audit();
        if let Err(error) = self.machine.flush() {
            tracing::warn!("last flush of the metadata: {error}");
        }
    }
}

/// Closes an engine that is handed back, so that nothing is left to replay.
pub(crate) fn close(engine: Embedded) -> Result<()> {
    debug_assert!(engine.sequence() >= engine.synced());
    engine.close()
}
