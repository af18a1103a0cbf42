//! The metadata server as a state machine: requests and the time go in, replies come out. It opens
//! no socket and reads no clock. Its one resource is the engine, which the shell (or the simulator)
//! chooses.
//!
//! Invariant: a reply may be sent only after [`MetaMachine::flush`] has returned for the turn in
//! which the reply was made.

mod admin;
mod background;
mod cluster;
mod counters;
mod departures;
mod distrust;
mod execute;
mod export;
mod find_copies;
mod flapping;
mod holders;
mod judge;
mod keep;
mod late;
mod lease_ops;
mod lock_ops;
mod membership;
mod mover;
mod obstacles;
mod quota_ops;
mod registration;
mod restrictions;
mod revoke;
mod room;
mod rotate;
mod servers;
mod sessions;
mod shortfalls;
mod standings;
mod waiting;

pub use counters::Counters;
pub use mover::MoverSettings;
pub use waiting::ParkedTicket;

use crate::keys::WorkingKeys;
use crate::observed::Members;
use crate::open_files::OpenFiles;
use crate::quota::Quotas;
use crate::revoked::Revoked;
use crate::schema::{self, ClientRecord, ClientStanding, FormatRecord, SessionRecord, key};
use crate::signing::Signer;
use background::Background;
use cluster::Cluster;
use execute::Done;
use lease_ops::Leases;
use lock_ops::LockTable;
use mover::Mover;
use sessions::{MAX_SESSIONS, Session, Sessions};
use std::collections::BTreeSet;

use weir_metastore::{Engine, IdAllocator, Sequence, Tx, transact};
use weir_types::codec::Reader;
use weir_types::{
    ClientId, Decode, Encode, Error, ErrorKind, FileId, FsUsage, Result, ServerId, SessionId,
    Timestamp, check_host,
};
use weir_wire::data::ServerStatus;
use weir_wire::handshake::{Hello, Identity, Welcome};
use weir_wire::holders::ListSessionsRequest;
use weir_wire::key::MasterKey;
use weir_wire::lease::{AckEventsRequest, EndSessionRequest, PollEventsRequest};
use weir_wire::lock::TestLockRequest;
use weir_wire::message::{Op, Request};
use weir_wire::meta::{
    AdminCapabilityRequest, CountOpensRequest, ExportMetaRequest, GetMapRequest, GetTicketsRequest,
    ListClientsRequest, MetaPrefix, RebalanceRequest, SetClientRequest, VerifyMetaRequest,
};
use weir_wire::targets::{FreeNumbersRequest, ListTargetsRequest};
use weir_wire::{Header, Key, SealedTicket, Ticket};

/// File ids reserved at a time, more than are used while a reservation becomes durable.
const ID_BLOCK: u64 = 1 << 17;
/// The first file id after the root's.
const FIRST_ID: u64 = 2;
/// A longer time between two ticks (there is one each second) means that the process was stopped.
pub(crate) const LONG_TICK_MS: u64 = 2_000;
/// The most servers in one request for tickets.
const MAX_TICKETS: usize = 4096;

/// Time limits of a metadata server, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A session ends after this time of silence.
    pub session_timeout_ms: u64,
    /// A target is offline after this time of silence.
    pub target_timeout_ms: u64,
    /// Time for clients to report their open files after a start.
    pub grace_ms: u64,
    /// What a session holds may be revoked after this time of silence.
    pub lease_ms: u64,
    /// Validity of capabilities.
    pub capability_ms: u64,
    /// Validity of tickets.
    pub ticket_ms: u64,
    /// Interval of data servers' reports.
    pub heartbeat_ms: u32,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            session_timeout_ms: 30_000,
            // With a second between two looks: missed within less than five.
            target_timeout_ms: 3_750,
            grace_ms: 10_000,
            lease_ms: 10_000,
            capability_ms: 3_600_000,
            ticket_ms: 3_600_000,
            heartbeat_ms: 500,
        }
    }
}

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// For intervals: milliseconds since an arbitrary start.
    pub monotonic_ms: u64,
    /// Wall clock, for users and files.
    pub unix: Timestamp,
}

impl Moment {
    fn unix_ms(self) -> u64 {
        u64::try_from(self.unix.0 / 1_000_000).unwrap_or(0)
    }
}

/// The authenticated sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client, in a session.
    Client(SessionId),
    /// A data server.
    Server(ServerId),
    /// A metadata server that stands by.
    Metadata,
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// `None` for success.
    pub status: Option<ErrorKind>,
    /// The message, or the encoded [`Error`].
    pub body: Vec<u8>,
    /// For clients: number of the session's last event at the time of the reply.
    pub events: u64,
    /// For clients: what may be cached of the reply (the flags in [`weir_wire::lease`]).
    pub keep: u8,
}

impl Reply {
    fn ok(message: &impl Encode) -> Self {
        Self::encoded(None, message.to_bytes())
    }
    pub(crate) fn error(error: &Error) -> Self {
        Self::encoded(Some(error.kind), error.to_bytes())
    }
    fn encoded(status: Option<ErrorKind>, body: Vec<u8>) -> Self {
        Self { status, body, events: 0, keep: 0 }
    }
}

/// How a request is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Send this reply after the flush of this turn.
    Now(Reply),
    /// Send this reply once [`MetaMachine::synced`] has reached this sequence.
    AfterSync(Sequence, Reply),
    /// The request waits for other sessions. [`MetaMachine::take_ready`] returns its reply later.
    Parked(ParkedTicket),
}

impl Answer {
    fn reply_mut(&mut self) -> Option<&mut Reply> {
        match self {
            Answer::Now(reply) | Answer::AfterSync(_, reply) => Some(reply),
            Answer::Parked(_) => None,
        }
    }
}

/// The metadata server.
pub struct MetaMachine<E: Engine> {
    engine: E,
    times: Times,
    format: FormatRecord,
    keys: WorkingKeys,
    signer: Signer,
    revoked: Revoked,
    ids: IdAllocator,
    /// An id taken from `ids` that is not used yet.
    spare_id: Option<u64>,
    sessions: Sessions,
    opens: OpenFiles,
    orphans: BTreeSet<FileId>,
    cluster: Cluster,
    background: Background,
    clients: restrictions::Clients,
    exports: export::Exports,
    counters: Counters,
    leases: Leases,
    table: LockTable,
    mover: Mover,
    quotas: Quotas,
    /// Commit of the present map.
    map_at: Sequence,
    nonces: Key,
    nonce_count: u64,
    instance: u64,
    started_ms: u64,
    /// Space of the metadata's disk; 0 if unknown.
    room: FsUsage,
    /// What the metadata servers hold, if there are several.
    members: Option<Members>,
    last_tick_ms: u64,
    connections: u32,
}

impl<E: Engine> MetaMachine<E> {
    /// Starts on an engine made by [`crate::init::initialize`]. `entropy` is 32 fresh random bytes.
    ///
    /// # Errors
    /// `NotFound` (the engine is empty: not initialised), `AuthFailed` (the master key is another
    /// cluster's), and those of the engine.
    pub fn open(
        mut engine: E,
        times: Times,
        master: MasterKey,
        entropy: [u8; 32],
        now: Moment,
    ) -> Result<Self> {
        let (format, age) = crate::init::check_format(&engine, &master)?;
        crate::init::upgrade(&mut engine, &format, age)?;
        let mut ids = IdAllocator::open(&mut engine, key::IDS, FIRST_ID, ID_BLOCK)?;
        let entropy = Key::from_bytes(entropy);
        let cluster = Cluster::load(&engine, now.monotonic_ms)?;
        let keys = rotate::load(&engine)?;
        let mut signer = Signer::new(master, keys.generation(), times.capability_ms);
        signer.prepare(cluster.view.targets.iter().map(|t| t.target));
        let lasts_ms = times.capability_ms.max(times.ticket_ms);
        let (revoked, number) = revoke::load(&mut engine, &mut ids, lasts_ms, now)?;
        signer.revoked(number);
        let mut machine = Self {
            times,
            format,
            keys,
            signer,
            revoked,
            ids,
            spare_id: None,
            sessions: Sessions::default(),
            opens: OpenFiles::new(true),
            orphans: BTreeSet::new(),
            cluster,
            background: Background::default(),
            clients: restrictions::Clients::load(&engine)?,
            exports: export::Exports::default(),
            counters: Counters::default(),
            leases: Leases::default(),
            table: LockTable::default(),
            mover: Mover::new(now),
            quotas: Quotas::load(&engine)?,
            map_at: engine.sequence(),
            instance: u64::from_le_bytes(first_eight(&entropy.mac("weir 1 instance", &[]).0)),
            nonces: entropy,
            nonce_count: 0,
            started_ms: now.monotonic_ms,
            room: FsUsage::default(),
            members: None,
            last_tick_ms: now.monotonic_ms,
            connections: 0,
            engine,
        };
        machine.load(now)?;
        Ok(machine)
    }

    /// The key that a peer has to know, or why it has none.
    ///
    /// # Errors
    /// `AuthFailed`, `SessionExpired`.
    pub fn key_for(&self, hello: &Hello) -> Result<Key> {
        match &hello.identity {
            Identity::Client(client) => {
                if self.standing(*client)? == ClientStanding::Revoked {
                    let message = format!("the key of client {client} has been revoked");
                    return Err(Error::new(ErrorKind::AuthFailed, message));
                }
                self.require_record(*client)?;
                Ok(self.signer.master().client(*client))
            }
            Identity::Server(server) => {
                self.cluster.may_be_there(*server)?;
                Ok(self.signer.server_key(*server))
            }
            Identity::Metadata => Ok(self.signer.master().metadata()),
            Identity::Ticket(..) => Err(Error::new(
                ErrorKind::AuthFailed,
                "this is the metadata server; tickets are for data servers",
            )),
        }
    }

    fn standing(&self, client: ClientId) -> Result<ClientStanding> {
        let record = Tx::new(&self.engine).get(&key::client(client))?;
        let record =
            record.map(|r| schema::decode::<ClientRecord>(&r, "of a client")).transpose()?;
        Ok(record.map(|r| r.standing).unwrap_or_default())
    }

    /// Welcomes an authenticated peer, which joins its session or gets a new one.
    ///
    /// # Errors
    /// `SessionExpired` (open a new one), `Overloaded` (too many sessions), `InvalidArgument` (the
    /// name of its host).
    pub fn welcome(&mut self, hello: &Hello, now: Moment) -> Result<Welcome> {
        self.notice_pause(now);
        check_host(&hello.host)?;
        let session = match hello.identity {
            Identity::Client(client) if hello.session == SessionId(0) => {
                self.new_session(client, &hello.name, now)?
            }
            Identity::Client(client) => {
                let found = self.sessions.by_id.get_mut(&hello.session);
                let found = found.filter(|session| session.client == client);
                found.ok_or(ErrorKind::SessionExpired)?.last_heard_ms = now.monotonic_ms;
                hello.session
            }
            _ => SessionId(0),
        };
        if let Some(session) = self.sessions.by_id.get_mut(&session) {
            session.host.clone_from(&hello.host);
        }
        self.connections += 1;
        let (cluster, instance) = (self.format.cluster, self.instance);
        Ok(Welcome { session, cluster, instance, runs: Vec::new() })
    }

    /// Records that a welcomed connection is gone. Its session goes on, because the client may come
    /// back.
    pub fn disconnected(&mut self) {
        self.connections = self.connections.saturating_sub(1);
    }

    fn new_session(&mut self, client: ClientId, name: &str, now: Moment) -> Result<SessionId> {
        if self.sessions.by_id.len() >= MAX_SESSIONS {
            return Err(Error::new(ErrorKind::Overloaded, "too many sessions"));
        }
        let id = SessionId(self.ids.take().ok_or(ErrorKind::Overloaded)?);
        let name: String = name.chars().take(256).collect();
        let record = SessionRecord { client, name, ended: false };
        let bytes = schema::encode(&record);
        transact(&mut self.engine, |tx| Ok::<_, Error>(tx.put(&key::session(id), &bytes)?))?;
        self.sessions.by_id.insert(id, Session::new(client, now.monotonic_ms, true));
        Ok(id)
    }

    /// Handles a request. `body` is everything after the header.
    pub fn on_request(&mut self, peer: Peer, header: &Header, body: &[u8], now: Moment) -> Answer {
        self.notice_pause(now);
        let result = match peer {
            Peer::Client(session) => self.on_client(session, header.op, body, now),
            Peer::Server(server) => self.on_server(server, header.op, body, now),
            Peer::Metadata => self.on_metadata(header.op, body, now),
        };
        let answer = result.unwrap_or_else(|error| Answer::Now(Reply::error(&error)));
        self.stamped(peer, header.op, answer)
    }

    /// Notices that the process itself was stopped (or its machine), so that no other party counts
    /// as silent: their messages lie unread. A request may be the first to notice, before the next
    /// tick.
    fn notice_pause(&mut self, now: Moment) {
        if now.monotonic_ms.saturating_sub(self.last_tick_ms) <= LONG_TICK_MS {
            return;
        }
        self.last_tick_ms = now.monotonic_ms;
        self.sessions.forgive(now.monotonic_ms);
        self.cluster.forgive(now.monotonic_ms);
        self.leases.events.forgive(now.monotonic_ms);
        self.forgive_locks(now);
    }

    /// Counts a reply, and adds the number of the receiver's last event.
    fn stamped(&mut self, peer: Peer, op: Op, mut answer: Answer) -> Answer {
        if let Some(reply) = answer.reply_mut() {
            if let Peer::Client(session) = peer {
                reply.events = self.leases.events.last(session);
            }
            self.counters.answered(op, reply.status.is_some());
        }
        answer
    }

    /// Handles a request of a metadata server that stands by: it may ask for a snapshot only.
    fn on_metadata(&mut self, op: Op, body: &[u8], now: Moment) -> Result<Answer> {
        if op != Op::ExportMeta {
            return Err(ErrorKind::NotPermitted.into());
        }
        let asked = request::<ExportMetaRequest>(Reader::new(body))?;
        Ok(Answer::Now(Reply::ok(&self.export_meta(None, &asked, now)?)))
    }

    fn on_client(
        &mut self,
        session: SessionId,
        op: Op,
        body: &[u8],
        now: Moment,
    ) -> Result<Answer> {
        let known = self.sessions.heard(session, now.monotonic_ms);
        let client = known.ok_or(ErrorKind::SessionExpired)?.client;
        if counters::is_data(op) {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the metadata server keeps no data: ask the data server of the target",
            ));
        }
        let mut rest = Reader::new(body);
        let prefix = MetaPrefix::decode(&mut rest)?;
        let reply = match op {
            Op::Ping => Reply::ok(&()),
            Op::Status => Reply::ok(&self.status(now)),
            Op::GetMap => {
                let have = request::<GetMapRequest>(rest)?.have;
                let newer = self.cluster.epoch > have;
                let reply = Reply::ok(&newer.then(|| self.cluster.map()));
                return Ok(self.after_map(reply));
            }
            Op::GetTickets => {
                let servers = request::<GetTicketsRequest>(rest)?.servers;
                Reply::ok(&self.tickets(client, session, &servers, now)?)
            }
            Op::AdminCapability => {
                request::<AdminCapabilityRequest>(rest)?;
                Reply::ok(&self.admin_capability(client, session, now)?)
            }
            Op::VerifyMeta => {
                let place = request::<VerifyMetaRequest>(rest)?.place;
                Reply::ok(&self.verify_meta(client, place)?)
            }
            Op::CountOpens => {
                let files = request::<CountOpensRequest>(rest)?.files;
                Reply::ok(&self.count_opens(client, &files)?)
            }
            Op::ExportMeta => {
                let asked = request::<ExportMetaRequest>(rest)?;
                Reply::ok(&self.export_meta(Some(client), &asked, now)?)
            }
            Op::SetClient => {
                self.set_client(client, request::<SetClientRequest>(rest)?.info, now)?;
                return Ok(self.after_sync(Reply::ok(&())));
            }
            Op::Rebalance => {
                self.rebalance(client, &request::<RebalanceRequest>(rest)?)?;
                Reply::ok(&())
            }
            Op::ListClients => {
                let after = request::<ListClientsRequest>(rest)?.after;
                Reply::ok(&self.list_clients(client, after)?)
            }
            Op::ListSessions => {
                let after = request::<ListSessionsRequest>(rest)?.after;
                Reply::ok(&self.list_sessions(client, after, now)?)
            }
            Op::ListHolds => Reply::ok(&self.list_holds(client, &request(rest)?, now)?),
            Op::SetQuota => {
                self.set_quota(client, &request(rest)?)?;
                return Ok(self.after_sync(Reply::ok(&())));
            }
            Op::ListQuotas => {
                let caller = self.limits_of(session).squashed(prefix.caller);
                Reply::ok(&self.list_quotas(client, &caller, &request(rest)?)?)
            }
            Op::ListTargets => {
                let after = request::<ListTargetsRequest>(rest)?.after;
                Reply::ok(&self.list_targets(after, now))
            }
            Op::SetTarget => {
                self.set_target(client, &request(rest)?, now)?;
                return Ok(self.after_sync(Reply::ok(&())));
            }
            Op::RemoveTarget => {
                let removal = self.remove_target(client, &request(rest)?, now)?;
                return Ok(self.after_sync(Reply::ok(&removal)));
            }
            Op::RemoveServer => {
                self.remove_server(client, &request(rest)?, now)?;
                return Ok(self.after_sync(Reply::ok(&())));
            }
            Op::FreeNumbers => {
                request::<FreeNumbersRequest>(rest)?;
                Reply::ok(&self.free_numbers(client)?)
            }
            Op::RotateKeys => {
                let rotation = self.rotate_keys(client, &request(rest)?, now)?;
                return Ok(self.after_sync(Reply::ok(&rotation)));
            }
            Op::CountCopies => Reply::ok(&self.count_copies(client, request(rest)?)?),
            Op::AcceptLosses => {
                self.require_administrator(client)?;
                return self.consider(session, op, body, now);
            }
            Op::SyncMeta => {
                return Ok(self.after_sync(Reply::ok(&())));
            }
            Op::PollEvents => {
                let have = request::<PollEventsRequest>(rest)?.have;
                return Ok(self.poll_events(session, have, now));
            }
            Op::AckEvents => {
                let acks = request::<AckEventsRequest>(rest)?.acks;
                self.ack_events(session, &acks);
                Reply::ok(&())
            }
            Op::EndSession => {
                request::<EndSessionRequest>(rest)?;
                self.end_session(session, true)?;
                Reply::ok(&())
            }
            Op::SetLock => return self.set_lock(session, &request(rest)?, now),
            Op::TestLock => {
                let lock = request::<TestLockRequest>(rest)?.lock;
                Reply::ok(&self.test_lock(session, &lock, now)?)
            }
            Op::CancelLock => Reply::ok(&self.cancel_lock(session, &request(rest)?)),
            Op::ReassertLocks => Reply::ok(&self.reassert_locks(session, &request(rest)?)?),
            _ => return self.consider(session, op, body, now),
        };
        Ok(Answer::Now(reply))
    }

    /// The reply of a completed operation.
    fn answer(&mut self, done: Done) -> Answer {
        if done.objects_follow { self.after_sync(done.reply) } else { Answer::Now(done.reply) }
    }

    /// Delays a reply about the map until the map is durable. Otherwise a power cut could give its
    /// epoch to another map.
    fn after_map(&mut self, reply: Reply) -> Answer {
        if self.engine.synced() >= self.map_at {
            return Answer::Now(reply);
        }
        self.engine.request_sync(self.map_at);
        Answer::AfterSync(self.map_at, reply)
    }

    fn after_sync(&mut self, reply: Reply) -> Answer {
        let upto = self.engine.sequence();
        self.engine.request_sync(upto);
        Answer::AfterSync(upto, reply)
    }

    fn tickets(
        &mut self,
        client: ClientId,
        session: SessionId,
        servers: &[ServerId],
        now: Moment,
    ) -> Result<Vec<SealedTicket>> {
        if servers.len() > MAX_TICKETS {
            return Err(ErrorKind::TooBig.into());
        }
        let client_key = self.signer.master().client(client);
        let mut tickets = Vec::with_capacity(servers.len());
        for &server in servers {
            if !self.cluster.knows(server) {
                let message = format!("there is no data server {server}");
                return Err(Error::new(ErrorKind::TargetMissing, message));
            }
            tickets.push(self.ticket(server, (client, session), &client_key, now));
        }
        Ok(tickets)
    }

    /// A ticket for a data server, for the holder of this key.
    fn ticket(
        &mut self,
        server: ServerId,
        (client, session): (ClientId, SessionId),
        key: &Key,
        now: Moment,
    ) -> SealedTicket {
        let expires_unix_ms = now.unix_ms().saturating_add(self.times.ticket_ms);
        self.nonce_count += 1;
        let nonce = self.nonces.mac("weir 1 nonce", &[&self.nonce_count.to_le_bytes()]).0;
        let ticket = Ticket { server, client, session, expires_unix_ms, nonce };
        SealedTicket::seal(ticket, &self.signer.server_key(server), key)
    }

    /// Counters and state.
    pub fn status(&self, now: Moment) -> ServerStatus {
        let mut counters = self.counters.list();
        counters.push(("sessions".into(), self.sessions.by_id.len() as u64));
        counters.push(("orphans".into(), self.orphans.len() as u64));
        counters.push(("targets_out_of_service".into(), self.cluster.out_of_service()));
        counters.extend(self.leases.list(now.monotonic_ms));
        counters.extend(self.table.list());
        counters.extend(self.mover.list());
        counters.extend(self.shortfalls());
        counters.push(("map_epoch".into(), self.cluster.epoch.0));
        counters.push(("keys.generation".into(), self.keys.generation().0.into()));
        let lacking = self.revoked.lacking(self.cluster.servers.keys());
        counters.push(("revocations.servers_lacking".into(), lacking));
        counters.push(("disk.size_bytes".into(), self.room.total_bytes));
        counters.push(("disk.free_bytes".into(), self.room.free_bytes));
        counters.extend(self.members.iter().flat_map(Members::list));
        counters.sort();
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_ms: now.monotonic_ms.saturating_sub(self.started_ms),
            connections: self.connections,
            counters,
            targets: Vec::new(),
        }
    }

    /// Ends a turn: when this returns, the turn's changes survive the death of the process. After
    /// an error no reply of this turn may be sent, and the server has to stop.
    pub fn flush(&mut self) -> Result<Sequence> {
        match self.ids.upkeep(&mut self.engine) {
            // Who wants one, when all that are reserved are used, is told.
            Err(error) if error.kind == ErrorKind::NoSpace => {}
            other => other?,
        }
        self.engine.flush()
    }

    /// Takes over results of the engine's background work.
    pub fn poll(&mut self) -> Result<()> {
        self.engine.poll()
    }

    /// The last commit that survives a power cut.
    pub fn synced(&self) -> Sequence {
        self.engine.synced()
    }

    /// Runs periodic work. To be called about once a second, after the requests of the turn.
    pub fn on_tick(&mut self, now: Moment) -> Result<()> {
        self.engine.poll()?;
        self.notice_pause(now);
        self.last_tick_ms = now.monotonic_ms;
        self.exports.forget_old(now.monotonic_ms);
        self.revoked.forget_old(now.unix_ms());
        // A step that finds no room does not keep the others from being taken.
        let mut no_room = None;
        let mut goes_on = |done: Result<()>| match done {
            Err(error) if error.kind == ErrorKind::NoSpace => {
                no_room.get_or_insert(error);
                Ok(())
            }
            done => done,
        };
        goes_on(self.settle_keys(now))?;
        goes_on(self.lose_silent_targets(now))?;
        self.cluster.give_up_removal(now.monotonic_ms);
        self.cluster.sample(now.monotonic_ms);
        goes_on(self.tick_mover(now))?;
        goes_on(self.expire_sessions(now))?;
        goes_on(self.tick_leases(now))?;
        self.tick_locks(now);
        if now.monotonic_ms.saturating_sub(self.started_ms) >= self.times.grace_ms {
            self.settle();
        }
        goes_on(self.work(background::TICK_STEPS, now))?;
        no_room.map_or(Ok(()), Err)
    }

    /// Sets the boot of the machine: from it clients learn whether acknowledged, unsynced changes
    /// may be lost.
    pub fn set_boot(&mut self, boot: u32) {
        self.instance = self.instance & 0xffff_ffff | u64::from(boot) << 32;
    }

    /// Sets the term of this leader of several servers with one journal. Events are numbered by it,
    /// because the clocks of the servers may differ.
    pub fn set_term(&mut self, term: u64) {
        self.leases.events.set_term(term);
    }

    /// Sets what the metadata servers of the cluster hold.
    pub fn set_members(&mut self, members: Members) {
        self.members = Some(members);
    }

    /// Sets the space of the metadata's disk.
    pub fn set_room(&mut self, room: FsUsage) {
        self.room = room;
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The engine, for closing it.
    pub fn into_engine(self) -> E {
        self.engine
    }

    /// The engine, for reading.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The engine, for injecting failures in a test or simulation.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }
}

fn first_eight(bytes: &[u8; 16]) -> [u8; 8] {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[..8]);
    eight
}

/// Decodes the rest of a message as a request.
fn request<R: Request>(mut rest: Reader<'_>) -> Result<R> {
    let request = R::decode(&mut rest)?;
    rest.finish()?;
    Ok(request)
}
