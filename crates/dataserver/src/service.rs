//! The event loop's side of a data server: carries out the actions of the machine.

use crate::attempts::{Attempts, Sender};
use crate::copier::{Copier, CopyTask};
use crate::copies::staged::{Found, Left, Ticket};
use crate::copies::{ChangeTask, Copies, MirrorJob, ends_here};
use crate::counters::{Counters, add};
use crate::disk::{Data, Disk, Job, Task, Unopened, read_cached};
use crate::forward::{ForwardTask, Forwarder, Way};
use crate::machine::{Action, Body, Incoming, Machine, OpId, Outcome, ReadWork, Work};
use crate::metrics::RequestTimes;
use crate::queue::Admission;
use crate::revoked::Revoked;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::Instant;
use weir_host::clock;
use weir_net::server::ServerCounters;
use weir_net::{ConnId, Frame, LoopHandle, Outbox, PooledBuf, Service};
use weir_store::{ELSEWHERE, UNHEARD};
use weir_types::{Error, ErrorKind, FsUsage, Result, ServerId, TargetId};
use weir_wire::data::{ServerStatus, TargetStatus};
use weir_wire::frame::decode_checks;
use weir_wire::handshake::{Hello, Identity, Welcome};
use weir_wire::ticket::OF_SERVERS;
use weir_wire::{Header, Key, Op};

/// Replies with at least this much data are sent at once, while it is in the CPU caches; smaller
/// ones at the end of the turn, many together.
const SEND_AT_ONCE_BYTES: usize = 16 << 10;

/// Why a client whose key was revoked or changed is refused.
const REVOKED: &str = "the session has ended: the client's key was revoked or changed";

/// Events from other threads.
pub(crate) enum Event {
    /// An operation has ended.
    Done { op: OpId, result: Result<Outcome>, data: Data },
    /// A queue has space again.
    Resume(ConnId),
    /// Bytes that a change has waited for have arrived.
    Staged(ConnId, Box<ChangeTask>),
    /// The far server of a tunnel was reached, or not.
    Reached { conn: ConnId, header: Header, way: Result<Way> },
}

/// State that all loops share.
pub(crate) struct Shared {
    pub(crate) server: ServerId,
    pub(crate) server_key: Key,
    pub(crate) cluster: [u8; 16],
    /// As long as that of a target is the same, nothing that it confirmed was lost.
    pub(crate) runs: Vec<(TargetId, u64)>,
    pub(crate) started: Instant,
    /// Sorted by target id.
    pub(crate) disks: Vec<Arc<Disk>>,
    /// Targets of the configuration that could not be opened.
    pub(crate) unopened: Vec<Unopened>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) times: RequestTimes,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) revoked: Arc<Revoked>,
    pub(crate) copies: Copies,
    /// The highest rate of bringing other copies up to date, bytes per second; 0 for no limit.
    pub(crate) resync_bytes_per_s: u64,
    /// Share of the time for that while clients have requests, as set by the metadata server,
    /// percent.
    pub(crate) busy_percent: AtomicU8,
    pub(crate) copier: Copier,
    pub(crate) forwarder: Forwarder,
    /// Whether the server has to restart after it has stopped.
    pub(crate) anew: AtomicBool,
}

impl Shared {
    pub(crate) fn disk(&self, target: TargetId) -> Option<&Arc<Disk>> {
        let at = self.disks.binary_search_by_key(&target, |d| d.served.id).ok()?;
        self.disks.get(at)
    }
}

impl Shared {
    /// Number of objects with gaps, for the counters.
    fn gaps(&self) -> Vec<(String, u64)> {
        let (mut others, mut own) = (0, 0);
        for disk in &self.disks {
            for (behind, count) in disk.store.gaps().counts() {
                match [disk.served.id, ELSEWHERE, UNHEARD].contains(&behind) {
                    true => own += count,
                    false => others += count,
                }
            }
        }
        vec![("gaps.of_others".into(), others), ("gaps.own".into(), own)]
    }

    /// Results of opening all targets, for the counters.
    fn recovery(&self) -> Vec<(String, u64)> {
        let mut sum = [
            ("unclean_targets", 0),
            ("objects", 0),
            ("bytes", 0),
            ("blocks", 0),
            ("headers", 0),
            ("failed", 0),
            ("damaged_logs", 0),
            ("findings", 0),
        ];
        for disk in &self.disks {
            let found = disk.store.recovery();
            let numbers = [
                u64::from(found.unclean),
                found.objects,
                found.bytes,
                found.blocks,
                found.headers,
                found.failed,
                u64::from(found.log_damaged),
                found.findings,
            ];
            sum.iter_mut().zip(numbers).for_each(|((_, total), n)| *total += n);
        }
        sum.into_iter().map(|(name, n)| (format!("recovery.{name}"), n)).collect()
    }

    /// Counters and state.
    pub(crate) fn status(&self, net_counters: &ServerCounters) -> ServerStatus {
        let mut counters = self.counters.snapshot();
        counters.extend(net_counters.snapshot());
        counters.extend(self.recovery());
        counters.extend(self.gaps());
        let opened = self.disks.iter().map(|disk| {
            let health = disk.health();
            TargetStatus {
                target: disk.served.id,
                dir: disk.store.dir().display().to_string(),
                usage: health.usage,
                in_flight: disk.served.load.in_flight.load(Relaxed),
                queue_depth: disk.served.load.queued.load(Relaxed),
                trouble: health.trouble,
            }
        });
        let unopened = self.unopened.iter().map(|unopened| TargetStatus {
            target: unopened.served.id,
            dir: unopened.dir.display().to_string(),
            usage: FsUsage::default(),
            in_flight: 0,
            queue_depth: 0,
            trouble: unopened.served.unopened.clone().unwrap_or_default(),
        });
        let mut targets: Vec<_> = opened.chain(unopened).collect();
        targets.sort_by_key(|t| t.target);
        let in_trouble = targets.iter().filter(|t| !t.trouble.is_empty()).count() as u64;
        counters.push(("targets.in_trouble".into(), in_trouble));
        let hanging = self.disks.iter().filter(|disk| disk.at_work.hangs().is_some());
        counters.push(("targets.hanging".into(), hanging.count() as u64));
        counters.sort();
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_string(),
            uptime_ms: clock::elapsed(self.started).as_millis() as u64,
            connections: net_counters.connections.load(Relaxed) as u32,
            counters,
            targets,
        }
    }
}

/// A read that waits for a buffer.
struct Waiting {
    conn: ConnId,
    op: OpId,
    target: TargetId,
    work: ReadWork,
}

/// The service of one loop.
pub(crate) struct DataService {
    shared: Arc<Shared>,
    machine: Machine<ConnId>,
    handle: LoopHandle<Event>,
    net_counters: Arc<ServerCounters>,
    /// Data of operations, indexed by operation.
    data: Vec<Data>,
    /// Kind and time of arrival of operations, indexed by operation.
    begun: Vec<Option<(Op, Instant)>>,
    actions: Vec<Action<ConnId>>,
    /// At most one for each connection, which is paused.
    waiting: VecDeque<Waiting>,
    /// The sender for the changes of each connection.
    senders: BTreeMap<ConnId, Sender>,
}

impl DataService {
    pub(crate) fn new(
        shared: Arc<Shared>,
        handle: LoopHandle<Event>,
        net_counters: Arc<ServerCounters>,
    ) -> Self {
        let opened = shared.disks.iter().map(|d| &d.served);
        let targets = opened.chain(shared.unopened.iter().map(|u| &u.served)).cloned().collect();
        let machine =
            Machine::new(shared.server, targets, shared.counters.clone(), shared.revoked.clone());
        Self {
            shared,
            machine,
            handle,
            net_counters,
            data: Vec::new(),
            begun: Vec::new(),
            actions: Vec::new(),
            waiting: VecDeque::new(),
            senders: BTreeMap::new(),
        }
    }

    /// Carries out all actions, and the actions that follow from them. `arrived` is the data of the
    /// request that led to the first.
    fn carry_out(&mut self, mut arrived: Data, out: &mut Outbox) {
        while let Some(action) = self.actions.pop() {
            match action {
                Action::Probe { op, conn, target, work } => {
                    self.read(Waiting { conn, op, target, work }, out);
                }
                Action::Disk { op, conn, target, work: Work::Read(work) } if work.locked => {
                    self.read(Waiting { conn, op, target, work }, out);
                }
                Action::Disk { op, conn, target, work } => {
                    let data = match work {
                        Work::Read(_) => std::mem::take(self.data_of(op)),
                        _ => std::mem::take(&mut arrived),
                    };
                    let sender = match work.changes() {
                        true => self.senders.get(&conn).cloned(),
                        false => None,
                    };
                    let (work, reply_to) = (Job::Plain(work), self.handle.clone());
                    let asker = self.machine.asker(op);
                    self.submit(
                        conn,
                        target,
                        Task { op, asker, work, data, sender, reply_to },
                        out,
                    );
                }
                Action::Change { op, conn, target, change } => {
                    let data = std::mem::take(&mut arrived);
                    self.change(
                        ChangeTask {
                            op,
                            target,
                            job: MirrorJob::Change(change),
                            data,
                            sender: self.senders.get(&conn).cloned(),
                            reply_to: self.handle.clone(),
                        },
                        conn,
                        out,
                    );
                }
                Action::Stage { conn, header, ticket, pieces } => {
                    let left = Left { pieces, data: std::mem::take(&mut arrived), conn };
                    self.stage(conn, header, ticket, left, out);
                }
                Action::Forward { conn, header, to } => {
                    let reply_to = self.handle.clone();
                    self.forward(ForwardTask { conn, header, to, reply_to }, out);
                }
                Action::Repair { op, conn, target, work } => {
                    let (job, data) = (MirrorJob::Repair(work), Data::default());
                    let reply_to = self.handle.clone();
                    let task = ChangeTask { op, target, job, data, sender: None, reply_to };
                    self.mirror(task, conn, out);
                }
                Action::Copy { op, conn, target, work } => {
                    let sender = self.senders.get(&conn).cloned();
                    let reply_to = self.handle.clone();
                    let task = CopyTask { op, target, work, sender, reply_to };
                    if self.shared.copier.submit(task, conn) == Admission::Full {
                        add(&self.shared.counters.queue_full, 1);
                        out.pause(conn);
                    }
                }
                Action::Reply { conn, header, body, data_of } => {
                    self.reply(conn, header, &body, data_of, out);
                }
                Action::Status { conn, header } => {
                    let status = self.shared.status(&self.net_counters);
                    out.reply(conn, header, &status, &[], None);
                }
            }
        }
    }

    /// Handles the end of an operation.
    fn done(&mut self, op: OpId, result: Result<Outcome>) {
        if let Some((what, arrived)) = self.begun.get_mut(op.index()).and_then(Option::take) {
            self.shared.times.of(what).add(clock::elapsed(arrived));
        }
        self.machine.on_done(op, result, &mut self.actions);
    }

    fn data_of(&mut self, op: OpId) -> &mut Data {
        if self.data.len() <= op.index() {
            self.data.resize_with(op.index() + 1, Data::default);
        }
        &mut self.data[op.index()]
    }

    /// Begins a read, or lets it wait for a buffer.
    fn read(&mut self, read: Waiting, out: &mut Outbox) {
        // Nobody overtakes those who wait already.
        let buf = if self.waiting.is_empty() { self.buffer_for(&read, out) } else { None };
        match buf {
            Some(buf) => self.read_into(read, buf, out),
            None => {
                add(&self.shared.counters.buffer_waits, 1);
                out.pause(read.conn);
                self.waiting.push_back(read);
            }
        }
    }

    /// A buffer for a read; `Some(None)` if it needs none.
    fn buffer_for(&self, read: &Waiting, out: &Outbox) -> Option<Option<PooledBuf>> {
        match read.work.bytes {
            0 => Some(None),
            bytes => out.pool().take(bytes as usize).map(Some),
        }
    }

    fn read_into(&mut self, read: Waiting, buf: Option<PooledBuf>, out: &mut Outbox) {
        let Waiting { conn, op, target, work } = read;
        let data = self.data_of(op);
        data.buf = buf;
        let mut data = std::mem::take(data);
        let Some(disk) = self.shared.disk(target) else { return };
        if work.locked {
            let work = Job::Plain(Work::Read(work));
            let (asker, reply_to) = (self.machine.asker(op), self.handle.clone());
            let task = Task { op, asker, work, data, sender: None, reply_to };
            self.submit(conn, target, task, out);
            return;
        }
        let mode = disk.look_mode(self.machine.asker(op));
        let result = read_cached(&disk.store, &work, &mut data, mode);
        match &result {
            Some(Ok(Outcome::Read { bytes, .. })) => disk.served_from_memory(&work, *bytes),
            Some(Ok(_)) => {}
            Some(Err(_)) => data.buf = None,
            None => {}
        }
        *self.data_of(op) = data;
        match result {
            Some(result) => {
                add(&self.shared.counters.read_cached, 1);
                let result = self.checked(op, result);
                self.done(op, result);
            }
            None => self.machine.on_miss(op, work, &mut self.actions),
        }
    }

    /// Stages bytes for a later change, or continues a change that waits for them.
    fn stage(
        &mut self,
        conn: ConnId,
        header: Header,
        ticket: Ticket,
        left: Left<ConnId>,
        out: &mut Outbox,
    ) {
        let bytes = left.data.buf.as_ref().map_or(0, |buf| buf.len());
        let copies = &self.shared.copies;
        let watched = copies.pools.watch_staged(&self.shared);
        match watched.and_then(|()| copies.staged.leave(ticket, left)) {
            Ok(waiting) => {
                add(&self.shared.counters.staged_bytes, bytes as u64);
                out.reply(conn, header, &Body::Empty, &[], None);
                if let Some((of, task)) = waiting {
                    let loop_of_it = task.reply_to.clone();
                    loop_of_it.post(Event::Staged(of, Box::new(task)));
                }
            }
            Err(error) => {
                add(&self.shared.counters.staged_refused, 1);
                refuse(conn, header, error, out);
            }
        }
    }

    /// Adds staged bytes to a change. Returns `None` if it waits for them, or was refused.
    fn fetch(&mut self, mut task: ChangeTask, conn: ConnId) -> Option<ChangeTask> {
        let MirrorJob::Change(change) = &task.job else { return Some(task) };
        let Some(ticket) = change.left_under(&task.data) else { return Some(task) };
        let pieces = change.pieces();
        let Copies { staged, pools, .. } = &self.shared.copies;
        if let Err(error) = pools.watch_staged(&self.shared) {
            self.done(task.op, Err(error));
            return None;
        }
        task = match staged.take(ticket, &pieces, (conn, task), |(_, task)| &mut task.data) {
            Found::Here((_, task)) => return Some(task),
            Found::Waits => return None,
            Found::Nothing((_, task)) => task,
        };
        self.done(task.op, Err(ErrorKind::NotStaged.into()));
        None
    }

    /// Has a change of several copies ordered, or passed on.
    fn change(&mut self, task: ChangeTask, conn: ConnId, out: &mut Outbox) {
        let Some(task) = self.fetch(task, conn) else { return };
        match task {
            ChangeTask { op, target, job: MirrorJob::Change(change), data, sender, reply_to }
                if ends_here(&change, target) =>
            {
                let work = Job::Follow(change);
                let asker = self.machine.asker(op);
                self.submit(conn, target, Task { op, asker, work, data, sender, reply_to }, out);
            }
            task => self.mirror(task, conn, out),
        }
    }

    /// Passes a change to the threads that wait for other servers.
    fn mirror(&mut self, task: ChangeTask, conn: ConnId, out: &mut Outbox) {
        let op = task.op;
        let copies = &self.shared.copies;
        let kept = copies.standings.is_kept(task.target);
        match kept.and_then(|()| copies.pools.submit(&self.shared, task, conn)) {
            Ok(Admission::Room) => {}
            Ok(Admission::Full) => {
                add(&self.shared.counters.queue_full, 1);
                out.pause(conn);
            }
            Err(error) => self.done(op, Err(error)),
        }
    }

    /// Passes a client to the threads that connect for it.
    fn forward(&mut self, task: ForwardTask, out: &mut Outbox) {
        let (conn, header) = (task.conn, task.header);
        match self.shared.forwarder.submit(&self.shared, task) {
            Ok(Admission::Room) => {}
            Ok(Admission::Full) => {
                add(&self.shared.counters.queue_full, 1);
                out.pause(conn);
            }
            Err(error) => refuse(conn, header, error, out),
        }
    }

    /// Handles the result of connecting to the far server of a tunnel.
    fn reached(&mut self, conn: ConnId, header: Header, way: Result<Way>, out: &mut Outbox) {
        match way {
            Ok(way) => {
                out.reply(conn, header, &Body::Empty, &[], None);
                let shared = self.shared.clone();
                out.let_go(conn, Box::new(move |socket| shared.forwarder.begin(way, socket)));
            }
            Err(error) => refuse(conn, header, error, out),
        }
    }

    /// Checks that one of several copies is still current after a read.
    fn checked(&self, op: OpId, result: Result<Outcome>) -> Result<Outcome> {
        let current = match self.machine.looks_at_copy(op) {
            Some(target) => self.shared.copies.standings.may_read(target),
            None => Ok(()),
        };
        current.and(result)
    }

    fn submit(&mut self, conn: ConnId, target: TargetId, task: Task, out: &mut Outbox) {
        let Some(disk) = self.shared.disk(target) else { return };
        if task.is_of_copies()
            && let Err(error) = self.shared.copies.standings.is_kept(target)
        {
            self.done(task.op, Err(error));
            return;
        }
        // Before the disk thread can say that there is room again.
        if disk.submit(task, conn) == Admission::Full {
            add(&self.shared.counters.queue_full, 1);
            out.pause(conn);
        }
    }

    fn reply(
        &mut self,
        conn: ConnId,
        header: Header,
        body: &Body,
        data_of: Option<OpId>,
        out: &mut Outbox,
    ) {
        let Some(op) = data_of else {
            out.reply(conn, header, body, &[], None);
            return;
        };
        let data = self.data_of(op);
        let buf = data.buf.take();
        let large = buf.as_ref().is_some_and(|b| b.len() >= SEND_AT_ONCE_BYTES);
        out.reply(conn, header, body, &data.checks, buf);
        if large {
            out.flush(conn);
        }
    }

    /// Gives buffers to reads that wait for one.
    fn serve_waiting(&mut self, out: &mut Outbox) {
        while let Some(read) = self.waiting.pop_front() {
            let Some(buf) = self.buffer_for(&read, out) else {
                self.waiting.push_front(read);
                out.wait_for_buffer();
                return;
            };
            let conn = read.conn;
            out.resume(conn);
            self.read_into(read, buf, out);
            self.carry_out(Data::default(), out);
        }
    }
}

impl Service for DataService {
    type Event = Event;

    fn key_for(&mut self, hello: &Hello) -> Result<Key> {
        let refuse = |what: String| {
            add(&self.shared.counters.refused_ticket, 1);
            Err(Error::new(ErrorKind::BadTicket, what))
        };
        let Identity::Ticket(ticket, _) = &hello.identity else {
            return refuse(
                "a connection to a data server needs a ticket of the metadata server".into(),
            );
        };
        let server = self.shared.server;
        if ticket.server != server {
            return refuse(format!("the ticket is for server {}, not {server}", ticket.server));
        }
        if unix_ms() >= ticket.expires_unix_ms {
            return refuse("the ticket has expired".into());
        }
        if hello.session != ticket.session {
            return refuse("the ticket belongs to another session".into());
        }
        if self.shared.revoked.is_over(ticket.client, ticket.session) {
            return refuse(REVOKED.into());
        }
        Ok(ticket.key(&self.shared.server_key))
    }

    fn welcome(&mut self, conn: ConnId, hello: &Hello) -> Result<Welcome> {
        if let Identity::Ticket(ticket, attempt) = &hello.identity
            && (ticket.session != OF_SERVERS || attempt.run != 0)
        {
            let since = self.shared.copies.standings.acting();
            let sender = self.shared.attempts.welcome(ticket.client, attempt, since);
            self.senders.insert(conn, sender);
        }
        let (cluster, instance) = (self.shared.cluster, self.shared.copies.lines.run());
        let runs = self.shared.runs.clone();
        Ok(Welcome { session: hello.session, cluster, instance, runs })
    }

    fn on_frame(&mut self, frame: Frame<'_>, out: &mut Outbox) {
        if let Identity::Ticket(ticket, _) = &frame.peer.identity
            && self.shared.revoked.is_over(ticket.client, ticket.session)
        {
            add(&self.shared.counters.refused_session_over, 1);
            let error = Error::new(ErrorKind::BadTicket, REVOKED);
            out.reply_error(frame.conn, &frame.header, &error);
            out.close(frame.conn);
            return;
        }
        let mut arrived = Data { buf: frame.payload, checks: Vec::new() };
        decode_checks(frame.checks, &mut arrived.checks);
        let incoming = Incoming {
            conn: frame.conn,
            session: frame.peer.session,
            header: &frame.header,
            body: frame.body,
            now_unix_ms: unix_ms(),
        };
        self.machine.on_request(&incoming, &mut self.actions);
        if let Some(op) = self.actions.last().and_then(Action::op) {
            if self.begun.len() <= op.index() {
                self.begun.resize(op.index() + 1, None);
            }
            self.begun[op.index()] = Some((frame.header.op, clock::now()));
        }
        self.carry_out(arrived, out);
    }

    fn on_event(&mut self, event: Event, out: &mut Outbox) {
        match event {
            Event::Done { op, result, data } => {
                *self.data_of(op) = data;
                let result = self.checked(op, result);
                self.done(op, result);
                self.carry_out(Data::default(), out);
                // The buffer of a write; its connection may be gone as well.
                self.data_of(op).buf = None;
            }
            Event::Resume(conn) => out.resume(conn),
            Event::Reached { conn, header, way } => self.reached(conn, header, way, out),
            Event::Staged(conn, task) => {
                self.change(*task, conn, out);
                self.carry_out(Data::default(), out);
            }
        }
    }

    fn on_closed(&mut self, conn: ConnId) {
        self.senders.remove(&conn);
        self.shared.copies.staged.closed(conn);
    }

    fn on_turn_end(&mut self, out: &mut Outbox) {
        self.serve_waiting(out);
    }
}

fn refuse(conn: ConnId, header: Header, error: Error, out: &mut Outbox) {
    let header = Header { status: Some(error.kind), ..header };
    out.reply(conn, header, &Body::Error(error), &[], None);
}

fn unix_ms() -> u64 {
    clock::unix_now().as_millis() as u64
}
