//! Data servers: their addresses, tickets and connections.

mod detours;
mod paces;
mod questions;

use crate::config::{ClientConfig, Transport};
use crate::context::Context;
use crate::core::copies::{self, Failure, Purpose, next_copy, no_current_copy};
use crate::core::pace::Paces;
use crate::counters::{Counters, add};
use crate::presence::Peer;
use crate::session::MetaSession;
pub(crate) use detours::Detours;
use detours::Route;
use paces::Asking;
pub(crate) use paces::{Choosable, Choosing, Slot, Waits};
use questions::Questions;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::{Mutex, MutexGuard, RwLock};
use weir_net::{Address, BlockingConn, Wait, Watch, random_bytes};
use weir_types::{
    ColumnIndex, CopyIndex, Epoch, Error, ErrorKind, ObjectId, RequestId, Result, Segment,
    ServerId, SessionId, TargetId,
};
use weir_wire::frame::VERSION;
use weir_wire::handshake::{Attempt, Hello, Identity};
use weir_wire::map::{ClusterMap, ServerEntry, TargetEntry, TargetState};
use weir_wire::meta::{GetMapRequest, GetTicketsRequest};
use weir_wire::ticket::SealedTicket;

/// The most idle connections to each server, if descriptors suffice.
const MAX_IDLE: usize = 64;
/// The most idle connections to each server, if descriptors are scarce.
const MIN_IDLE: usize = 4;
/// Shortest interval between requests for the map because of failures.
const MAP_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of requests for the map while a target in it is not online, without failures.
const MAP_AGE: Duration = Duration::from_secs(5);
/// Longest wait for the map where other copies can be asked without it, milliseconds.
pub(crate) const MAP_WAIT_MS: u64 = 1000;
/// A server that gave no reply is asked again after this time, if other copies do reply,
/// milliseconds.
const DOUBT_MS: u64 = 2000;

/// The idle connections to one server.
#[derive(Debug)]
pub(crate) struct Pool {
    server: ServerId,
    idle: Mutex<Vec<Idle>>,
    /// Number of the present attempt. Connections of older attempts are not used any more.
    attempt: Arc<AtomicU64>,
    max_idle: usize,
    /// Until this time, milliseconds of [`clock::uptime`], the server is asked only if no other
    /// copy can be.
    doubtful_until_ms: AtomicU64,
    route: Route,
}

impl Pool {
    fn is_doubtful(&self) -> bool {
        // As a rule 0: no look at the clock.
        let until_ms = self.doubtful_until_ms.load(Relaxed);
        self.route.is_cut() || until_ms > 0 && clock::uptime().as_millis() < u128::from(until_ms)
    }
}

/// An unused connection.
#[derive(Debug)]
struct Idle {
    /// The session for which it was opened.
    session: SessionId,
    /// The attempt for which it was opened.
    attempt: u64,
    runs: Vec<(TargetId, u64)>,
    /// The copy whose server passes on what is sent on it.
    via: Option<TargetId>,
    conn: BlockingConn,
    since: Duration,
}

/// A change with an outstanding reply on a connection. If the connection is dropped then, it is
/// unknown whether and when the server carries the change out. All later requests go under a new
/// attempt, which ends that uncertainty.
#[derive(Debug)]
struct Owed {
    change: bool,
    attempt: u64,
    newest: Arc<AtomicU64>,
}

impl Drop for Owed {
    fn drop(&mut self) {
        if self.change {
            self.newest.fetch_max(self.attempt + 1, Relaxed);
        }
    }
}

/// A connection in exclusive use. When dropped it is closed; when put back it serves the next call.
#[derive(Debug)]
pub(crate) struct DataConn {
    pub(crate) conn: BlockingConn,
    /// Id of the request with the outstanding reply.
    pub(crate) request_id: RequestId,
    /// The run of each target's disk: while it is the same, nothing that the target confirmed
    /// was lost.
    runs: Vec<(TargetId, u64)>,
    /// The copy whose server passes on what is sent on it.
    pub(crate) via: Option<TargetId>,
    session: SessionId,
    owed: Owed,
    /// Set while it carries a read of one of several copies.
    asking: Option<Asking>,
    pool: Arc<Pool>,
}

impl Pool {
    /// Idle connections of this session on which changes may be sent. (A connection of an earlier
    /// session accepts none of the present capabilities, and one of an earlier attempt accepts no
    /// changes.)
    fn usable(&self, session: SessionId) -> MutexGuard<'_, Vec<Idle>> {
        let (attempt, mut idle) = (self.attempt.load(Relaxed), self.idle.lock());
        idle.retain(|idle| idle.session == session && idle.attempt >= attempt);
        idle
    }
}

impl DataConn {
    fn new(idle: Idle, pool: Arc<Pool>) -> Self {
        let Idle { session, attempt, runs, via, conn, since: _ } = idle;
        let owed = Owed { change: false, attempt, newest: pool.attempt.clone() };
        Self { conn, request_id: RequestId(0), runs, via, session, owed, asking: None, pool }
    }

    /// The run of a target's disk; `None`: its server does not say.
    pub(crate) fn run_of(&self, target: TargetId) -> Option<u64> {
        self.runs.iter().find(|(of, _)| *of == target).map(|(_, run)| *run)
    }

    /// The server at its end.
    pub(crate) fn peer(&self) -> Peer {
        Peer::Data(self.pool.server)
    }

    /// Puts back a connection without outstanding replies.
    pub(crate) fn put_back(self) {
        let mut idle = self.pool.idle.lock();
        if idle.len() < self.pool.max_idle {
            let Self { session, runs, via, conn, owed, .. } = self;
            // Direct ones again as soon as there are any.
            if via.is_none() || self.pool.route.is_cut() {
                let (attempt, since) = (owed.attempt, clock::uptime());
                idle.push(Idle { session, attempt, runs, via, conn, since });
            }
        }
    }

    /// Sets whether the reply to a change is outstanding.
    pub(crate) fn owes_change(&mut self, change: bool) {
        self.owed.change = change;
    }

    /// Adds server and target to an error.
    pub(crate) fn in_context(&self, target: TargetId, error: Error) -> Error {
        let place =
            format!("target {target} on server {} ({})", self.pool.server, self.conn.address());
        error.context(place)
    }
}

#[derive(Debug, Default)]
struct Known {
    map: Option<ClusterMap>,
    targets: BTreeMap<TargetId, Target>,
    pools: BTreeMap<ServerId, Arc<Pool>>,
    /// Attempts outlive the pools, because a server remembers those that it has seen.
    attempts: BTreeMap<ServerId, Arc<AtomicU64>>,
    /// Time of the last request for the map.
    asked: Option<Instant>,
    max_idle: usize,
}

/// A target in the map.
#[derive(Clone, Copy, Debug)]
struct Target {
    server: ServerId,
    state: TargetState,
}

/// All data servers.
pub(crate) struct Servers {
    config: Arc<ClientConfig>,
    counters: Arc<Counters>,
    host: String,
    known: RwLock<Known>,
    tickets: Mutex<BTreeMap<ServerId, SealedTicket>>,
    /// Random number of this client: see [`Attempt`].
    run: u64,
    /// The most connections that may be made before they are needed.
    max_ahead: usize,
    /// Whether it uses files with several copies.
    chooses: AtomicBool,
    /// Whether a target was found in another state than in the map.
    outdated: AtomicBool,
    /// The last used number of staged bytes.
    tickets_used: AtomicU64,
    /// Speeds of the targets.
    paces: Arc<Mutex<Paces>>,
    questions: Questions,
}

impl Servers {
    /// `descriptors` is the number of descriptors that this process may have.
    pub(crate) fn new(
        config: Arc<ClientConfig>,
        counters: Arc<Counters>,
        descriptors: u64,
    ) -> Result<Self> {
        let max_idle = (descriptors / 64).clamp(MIN_IDLE as u64, MAX_IDLE as u64) as usize;
        Ok(Self {
            config,
            counters,
            host: weir_net::host_name(),
            known: RwLock::new(Known { max_idle, ..Known::default() }),
            tickets: Mutex::default(),
            run: u64::from_le_bytes(random_bytes()?),
            max_ahead: (descriptors / 8) as usize,
            chooses: AtomicBool::new(false),
            outdated: AtomicBool::new(false),
            tickets_used: AtomicU64::new(0),
            paces: Arc::default(),
            questions: Questions::default(),
        })
    }

    /// Takes a connection to the server of a target.
    pub(crate) fn take(
        &self,
        session: &MetaSession,
        target: TargetId,
        wait: &Wait,
    ) -> Result<DataConn> {
        self.take_watched(session, target, wait, None, &Detours::none())
    }

    /// As [`Servers::take`], with a watch that may end the wait, and with detours if a direct
    /// connection fails.
    pub(crate) fn take_watched(
        &self,
        session: &MetaSession,
        target: TargetId,
        wait: &Wait,
        watch: Option<Watch<'_>>,
        detours: &Detours<'_>,
    ) -> Result<DataConn> {
        if self.pool(target).is_none() {
            self.refresh_map(session, true, self.within(wait))?;
        }
        let taken = self.take_from_pool(session, target, (wait, watch), detours);
        if taken.as_ref().is_err_and(|e| e.kind != ErrorKind::TooManyOpen)
            // The map may be out of reach just now: the error at hand says more. Often
            // nothing is left of the wait, which says nothing of the metadata server.
            && let Err(e) = self.refresh_map(session, false, MAP_WAIT_MS)
        {
            tracing::debug!("cluster map not refreshed: {e}");
        }
        taken
    }

    /// As [`Servers::take`], with the map as last seen: a caller with another copy to ask does not
    /// wait for a newer map.
    pub(crate) fn take_known(
        &self,
        session: &MetaSession,
        target: TargetId,
        wait: &Wait,
        detours: &Detours<'_>,
    ) -> Result<DataConn> {
        self.take_from_pool(session, target, (wait, None), detours)
    }

    fn take_from_pool(
        &self,
        session: &MetaSession,
        target: TargetId,
        (wait, watch): (&Wait, Option<Watch<'_>>),
        detours: &Detours<'_>,
    ) -> Result<DataConn> {
        let pool = self.pool(target).ok_or_else(|| {
            Error::new(
                ErrorKind::TargetMissing,
                format!("target {target} is not part of the cluster any more"),
            )
        })?;
        let attempt = pool.attempt.load(Relaxed);
        let idle = pool.usable(session.id()).pop();
        if let Some(idle) = idle {
            return Ok(DataConn::new(idle, pool));
        }
        let server = pool.server;
        match self.open(session, &pool, attempt, (wait, watch), detours) {
            Ok(idle) => Ok(DataConn::new(idle, pool)),
            Err(error) => {
                if error.kind == ErrorKind::TooManyOpen {
                    self.close_idle();
                } else {
                    // It may have come back elsewhere, or under new keys.
                    self.tickets.lock().remove(&server);
                }
                Err(error.context(format!("target {target} on server {server}")))
            }
        }
    }

    /// Makes one more connection to the server of a target if fewer than `count` are idle, and if
    /// that many to each server are only a part of this process's descriptors.
    fn connect_ahead(
        &self,
        session: &MetaSession,
        target: TargetId,
        count: usize,
        wait: &Wait,
    ) -> Result<()> {
        let Some(pool) = self.pool(target) else { return Ok(()) };
        let all = count * self.known.read().pools.len();
        // The lock is not kept: what is made is put there.
        let idle = pool.usable(session.id()).len();
        if all <= self.max_ahead && idle < count.min(pool.max_idle) {
            let attempt = pool.attempt.load(Relaxed);
            pool.keep(self.open(session, &pool, attempt, (wait, None), &Detours::none())?);
        }
        Ok(())
    }

    /// Timeout of a request to the metadata server within a wait, milliseconds.
    fn within(&self, wait: &Wait) -> u64 {
        (wait.remaining().as_millis() as u64).min(self.config.request_timeout_ms)
    }

    /// Closes idle connections to a target's server and drops its ticket.
    pub(crate) fn forget(&self, target: TargetId) {
        if let Some(pool) = self.pool(target) {
            pool.idle.lock().clear();
            self.tickets.lock().remove(&pool.server);
        }
    }

    /// Closes all idle connections.
    fn close_idle(&self) {
        let pools: Vec<_> = self.known.read().pools.values().cloned().collect();
        pools.iter().for_each(|pool| pool.idle.lock().clear());
    }

    /// Closes connections that were idle for longer than `age`, except one to each server. Returns
    /// their number.
    pub(crate) fn close_unused(&self, age: Duration) -> usize {
        let pools: Vec<_> = self.known.read().pools.values().cloned().collect();
        let now = clock::uptime();
        let close = |pool: &Arc<Pool>| {
            let mut idle = pool.idle.lock();
            // The one used last is taken next.
            let rest = idle.len().saturating_sub(1);
            let old = idle[..rest].iter().take_while(|idle| now.saturating_sub(idle.since) > age);
            let old = old.count();
            let closed: Vec<Idle> = idle.drain(..old).collect();
            drop(idle);
            closed.len()
        };
        pools.iter().map(close).sum()
    }

    /// The map as last seen.
    pub(crate) fn map(&self, session: &MetaSession) -> Result<ClusterMap> {
        self.refresh_map(session, true, self.config.request_timeout_ms)?;
        let known = self.known.read();
        // A cluster that no data server has joined yet is at epoch 0, and has
        // nothing newer than "none" to tell.
        Ok(known.map.clone().unwrap_or(ClusterMap { epoch: Epoch(0), servers: Vec::new() }))
    }

    /// Requests the map, within `time_ms`. Without `now` it is not requested more often than is
    /// useful.
    pub(crate) fn refresh_map(&self, session: &MetaSession, now: bool, time_ms: u64) -> Result<()> {
        let have = {
            let mut known = self.known.write();
            if !now && known.asked.is_some_and(|at| clock::elapsed(at) < MAP_INTERVAL) {
                return Ok(());
            }
            known.asked = Some(clock::now());
            known.map.as_ref().map_or(Epoch(0), |m| m.epoch)
        };
        let request = GetMapRequest { have };
        if let Some(map) = session.ask_within(&Context::root(), &request, time_ms).0? {
            let mut known = self.known.write();
            known.take_map(map);
            self.paces.lock().retain(|target| known.targets.contains_key(&target));
        }
        Ok(())
    }

    /// Fetches the map before a file is used. Without it each of the first reads would request it,
    /// or find no copy that is known to be online.
    pub(crate) fn is_going_to_be_used(&self, session: &MetaSession) {
        let has_map = self.known.read().map.is_some();
        if !has_map && let Err(error) = self.refresh_map(session, false, MAP_WAIT_MS) {
            tracing::debug!("cluster map not asked for: {error}");
        }
    }

    /// Records that a target was not current although it is in the map. Until the map is renewed,
    /// each read of it takes another round trip.
    pub(crate) fn seems_outdated(&self) {
        self.outdated.store(true, Relaxed);
    }

    /// Requests the map if a server is in doubt, so that its state is known soon. Also requests it
    /// now and then while a server is away, so that the server is used again when it is back.
    pub(crate) fn keep_map(&self, session: &MetaSession) {
        let wanted = {
            let known = self.known.read();
            let old = known.asked.is_some_and(|at| clock::elapsed(at) >= MAP_AGE);
            let away = || known.targets.values().any(|t| !t.state.is_online());
            self.outdated.swap(false, Relaxed)
                || known.pools.values().any(|pool| pool.is_doubtful())
                || self.chooses.load(Relaxed) && old && away()
        };
        if wanted && let Err(error) = self.refresh_map(session, false, MAP_WAIT_MS) {
            tracing::debug!("cluster map not refreshed: {error}");
        }
    }

    /// Epoch of the map as last seen.
    pub(crate) fn epoch(&self) -> Epoch {
        self.known.read().map.as_ref().map_or(Epoch(0), |map| map.epoch)
    }

    /// Periods in which a target was online, according to the map as last seen.
    pub(crate) fn online(&self, target: TargetId) -> Vec<(Epoch, Option<Epoch>)> {
        let known = self.known.read();
        let entry = known.map.as_ref().and_then(|map| map.target(target));
        entry.map_or(Vec::new(), |entry| entry.online().collect())
    }

    /// The epoch since which a target has kept everything that it confirmed, according to the map
    /// as last seen.
    pub(crate) fn anew(&self, target: TargetId) -> Option<Epoch> {
        let known = self.known.read();
        known.map.as_ref().and_then(|map| map.target(target)).map(|entry| entry.anew)
    }

    /// The copy of a column to ask next.
    pub(crate) fn next_copy(
        &self,
        purpose: Purpose,
        segment: &Segment,
        column: ColumnIndex,
        tried: &[CopyIndex],
    ) -> Option<(CopyIndex, TargetId)> {
        let known = self.known.read();
        let chosen = next_copy(purpose, segment, column, tried, |target| known.of(target));
        self.chooses.store(true, Relaxed);
        chosen
    }

    /// Whether a target is online and its server has replied lately.
    pub(crate) fn is_ready(&self, target: TargetId) -> bool {
        let known = self.known.read().of(target);
        known.is_some_and(|known| known.state.is_online() && !known.doubtful)
    }

    /// Whether a target is known not to be online, or its server to have given no reply lately.
    pub(crate) fn is_out(&self, target: TargetId) -> bool {
        let known = self.known.read().of(target);
        let out = known.is_some_and(|known| !known.state.is_online() || known.doubtful);
        if out {
            // So that it is heard of when it is back.
            self.chooses.store(true, Relaxed);
        }
        out
    }

    /// The copy of a column on a target, if it is whole and the target is ready.
    pub(crate) fn ready_copy(
        &self,
        segment: &Segment,
        column: ColumnIndex,
        target: TargetId,
    ) -> Option<(CopyIndex, TargetId)> {
        self.chooses.store(true, Relaxed);
        let mut all = copies::copies_of(segment, column);
        let found = all.find(|(copy, on)| *on == target && !segment.is_filling(column, *copy));
        found.filter(|_| self.is_ready(target))
    }

    /// The targets of servers on this machine, as far as the map is known.
    pub(crate) fn local_targets(&self, map: &ClusterMap) -> Vec<TargetId> {
        let is_here = |entry: &&ServerEntry| !self.host.is_empty() && entry.host == self.host;
        let here = map.servers.iter().filter(is_here);
        here.flat_map(|entry| entry.targets.iter().map(|target| target.target)).collect()
    }

    /// A number for staged bytes that this client has not used.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.tickets_used.fetch_add(1, Relaxed)
    }

    /// The error when no copy of an object's column can be used.
    pub(crate) fn no_current_copy(
        &self,
        object: ObjectId,
        segment: &Segment,
        failures: &[Failure],
    ) -> Error {
        let known = self.known.read();
        let name = |target| known.name(target);
        no_current_copy(object, segment, failures, |target| known.of(target), name)
    }

    /// Records whether the server of a target has replied lately.
    pub(crate) fn doubt(&self, target: TargetId, doubtful: bool) {
        let Some(pool) = self.pool(target) else { return };
        let until_ms = clock::uptime().as_millis() as u64 + DOUBT_MS;
        pool.doubtful_until_ms.store(if doubtful { until_ms } else { 0 }, Relaxed);
        let mut paces = self.paces.lock();
        match doubtful {
            true => paces.silent(target, clock::uptime().as_micros() as u64),
            false => paces.answered(target),
        }
    }

    /// The server of a target, as far as is known.
    pub(crate) fn peer(&self, target: TargetId) -> Option<Peer> {
        self.known.read().targets.get(&target).map(|target| Peer::Data(target.server))
    }

    fn pool(&self, target: TargetId) -> Option<Arc<Pool>> {
        let known = self.known.read();
        known.pools.get(&known.targets.get(&target)?.server).cloned()
    }

    /// Connects to a server. A `detour` is a connection to another server that forwards it.
    fn connect(
        &self,
        session: &MetaSession,
        server: ServerId,
        attempt: u64,
        (wait, watch): (&Wait, Option<Watch<'_>>),
        detour: Option<(TargetId, BlockingConn)>,
    ) -> Result<Idle> {
        let address = {
            let known = self.known.read();
            let entry = known.map.iter().flat_map(|m| &m.servers).find(|s| s.server == server);
            let entry = entry.ok_or_else(|| {
                Error::new(ErrorKind::TargetMissing, format!("server {server} is not in the map"))
            })?;
            self.address_of(entry)?
        };
        let ticket = self.ticket(session, server, self.within(wait))?;
        let key = ticket.open(&self.config.key);
        let of = ticket.ticket.session;
        let hello = Hello {
            version: VERSION,
            session: ticket.ticket.session,
            identity: Identity::Ticket(ticket.ticket, Attempt { run: self.run, number: attempt }),
            nonce: random_bytes()?,
            name: self.config.name.clone(),
            host: self.host.clone(),
        };
        let via = detour.as_ref().map(|(via, _)| *via);
        let connected = match detour {
            None => BlockingConn::connect_watched(&address, key, &hello, wait, watch),
            Some((_, conn)) => conn.go_on_with(&address, key, &hello, wait, watch),
        };
        let (conn, welcome) = connected.map_err(|e| e.context(format!("{address}")))?;
        add(&self.counters.data_connections, 1);
        let (runs, since) = (welcome.runs, clock::uptime());
        Ok(Idle { session: of, attempt, runs, via, conn, since })
    }

    fn address_of(&self, entry: &ServerEntry) -> Result<Address> {
        let local = self.config.transport == Transport::Auto
            && !entry.unix.is_empty()
            && entry.host == self.host
            && is_there(&entry.unix);
        Address::parse(if local { &entry.unix } else { &entry.tcp })
    }

    fn ticket(
        &self,
        session: &MetaSession,
        server: ServerId,
        time_ms: u64,
    ) -> Result<SealedTicket> {
        if let Some(ticket) = self.tickets.lock().get(&server)
            && ticket.ticket.session == session.id()
        {
            return Ok(ticket.clone());
        }
        let request = GetTicketsRequest { servers: vec![server] };
        let tickets = session.ask_within(&Context::root(), &request, time_ms).0;
        let ticket = tickets?.pop().ok_or_else(|| {
            Error::new(ErrorKind::TargetMissing, format!("no ticket for server {server}"))
        })?;
        self.tickets.lock().insert(server, ticket.clone());
        Ok(ticket)
    }
}

/// Whether a path exists.
#[expect(clippy::disallowed_methods, reason = "simulated servers have no Unix sockets")]
fn is_there(path: &str) -> bool {
    std::path::Path::new(path).exists()
}

impl Known {
    fn of(&self, target: TargetId) -> Option<copies::Known> {
        let Target { server, state } = *self.targets.get(&target)?;
        let silent = || self.pools.get(&server).is_some_and(|pool| pool.is_doubtful());
        let doubtful = state == TargetState::Suspect || silent();
        Some(copies::Known { state, doubtful })
    }

    /// Formats a target and its server.
    fn name(&self, target: TargetId) -> String {
        match self.map.as_ref().and_then(|map| map.server_of(target)) {
            Some(entry) => format!("target {target} on server {} ({})", entry.server, entry.host),
            None => format!("target {target}"),
        }
    }

    fn take_map(&mut self, map: ClusterMap) {
        if self.map.as_ref().is_some_and(|old| old.epoch > map.epoch) {
            // Another call was quicker.
            return;
        }
        let target = |(s, t): (&ServerEntry, &TargetEntry)| {
            (t.target, Target { server: s.server, state: t.state })
        };
        self.targets = map.targets().map(target).collect();
        let (mut pools, attempts) = (BTreeMap::new(), &mut self.attempts);
        for entry in &map.servers {
            let moved = self.map.iter().flat_map(|m| &m.servers).any(|old| {
                old.server == entry.server && (&old.tcp, &old.unix) != (&entry.tcp, &entry.unix)
            });
            let kept = self.pools.get(&entry.server).filter(|_| !moved).cloned();
            let fresh = || {
                let attempt = attempts.entry(entry.server).or_default().clone();
                let (server, max_idle) = (entry.server, self.max_idle);
                let (idle, doubtful_until_ms) = (Mutex::default(), AtomicU64::new(0));
                let route = Route::default();
                Arc::new(Pool { server, idle, attempt, max_idle, doubtful_until_ms, route })
            };
            pools.insert(entry.server, kept.unwrap_or_else(fresh));
        }
        self.pools = pools;
        self.map = Some(map);
    }
}
