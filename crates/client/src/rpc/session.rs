//! The session with the metadata server: connections, retries, exactly-once.

pub(crate) mod claims;

mod answered;
mod leader;
mod reassert;
mod slots;
mod unsynced;

use self::answered::{Answered, WithAlso, decode_with_also};
use self::claims::Claims;
use self::slots::{SlotGuard, Slots, Urgency};
use self::unsynced::Unsynced;
use crate::config::ClientConfig;
use crate::context::Context;
use crate::core::news::Found;
use crate::counters::{Counters, add};
use crate::presence::Peer;
use crate::rpc::lease_clock::LeaseClock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::{Mutex, MutexGuard};
use weir_net::{Address, BlockingConn, Wait};
use weir_types::{Error, ErrorKind, Result, Retry, SessionId};
use weir_wire::data::PingRequest;
use weir_wire::lease::EndSessionRequest;
use weir_wire::message::Op;
use weir_wire::meta::{MetaPrefix, SyncMetaRequest};
use weir_wire::{Header, Level, Request};

/// The most idle connections.
const MAX_IDLE: usize = 16;
/// Longest pause between two attempts to reach the server.
const MAX_BACKOFF: Duration = Duration::from_millis(500);
/// Pause between two attempts to open a session while no server leads.
const ELECTION: Duration = Duration::from_millis(100);
/// Time that a change is waited for after an interrupt, milliseconds.
const LEARN_MS: u64 = 1_000;

struct State {
    session: SessionId,
    /// How the last connection was protected.
    level: Level,
    /// The run of the server that knows this client's open files.
    instance: Option<u64>,
    /// The boot of its machine: a server on the same boot has forgotten no report.
    boot: Option<u32>,
    /// Idle connections, with the time of their last use.
    idle: Vec<(Instant, Joined)>,
    unsynced: Unsynced,
    last_used: Instant,
    /// When it was looked up for the last time which server leads.
    looked: Option<Instant>,
    /// Incremented whenever session or server are new.
    epoch: u64,
}

/// A connection that belongs to the session.
pub(crate) struct Joined {
    pub(crate) conn: BlockingConn,
    session: SessionId,
    /// The run of the server at its end.
    instance: u64,
    /// The run of session and server that numbers the events.
    pub(crate) epoch: u64,
}

/// An attempt without a reply.
struct Failed {
    error: Error,
    cause: Cause,
}

/// Source of an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The server's reply.
    Answer,
    /// The connection, which may have been closed while it was idle.
    Idle,
    Connection,
}

/// One client's session.
pub(crate) struct MetaSession {
    config: Arc<ClientConfig>,
    /// Whether there are several servers, of which one leads.
    several: bool,
    counters: Arc<Counters>,
    slots: Slots,
    state: Mutex<State>,
    /// Held while open files are reported to a new run of the server.
    reassert: Mutex<()>,
    /// What the server is told of by a new session.
    claims: Arc<dyn Claims>,
    /// The time of this client's leases.
    clock: Arc<LeaseClock>,
    /// Whether there was a first connection. From then on a server that is away is waited for.
    established: AtomicBool,
}

impl MetaSession {
    /// Opens a session. Fails at once if no server listens; if none of those that listen leads yet,
    /// waits for one.
    pub(crate) fn open(
        config: Arc<ClientConfig>,
        counters: Arc<Counters>,
        claims: Arc<dyn Claims>,
        clock: Arc<LeaseClock>,
    ) -> Result<Self> {
        let session = Self {
            several: are_several(&config.metadata),
            slots: Slots::default(),
            state: Mutex::new(State {
                session: SessionId(0),
                level: Level::Args,
                instance: None,
                boot: None,
                idle: Vec::new(),
                unsynced: Unsynced::default(),
                last_used: clock::now(),
                looked: None,
                epoch: 0,
            }),
            reassert: Mutex::new(()),
            claims,
            clock,
            established: AtomicBool::new(false),
            config,
            counters,
        };
        let wait = Wait::for_ms(session.config.connect_timeout_ms);
        let mut told = None;
        let conn = loop {
            match session.connect(&wait) {
                Ok(conn) => break conn,
                Err(error) if error.kind == ErrorKind::NotLeader && !wait.expired() => {
                    told = Some(error);
                    wait.sleep(ELECTION)?;
                }
                // The last answer says more than the end of the wait.
                Err(error) if error.kind == ErrorKind::TimedOut => {
                    return Err(told.unwrap_or(error));
                }
                Err(error) => return Err(error),
            }
        };
        session.put_back(conn);
        session.established.store(true, Relaxed);
        Ok(session)
    }

    /// Id of the session.
    pub(crate) fn id(&self) -> SessionId {
        self.lock().session
    }

    /// How the last connection to the metadata server was protected.
    pub(crate) fn level(&self) -> Level {
        self.lock().level
    }

    /// Incremented when the session or the run of the server changes.
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Sends a request that changes nothing.
    pub(crate) fn call<R: Request>(&self, ctx: &Context, request: &R) -> Result<R::Reply> {
        self.ask(ctx, request).0
    }

    /// As [`MetaSession::call`], and returns what may be cached of the reply, which may be an
    /// error.
    pub(crate) fn ask<R: Request>(&self, ctx: &Context, request: &R) -> (Result<R::Reply>, Found) {
        self.ask_within(ctx, request, self.config.request_timeout_ms)
    }

    /// As [`MetaSession::ask`], within `time_ms`.
    pub(crate) fn ask_within<R: Request>(
        &self,
        ctx: &Context,
        request: &R,
        time_ms: u64,
    ) -> (Result<R::Reply>, Found) {
        let (result, found) = self.exchange(ctx, None, request, time_ms);
        (result.map(|answered| answered.reply), found)
    }

    /// Makes everything durable that was acknowledged before.
    ///
    /// # Errors
    /// `Io` if some of it may have been lost.
    pub(crate) fn sync(&self, ctx: &Context) -> Result<()> {
        let changes = self.lock().unsynced.changes();
        let time_ms = self.config.request_timeout_ms;
        let instance = self.exchange(ctx, None, &SyncMetaRequest {}, time_ms).0?.instance;
        self.lock().unsynced.synced(changes, instance, clock::now())
    }

    /// Number of changes so far, for [`MetaSession::synced_with`].
    pub(crate) fn changes(&self) -> u64 {
        self.lock().unsynced.changes()
    }

    /// As [`MetaSession::sync`], after a change of which the answer, in this epoch, said that it is
    /// durable with all before it. `changes` are those from before it, and it. `None`: the server is
    /// another one since, and has to be asked.
    ///
    /// # Errors
    /// See [`MetaSession::sync`].
    pub(crate) fn synced_with(&self, changes: u64, epoch: u64) -> Option<Result<()>> {
        let mut state = self.lock();
        let instance = state.instance.filter(|_| state.epoch == epoch)?;
        Some(state.unsynced.synced(changes, instance, clock::now()))
    }

    /// Sends a change, which is carried out exactly once.
    pub(crate) fn change<R: Request>(&self, ctx: &Context, request: &R) -> Result<R::Reply> {
        self.alter(ctx, request).0.map(|(reply, _)| reply)
    }

    /// As [`MetaSession::change`], but repeats the request with the same number as long as there is
    /// no reply and `go_on` allows it. For changes that must not be carried out late, after a
    /// second request.
    pub(crate) fn change_at_last<R: Request>(
        &self,
        ctx: &Context,
        request: &R,
        go_on: impl Fn() -> bool,
    ) -> Result<R::Reply> {
        let deadline = clock::now() + Duration::from_millis(self.config.request_timeout_ms);
        let slot = self.slots.take(deadline, Urgency::of(R::OP))?;
        loop {
            let time_ms = self.config.request_timeout_ms;
            match self.exchange(ctx, Some(&slot), request, time_ms).0 {
                Err(error)
                    if error.kind.retry() == Retry::Reconnect
                        && slot.may_be_sent(self.id())
                        && go_on() =>
                {
                    tracing::warn!("metadata server: {error}; asking again");
                }
                result => return result.map(|answered| answered.reply),
            }
        }
    }

    /// As [`MetaSession::change`], and returns what may be cached of the reply, and attributes of
    /// other files and directories that the change has changed, as far as the server tells them.
    pub(crate) fn alter<R: Request>(
        &self,
        ctx: &Context,
        request: &R,
    ) -> (Result<WithAlso<R::Reply>>, Found) {
        let deadline = clock::now() + Duration::from_millis(self.config.request_timeout_ms);
        let slot = match self.slots.take(deadline, Urgency::of(R::OP)) {
            Ok(slot) => slot,
            Err(error) => return (Err(error), Found::default()),
        };
        let time_ms = self.config.request_timeout_ms;
        let (mut result, mut found) = self.exchange(ctx, Some(&slot), request, time_ms);
        let interrupted = |error: &Error| error.kind == ErrorKind::Interrupted;
        if ctx.learns_end && result.as_ref().is_err_and(interrupted) && slot.may_be_sent(self.id())
        {
            // The same change again: it is done once, and its end is told again.
            let patient = Context { interrupt: None, ..ctx.clone() };
            if let (Ok(done), of) = self.exchange(&patient, Some(&slot), request, LEARN_MS) {
                (result, found) = (Ok(done), of);
            }
        }
        (result.map(|answered| (answered.reply, answered.also)), found)
    }

    /// Sends a keepalive and checks that the server is alive. No call waits for it.
    pub(crate) fn ping(&self) -> Result<()> {
        let ctx = Context::root();
        let prefix = MetaPrefix { caller: ctx.caller.clone(), mutation: None };
        let wait = Wait::for_ms(self.config.request_timeout_ms);
        let (result, _) = self.attempt(&ctx, (&prefix, None), &PingRequest {}, &wait);
        let heard = result.map(|_| ()).map_err(|failed| failed.error);
        heard.inspect_err(|error| self.counters.presence.unreachable(Peer::Metadata, error))
    }

    /// Ends the session at the server. If that does not succeed within `time_ms`, the session
    /// expires by itself.
    pub(crate) fn end(&self, time_ms: u64) {
        let ctx = Context::root();
        let prefix = MetaPrefix { caller: ctx.caller.clone(), mutation: None };
        let wait = Wait::for_ms(time_ms);
        if let Err(failed) = self.attempt(&ctx, (&prefix, None), &EndSessionRequest {}, &wait).0 {
            tracing::debug!("the session was not ended at the server: {}", failed.error);
        }
    }

    /// Whether no request was sent for this long.
    pub(crate) fn idle_for(&self, time: Duration) -> bool {
        clock::elapsed(self.lock().last_used) >= time
    }

    fn exchange<R: Request>(
        &self,
        ctx: &Context,
        slot: Option<&SlotGuard<'_>>,
        request: &R,
        time_ms: u64,
    ) -> (Result<Answered<R::Reply>>, Found) {
        let wait = Wait::for_ms(time_ms).interruptible(ctx.interrupt);
        let mutation = slot.map(|slot| slot.mutation);
        let prefix = MetaPrefix { caller: ctx.signer(), mutation };
        let presence = &self.counters.presence;
        let _asking = presence.asking(Peer::Metadata);
        let mut backoff = Duration::from_millis(5);
        let mut last_answer = None;
        loop {
            let (Failed { mut error, cause }, found) =
                match self.attempt(ctx, (&prefix, slot), request, &wait) {
                    (Ok(reply), found) => return (Ok(reply), found),
                    (Err(failed), found) => (failed, found),
                };
            let again = match error.kind.retry() {
                Retry::Reconnect => error.kind != ErrorKind::TimedOut,
                // Descriptors come free when other calls end.
                Retry::Later => {
                    matches!(error.kind, ErrorKind::Overloaded | ErrorKind::TooManyOpen)
                }
                Retry::Refresh => error.kind == ErrorKind::SessionExpired,
                Retry::Never => false,
            };
            if cause == Cause::Answer {
                last_answer = Some(error.to_string());
            } else if let Some(answer) = &last_answer {
                // It says what is to be done, which silence does not.
                error.message = format!("{}; its last answer was: {answer}", error.message);
            }
            presence.unreachable(Peer::Metadata, &error);
            if !again || wait.expired() {
                presence.gave_up(Peer::Metadata, &error);
                return (Err(error), found);
            }
            add(&self.counters.meta_retries, 1);
            // A connection that was closed while it lay idle says nothing
            // about the server: the next attempt is at once.
            if cause != Cause::Idle {
                if let Err(error) = wait.sleep(backoff) {
                    return (Err(error), Found::default());
                }
                backoff = (backoff * 2).min(MAX_BACKOFF);
            }
        }
    }

    /// Makes one attempt.
    fn attempt<R: Request>(
        &self,
        ctx: &Context,
        (prefix, slot): (&MetaPrefix, Option<&SlotGuard<'_>>),
        request: &R,
        wait: &Wait,
    ) -> (std::result::Result<Answered<R::Reply>, Failed>, Found) {
        let pooled = self.take_idle(slot.is_some());
        let cause = if pooled.is_some() { Cause::Idle } else { Cause::Connection };
        let mut joined = match pooled.map_or_else(|| self.connect(wait), Ok) {
            Ok(joined) => joined,
            Err(error) => return (Err(Failed { error, cause }), Found::default()),
        };
        let session = joined.session;
        if slot.is_some_and(|slot| !slot.may_be_sent(session)) {
            self.put_back(joined);
            return (
                Err(Failed { error: may_be_done(), cause: Cause::Connection }),
                Found::default(),
            );
        }
        add(&self.counters.meta_requests, 1);
        let mut header = Header::request(R::OP, joined.conn.next_request_id());
        ctx.sign(&mut header);
        let sent = clock::since_boot();
        let mut given_up = false;
        let answer = joined.conn.send(header, &(prefix, request), &[], &[], wait).and_then(|()| {
            let leads = self.wait_for_leader(&joined, wait);
            given_up = leads.is_err();
            leads.and_then(|()| joined.conn.recv_answer(wait))
        });
        let (result, found) = match answer {
            Ok(header) => {
                add(&self.counters.meta_replies, 1);
                let Joined { conn, epoch, .. } = &mut joined;
                let found = Found { epoch: *epoch, events: header.events(), keep: header.keep };
                let reply = decode_with_also::<R::Reply>(conn, &header);
                (reply, found)
            }
            Err(error) => (Err(error), Found::default()),
        };
        match result {
            Ok((reply, also)) => {
                self.counters.presence.heard(Peer::Metadata);
                self.clock.answered(sent);
                // Which files are open is not kept on a disk.
                let lasting = !matches!(R::OP, Op::Open | Op::Close);
                let change = prefix.mutation.is_some() && lasting;
                let instance = joined.instance;
                self.lock().unsynced.answered(instance, change, clock::now());
                self.put_back(joined);
                (Ok(Answered { reply, instance, also }), found)
            }
            Err(error) if joined.conn.is_usable() && !given_up => {
                self.counters.presence.heard(Peer::Metadata);
                if error.kind == ErrorKind::SessionExpired {
                    self.forget_session(session);
                } else {
                    self.put_back(joined);
                }
                (Err(Failed { error, cause: Cause::Answer }), found)
            }
            Err(error) => {
                slot.into_iter().for_each(|slot| slot.has_no_answer(R::OP, session));
                if error.kind != ErrorKind::Interrupted {
                    // Those that are idle may be as dead.
                    self.lock().idle.clear();
                }
                let name = joined.conn.address().to_string();
                let error = error.context(format!("metadata server {name}"));
                (Err(Failed { error, cause }), found)
            }
        }
    }

    /// Opens a separate connection, for requests that wait long at the server.
    pub(crate) fn own_connection(&self, wait: &Wait) -> Result<(Joined, SessionId)> {
        let joined = self.connect(wait)?;
        Ok((joined, self.id()))
    }

    /// Records that a request was sent on another connection.
    pub(crate) fn was_used(&self) {
        self.lock().last_used = clock::now();
    }

    /// Handles that the server does not know this session (any more).
    pub(crate) fn forget_session(&self, session: SessionId) {
        let mut state = self.lock();
        if state.session != session {
            return;
        }
        self.counters.presence.session_lost();
        state.session = SessionId(0);
        state.instance = None;
        state.idle.clear();
    }

    /// Takes an idle connection. With `alive` it is not one that the server has closed, possibly
    /// with the session. A request on a closed connection never runs, but the client must assume
    /// that it did.
    fn take_idle(&self, alive: bool) -> Option<Joined> {
        let mut state = self.lock();
        state.last_used = clock::now();
        let now = Wait::for_ms(0);
        let is_closed = |joined: &Joined| joined.conn.wait_for_reply(&now).is_ok();
        while let Some((_, joined)) = state.idle.pop() {
            // The one at its other end leads no more.
            if self.has_several_servers() && state.instance != Some(joined.instance) {
                continue;
            }
            if !alive || !is_closed(&joined) {
                return Some(joined);
            }
        }
        None
    }

    fn put_back(&self, conn: Joined) {
        let mut state = self.lock();
        // Of one that has ended meanwhile it is of no use.
        if conn.session == state.session && state.idle.len() < MAX_IDLE {
            state.idle.push((clock::now(), conn));
        }
    }

    /// Closes connections that were idle for longer than `age`, except one. Returns their number.
    pub(crate) fn close_unused(&self, age: Duration) -> usize {
        let mut state = self.lock();
        // The one used last is taken next.
        let rest = state.idle.len().saturating_sub(1);
        let old = state.idle[..rest].iter().take_while(|(used, _)| clock::elapsed(*used) > age);
        let old = old.count();
        let closed: Vec<_> = state.idle.drain(..old).collect();
        drop(state);
        closed.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The error of a change that may have been done: a new session would do it a second time.
fn may_be_done() -> Error {
    let what = "the session ended before there was an answer: whether it was done is not known";
    Error::new(ErrorKind::TimedOut, what)
}

/// Whether these are addresses of several servers. One may have the path of a socket beside its
/// address.
fn are_several(names: &[String]) -> bool {
    let on_network =
        |name: &&String| Address::parse(name).is_ok_and(|address| address.unix_path().is_none());
    names.iter().filter(on_network).count() > 1
}
