//! The event loop's side of a data server: carries out the actions of the machine.

use super::copier::Copier;
use super::forward::Forwarder;
use crate::attempts::Sender;
use crate::copies::follow::ends_here;
use crate::copies::pools::Pools;
use crate::counters::add;
use crate::disk::reads::read_cached;
use crate::machine::{Action, Body, Incoming, Machine, OpId, Outcome, ReadWork, Work};
use crate::queue::Admission;
use crate::queue::tasks::{
    ChangeTask, CopyTask, Data, Event, ForwardTask, Job, MirrorJob, Task, Way,
};
use crate::state::Shared;
use crate::state::staged::{Found, Left, Ticket};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use weir_host::clock;
use weir_net::server::ServerCounters;
use weir_net::{ConnId, Frame, LoopHandle, Outbox, PooledBuf, Service};
use weir_types::{ClientId, Error, ErrorKind, Result, TargetId};
use weir_wire::frame::decode_checks;
use weir_wire::handshake::{Hello, Identity, Welcome};
use weir_wire::ticket::OF_SERVERS;
use weir_wire::{Header, Key, Level, Op};

/// Replies with at least this much data are sent at once, while it is in the CPU caches; smaller
/// ones at the end of the turn, many together.
const SEND_AT_ONCE_BYTES: usize = 16 << 10;

/// Why a client whose key was revoked or changed is refused.
const REVOKED: &str = "the session has ended: the client's key was revoked or changed";

/// A read that waits for a buffer.
struct Waiting {
    conn: ConnId,
    op: OpId,
    target: TargetId,
    work: ReadWork,
}

/// The threads that wait for other servers, as the loops hand them their tasks.
#[derive(Clone)]
pub(crate) struct Crews {
    /// Changes of several copies.
    pub(crate) pools: Arc<Pools>,
    /// Copies between objects.
    pub(crate) copier: Arc<Copier>,
    /// Clients that cannot reach the server of another copy.
    pub(crate) forwarder: Arc<Forwarder>,
}

/// The service of one loop.
pub(crate) struct DataService {
    shared: Arc<Shared>,
    crews: Crews,
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
        crews: Crews,
        handle: LoopHandle<Event>,
        net_counters: Arc<ServerCounters>,
    ) -> Self {
        let opened = shared.disks.iter().map(|d| &d.served);
        let targets = opened.chain(shared.unopened.iter().map(|u| &u.served)).cloned().collect();
        let machine =
            Machine::new(shared.server, targets, shared.counters.clone(), shared.revoked.clone());
        Self {
            shared,
            crews,
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
                    if self.crews.copier.submit(task, conn) == Admission::Full {
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
        let watched = self.crews.pools.watch_staged(&self.shared);
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
        if let Err(error) = self.crews.pools.watch_staged(&self.shared) {
            self.done(task.op, Err(error));
            return None;
        }
        let staged = &self.shared.copies.staged;
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
        let kept = self.shared.copies.standings.is_kept(task.target);
        match kept.and_then(|()| self.crews.pools.submit(&self.shared, task, conn)) {
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
        match self.crews.forwarder.submit(task) {
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
                let forwarder = self.crews.forwarder.clone();
                out.let_go(conn, Box::new(move |socket| forwarder.begin(way, socket)));
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

    fn protection(&self) -> Level {
        self.shared.protection.least()
    }

    fn welcome(&mut self, conn: ConnId, hello: &Hello) -> Result<Welcome> {
        // Not before both ends have proved their keys: who has the wrong one is told that. Another
        // server knows the level, and states it.
        if matches!(&hello.identity, Identity::Ticket(ticket, _) if ticket.session != OF_SERVERS)
            && let Err(error) = self.shared.protection.told()
        {
            add(&self.shared.counters.refused_unsure, 1);
            return Err(error);
        }
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
        let client = match &frame.peer.identity {
            Identity::Ticket(ticket, _) => ticket.client,
            _ => ClientId(0),
        };
        let incoming = Incoming {
            conn: frame.conn,
            session: frame.peer.session,
            client,
            header: &frame.header,
            body: frame.body,
            now_unix_ms: unix_ms(),
        };
        if let Identity::Ticket(ticket, _) = &frame.peer.identity
            && self.shared.revoked.is_over(ticket.client, ticket.session)
        {
            add(&self.shared.counters.refused_session_over, 1);
            self.machine.note_session_over(&incoming, REVOKED);
            let error = Error::new(ErrorKind::BadTicket, REVOKED);
            out.reply_error(frame.conn, &frame.header, &error);
            out.close(frame.conn);
            return;
        }
        let (level, least) = (frame.peer.level, self.shared.protection.least());
        if level < least {
            add(&self.net_counters.closed_unprotected, 1);
            let what = format!(
                "the connection is protected as `{level}`, and the cluster requires `{least}` now: \
                 connect again"
            );
            out.reply_error(frame.conn, &frame.header, &Error::new(ErrorKind::NotCurrent, what));
            out.close(frame.conn);
            return;
        }
        let mut arrived = Data { buf: frame.payload, checks: Vec::new() };
        decode_checks(frame.checks, &mut arrived.checks);
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

    fn on_tick(&mut self, _out: &mut Outbox) {
        self.machine.hand_over();
    }
}

impl Drop for DataService {
    fn drop(&mut self) {
        self.machine.hand_over();
    }
}

fn refuse(conn: ConnId, header: Header, error: Error, out: &mut Outbox) {
    let header = Header { status: Some(error.kind), ..header };
    out.reply(conn, header, &Body::Error(error), &[], None);
}

fn unix_ms() -> u64 {
    clock::unix_now().as_millis() as u64
}
