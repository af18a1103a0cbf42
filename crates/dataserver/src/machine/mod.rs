//! Handles requests without I/O, threads, clock or bulk data: requests and completions go in,
//! [`Action`]s come out. Buffers and checksums stay with the shell, which stores them by [`OpId`].
//!
//! A request is checked in this order: it decodes; the target is served here; the capability is
//! signed for it, belongs to the connection's session, is for the object's file, grants the
//! operation, has not expired and was not revoked; the share of the regions is within the limits; payload and
//! checksums are as long as the share. Generations are compared in the store, under the object's
//! lock.

mod action;
mod administering;
mod asking;
mod auditing;
pub(crate) mod change;
mod changing;
mod copying;
mod load;
mod own_keys;
pub(crate) mod readers;
pub(crate) mod revoked;
mod target;
mod work;

#[cfg(test)]
mod tests;

pub use crate::counters::Counters;
pub use action::{Action, Body};
pub use change::{Asked, Change};
pub use load::{Asker, Load};
pub use own_keys::{LaterKey, OwnKeys};
pub use revoked::Revoked;
pub use target::ServedTarget;
pub use work::{CopyWork, OpId, Outcome, ReadWork, RepairWork, Work};

use crate::counters::add;
use auditing::Who;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weir_audit::Tally;
use weir_layout::{Piece, cut_count, share};
use weir_types::codec::Decode;
use weir_types::limits::{MAX_ALLOCATE_BYTES, MAX_PAYLOAD_BYTES};
use weir_types::{
    ClientId, Error, ErrorKind, FileId, Result, ServerId, SessionId, StripeMap, TargetId,
};
use weir_wire::capability::{ANY_FILE, Check, Refusal};
use weir_wire::data::{
    Access, AdminAccess, AllocateRequest, FenceRequest, ObjectLen, PunchRequest, ReadRequest,
    SeekRequest, StatObjectRequest, SyncRequest, TruncateRequest, WriteRequest,
};
use weir_wire::ticket::OF_SERVERS;
use weir_wire::{Capability, Header, Mac, Op, Rights};

/// A received request. `C` names a connection.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a, C> {
    /// Its connection.
    pub conn: C,
    /// Session of the connection's ticket.
    pub session: SessionId,
    /// Client of the connection's ticket; the number of a server if the session is of servers.
    pub client: ClientId,
    /// Its header.
    pub header: &'a Header,
    /// Its body.
    pub body: &'a [u8],
    /// The present time, milliseconds since 1970.
    pub now_unix_ms: u64,
}

/// The requester of an operation.
#[derive(Debug)]
struct Pending<C> {
    conn: C,
    session: SessionId,
    header: Header,
    target: Arc<ServedTarget>,
    /// Whether it reads one of several copies, which may cease to be current meanwhile.
    of_copies: bool,
    /// Whether a client waits for it, so that background work makes way.
    asked: bool,
    /// Who is recorded for it.
    who: Option<Who>,
}

/// The requests of one event loop.
#[derive(Debug)]
pub struct Machine<C> {
    server: ServerId,
    /// Sorted by id.
    targets: Vec<Arc<ServedTarget>>,
    counters: Arc<Counters>,
    revoked: Arc<Revoked>,
    pending: Vec<Option<Pending<C>>>,
    free: Vec<OpId>,
    pieces: Vec<Piece>,
    /// Who is recorded for the request that is being checked.
    admitted: Option<Who>,
    tally: Tally<TargetId>,
}

impl<C: Copy> Machine<C> {
    /// Makes a machine for these targets.
    pub fn new(
        server: ServerId,
        mut targets: Vec<Arc<ServedTarget>>,
        counters: Arc<Counters>,
        revoked: Arc<Revoked>,
    ) -> Self {
        targets.sort_by_key(|t| t.id);
        let (pending, free, pieces) = (Vec::new(), Vec::new(), Vec::new());
        let (admitted, tally) = <_>::default();
        Self { server, targets, counters, revoked, pending, free, pieces, admitted, tally }
    }

    /// Handles a request.
    pub fn on_request(&mut self, incoming: &Incoming<'_, C>, actions: &mut Vec<Action<C>>) {
        let Incoming { conn, header, .. } = *incoming;
        self.counters.count_op(header.op);
        self.admitted = None;
        let result = match header.op {
            op if incoming.session == OF_SERVERS && !may_servers_ask(op) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("data servers do not send `{}` to each other", op.label()),
            )),
            op if incoming.session != OF_SERVERS && only_servers_ask(op) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("only data servers may send `{}` to a data server", op.label()),
            )),
            Op::Read => self.read(incoming),
            Op::Write => self.write(incoming),
            Op::Sync => self.sync(incoming),
            Op::Truncate => self.truncate(incoming),
            Op::Punch => self.punch(incoming),
            Op::Allocate => self.allocate(incoming),
            Op::Seek => self.seek(incoming),
            Op::Fence => self.fence(incoming),
            Op::Copy => self.copy(incoming),
            Op::Align => self.align(incoming),
            Op::NoteGap => self.note_gap(incoming),
            Op::Repair => self.repair(incoming),
            Op::Stage => self.stage(incoming),
            Op::Forward => self.forward(incoming),
            Op::StatObject => self.stat(incoming),
            Op::ListObjects => self.list_objects(incoming),
            Op::Scrub => self.scrub(incoming),
            Op::RemoveObjects => self.remove_objects(incoming),
            Op::ListLacking => self.list_lacking(incoming),
            Op::AcceptLoss => self.accept_loss(incoming),
            Op::ListAudit => self.list_audit(incoming),
            Op::Ping => Ok(self.answer_at_once(incoming)),
            Op::Load => self.load(incoming),
            Op::ListReaders => self.list_readers(incoming),
            Op::Status => Ok(Action::Status { conn, header: Header::reply_to(header, None) }),
            op => Err(Error::new(
                ErrorKind::Unsupported,
                format!("a data server does not support `{}`", op.label()),
            )),
        };
        actions.push(result.unwrap_or_else(|error| {
            if matches!(error.kind, ErrorKind::Protocol | ErrorKind::InvalidArgument) {
                add(&self.counters.refused_malformed, 1);
            }
            let header = Header::reply_to(header, Some(error.kind));
            Action::Reply { conn, header, body: Body::Error(error), data_of: None }
        }));
    }

    /// Handles a probe that has missed the page cache.
    pub fn on_miss(&mut self, op: OpId, work: ReadWork, actions: &mut Vec<Action<C>>) {
        if let Some(Some(pending)) = self.pending.get(op.index()) {
            let (conn, target) = (pending.conn, pending.target.id);
            add(&self.counters.read_disk, 1);
            actions.push(Action::Disk { op, conn, target, work: Work::Read(work) });
        }
    }

    /// Handles the end of an operation. Its id may be used again after the actions were carried
    /// out.
    pub fn on_done(&mut self, op: OpId, result: Result<Outcome>, actions: &mut Vec<Action<C>>) {
        let Some(pending) = self.pending.get_mut(op.index()).and_then(Option::take) else {
            return;
        };
        self.free.push(op);
        let Pending { conn, header: request, target, asked, who, .. } = pending;
        self.note_done(who, &target, &request, &result);
        add(&self.counters.asked_ended, u64::from(asked));
        target.load.in_flight.fetch_sub(1, Relaxed);
        let mut data_of = None;
        let body = match result {
            Ok(Outcome::Read { bytes, object_len }) => {
                add(&self.counters.read_bytes, bytes);
                add(&target.load.read_bytes, bytes);
                data_of = Some(op);
                Body::Len(ObjectLen { len: object_len })
            }
            Ok(Outcome::Written { object_len }) => {
                add(&self.counters.written_bytes, u64::from(request.payload_len));
                add(&target.load.written_bytes, u64::from(request.payload_len));
                Body::Len(ObjectLen { len: object_len })
            }
            Ok(Outcome::Truncated { object_len } | Outcome::Reshaped { object_len }) => {
                Body::Len(ObjectLen { len: object_len })
            }
            Ok(Outcome::Found(found)) => Body::Found(found),
            Ok(Outcome::Copied(copied)) => {
                add(&self.counters.copied_bytes, copied.written);
                Body::Copied(copied)
            }
            Ok(Outcome::Synced | Outcome::Noted | Outcome::Repaired) => Body::Empty,
            Ok(Outcome::Stat(stat)) => Body::Stat(stat),
            Ok(Outcome::Listed(page)) => Body::Objects(page),
            Ok(Outcome::Lacking(page)) => Body::Lacking(page),
            Ok(Outcome::Scrubbed(page)) => {
                add(&self.counters.scrubbed_bytes, page.bytes);
                add(&self.counters.scrub_findings, page.findings.len() as u64);
                Body::Scrub(page)
            }
            Ok(Outcome::Removed { count }) => {
                add(&self.counters.objects_removed, count);
                Body::Empty
            }
            Err(error) => {
                self.counters.count_failure(error.kind);
                Body::Error(as_told(error))
            }
        };
        let status = if let Body::Error(error) = &body { Some(error.kind) } else { None };
        let mut header = Header::reply_to(&request, status);
        target.load.say(&request, &mut header);
        actions.push(Action::Reply { conn, header, body, data_of });
    }

    /// Requester of an operation; `None` if it has ended.
    pub fn asker(&self, op: OpId) -> Option<Asker> {
        let pending = self.pending.get(op.index())?.as_ref()?;
        Some(Asker::of(pending.session, &pending.header))
    }

    /// Target of the copy that an operation reads, if there are other copies.
    pub fn looks_at_copy(&self, op: OpId) -> Option<TargetId> {
        let pending = self.pending.get(op.index())?.as_ref()?;
        pending.of_copies.then_some(pending.target.id)
    }

    /// Number of operations that have not ended.
    pub fn in_progress(&self) -> usize {
        self.pending.len() - self.free.len()
    }

    fn read(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let request = ReadRequest::from_bytes(incoming.body)?;
        let target = self.admit(incoming, &request.access, Rights::READ)?;
        expect_no_payload(incoming.header)?;
        let Access { object, generation, ref copies, .. } = request.access;
        let of_copies = !copies.is_empty();
        if request.flags.as_is && (incoming.session != OF_SERVERS || of_copies) {
            let what = "only data servers read a copy as it is";
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        let (pieces, bytes) = self.share(&request.regions, request.stripe, &request.access)?;
        let work = ReadWork {
            object,
            generation,
            pieces,
            bytes,
            locked: request.flags.locked,
            unchecked: request.flags.unchecked,
            of_copies,
            as_is: request.flags.as_is,
        };
        let read = (object.copy.0 == 0, bytes, request.flags.near);
        let of_job = target.load.is_read(incoming.header, read, incoming.now_unix_ms);
        add(&self.counters.read_of_jobs, u64::from(of_job));
        let id = target.id;
        let op = self.begin(incoming, target, of_copies);
        if work.locked {
            add(&self.counters.read_locked, 1);
            let work = Work::Read(work);
            return Ok(Action::Disk { op, conn: incoming.conn, target: id, work });
        }
        Ok(Action::Probe { op, conn: incoming.conn, target: id, work })
    }

    fn write(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let request = WriteRequest::from_bytes(incoming.body)?;
        let target = self.admit(incoming, &request.access, Rights::WRITE)?;
        let (pieces, bytes) = self.share(&request.regions, request.stripe, &request.access)?;
        let cuts = cut_count(&self.pieces);
        let header = incoming.header;
        // Its client has left them here.
        let left = header.payload_len == 0
            && request.staged.is_some()
            && incoming.session == OF_SERVERS
            && u64::from(header.checks) == cuts;
        if !left {
            expect_payload(header, bytes, cuts)?;
        }
        let WriteRequest { access, stripe, flags, regions, staged } = request;
        let Access { object, generation, .. } = access;
        let staged = staged.filter(|_| bytes > 0);
        let work = Work::Write { object, pieces, generation, sync: flags.sync };
        self.change(incoming, target, access, Asked::Write { stripe, flags, regions, staged }, work)
    }

    fn sync(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let SyncRequest { access } = SyncRequest::from_bytes(incoming.body)?;
        let target = self.admit(incoming, &access, either_right(&access))?;
        expect_no_payload(incoming.header)?;
        let work = Work::Sync { object: access.object };
        self.change(incoming, target, access, Asked::Sync, work)
    }

    fn truncate(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let TruncateRequest { access, len } = TruncateRequest::from_bytes(incoming.body)?;
        let target = self.admit(incoming, &access, Rights::WRITE)?;
        expect_no_payload(incoming.header)?;
        let Access { object, generation, .. } = access;
        let work = Work::Truncate { object, len, generation };
        self.change(incoming, target, access, Asked::Truncate { len }, work)
    }

    fn punch(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let PunchRequest { access, offset, len } = PunchRequest::from_bytes(incoming.body)?;
        let target = self.admit(incoming, &access, Rights::WRITE)?;
        expect_no_payload(incoming.header)?;
        let Access { object, generation, .. } = access;
        let work = Work::Punch { object, offset, len, generation };
        self.change(incoming, target, access, Asked::Punch { offset, len }, work)
    }

    fn allocate(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let AllocateRequest { access, offset, len } = AllocateRequest::from_bytes(incoming.body)?;
        let target = self.admit(incoming, &access, Rights::WRITE)?;
        expect_no_payload(incoming.header)?;
        if len > MAX_ALLOCATE_BYTES {
            let what =
                format!("{len} bytes to reserve in one request, at most {MAX_ALLOCATE_BYTES}");
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        let Access { object, generation, .. } = access;
        let work = Work::Allocate { object, offset, len, generation };
        self.change(incoming, target, access, Asked::Allocate { offset, len }, work)
    }

    fn seek(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let SeekRequest { access, offset, hole } = SeekRequest::from_bytes(incoming.body)?;
        let target = self.admit(incoming, &access, either_right(&access))?;
        expect_no_payload(incoming.header)?;
        let Access { object, generation, ref copies, .. } = access;
        let of_copies = !copies.is_empty();
        let work = Work::Seek { object, offset, hole, generation, of_copies };
        Ok(self.queue_look(incoming, target, work, of_copies))
    }

    fn fence(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let FenceRequest { access } = FenceRequest::from_bytes(incoming.body)?;
        let target = self.admit(incoming, &access, Rights::WRITE)?;
        expect_no_payload(incoming.header)?;
        let Access { object, generation, .. } = access;
        let work = Work::Fence { object, generation };
        self.change(incoming, target, access, Asked::Fence, work)
    }

    fn stat(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let StatObjectRequest { access } = StatObjectRequest::from_bytes(incoming.body)?;
        let as_is = access.capability.rights.allow(Rights::ADMIN);
        let target = match as_is {
            true => self.admit_administrator(incoming, &AdminAccess::of(&access))?,
            // Whoever may append has to know the length as much as whoever reads.
            false => self.admit(incoming, &access, either_right(&access))?,
        };
        expect_no_payload(incoming.header)?;
        let of_copies = !access.copies.is_empty();
        let work = Work::Stat { object: access.object, of_copies, as_is };
        Ok(self.queue_look(incoming, target, work, of_copies))
    }

    fn answer_at_once(&self, incoming: &Incoming<'_, C>) -> Action<C> {
        let header = Header::reply_to(incoming.header, None);
        Action::Reply { conn: incoming.conn, header, body: Body::Empty, data_of: None }
    }

    /// Checks that the client may do this to the object at all.
    fn admit(
        &mut self,
        incoming: &Incoming<'_, C>,
        access: &Access,
        needed: Rights,
    ) -> Result<Arc<ServedTarget>> {
        let shown = (&access.capability, &access.mac);
        // A server that copies for a client has checked only where it writes. What the server of
        // another copy passes on was checked by that one: copies must not disagree.
        let of_client = incoming.session != OF_SERVERS
            || reads(incoming.header.op)
                && access.copies.is_empty()
                && access.capability.session != OF_SERVERS;
        self.check(incoming, access.target, shown, (access.object.file, needed), of_client)
    }

    /// Checks that the client may administer the target.
    fn admit_administrator(
        &mut self,
        incoming: &Incoming<'_, C>,
        access: &AdminAccess,
    ) -> Result<Arc<ServedTarget>> {
        let shown = (&access.capability, &access.mac);
        self.check(incoming, access.target, shown, (ANY_FILE, Rights::ADMIN), true)
    }

    fn served(&self, target: TargetId) -> Result<Arc<ServedTarget>> {
        let Ok(at) = self.targets.binary_search_by_key(&target, |t| t.id) else {
            add(&self.counters.refused_target, 1);
            return Err(Error::new(
                ErrorKind::TargetMissing,
                format!("target {target} is not served by server {}", self.server),
            ));
        };
        Ok(self.targets[at].clone())
    }

    /// Checks a capability for a request; `of_client`: also whether it has ended before its time.
    fn check(
        &mut self,
        incoming: &Incoming<'_, C>,
        target: TargetId,
        (capability, mac): (&Capability, &Mac),
        (file, needed): (FileId, Rights),
        of_client: bool,
    ) -> Result<Arc<ServedTarget>> {
        let target = self.served(target)?;
        // Another data server shows what was shown to it.
        let session = match incoming.session {
            OF_SERVERS => capability.session,
            session => session,
        };
        if of_client && let Err(error) = self.revoked.is_known() {
            add(&self.counters.refused_unsure, 1);
            return Err(error.context(format!("target {}", target.id)));
        }
        let revoked = || match of_client {
            true if capability.key_generation.0 < target.oldest_key.load(Relaxed) => {
                Some(Refusal::OldKey)
            }
            true => self.revoked.refusal(file, capability.version),
            false => None,
        };
        let refusal = target.keys.check(capability.key_generation, |key| {
            let (target, now_unix_ms) = (target.id, incoming.now_unix_ms);
            let check = Check { target, target_key: key, session, file, needed, now_unix_ms };
            match capability.refusal(mac, &check) {
                Some(Refusal::NotSigned) => Err(Some(Refusal::NotSigned)),
                refusal => Ok(refusal),
            }
        });
        if let Some(refusal) = refusal.or_else(revoked) {
            self.counters.count_refusal(refusal);
            self.note_refused(incoming, &target, (capability, file), refusal);
            let message = format!("target {}: {}", target.id, refusal.text());
            return Err(Error::new(ErrorKind::BadCapability, message));
        }
        if let Some(why) = &target.unopened {
            add(&self.counters.refused_unopened, 1);
            return Err(Error::new(ErrorKind::Io, why.clone()));
        }
        self.admitted = target.audit.is_on().then(|| Who::of(incoming, capability)).flatten();
        Ok(target)
    }

    /// The pieces of the object that the regions touch, and the sum of their lengths. The pieces
    /// stay in `self.pieces` too.
    fn share(
        &mut self,
        regions: &weir_layout::RegionList,
        stripe: StripeMap,
        access: &Access,
    ) -> Result<(Vec<(u64, u64)>, u64)> {
        let bytes = share(regions, stripe, access.object.column, &mut self.pieces)?;
        if bytes > MAX_PAYLOAD_BYTES as u64 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{bytes} bytes of one object in one request, at most {MAX_PAYLOAD_BYTES}"),
            ));
        }
        let pieces = self.pieces.iter().map(|p| (p.object_offset, p.len)).collect();
        Ok((pieces, bytes))
    }

    /// Records that a client waits for an operation that another server has passed on.
    fn is_asked(&mut self, op: OpId) {
        if let Some(Some(pending)) = self.pending.get_mut(op.index())
            && !std::mem::replace(&mut pending.asked, true)
        {
            add(&self.counters.asked_begun, 1);
        }
    }

    fn queue_work(
        &mut self,
        incoming: &Incoming<'_, C>,
        target: Arc<ServedTarget>,
        work: Work,
    ) -> Action<C> {
        self.queue_look(incoming, target, work, false)
    }

    /// Queues a read. `of_copies` says that there are other copies, so that this one may not be
    /// current.
    fn queue_look(
        &mut self,
        incoming: &Incoming<'_, C>,
        target: Arc<ServedTarget>,
        work: Work,
        of_copies: bool,
    ) -> Action<C> {
        let id = target.id;
        let op = self.begin(incoming, target, of_copies);
        Action::Disk { op, conn: incoming.conn, target: id, work }
    }

    fn begin(
        &mut self,
        incoming: &Incoming<'_, C>,
        target: Arc<ServedTarget>,
        of_copies: bool,
    ) -> OpId {
        target.load.in_flight.fetch_add(1, Relaxed);
        let (conn, header) = (incoming.conn, *incoming.header);
        let asked = incoming.session != OF_SERVERS;
        add(&self.counters.asked_begun, u64::from(asked));
        let (session, who) = (incoming.session, self.admitted.take());
        let pending = Some(Pending { conn, session, header, target, of_copies, asked, who });
        if let Some(op) = self.free.pop() {
            self.pending[op.index()] = pending;
            return op;
        }
        self.pending.push(pending);
        OpId((self.pending.len() - 1) as u32)
    }
}

/// Converts the interruption of a wait because this server stops. To the client the server is gone,
/// so it asks another one, or this one when it is back.
fn as_told(error: Error) -> Error {
    match error.kind {
        ErrorKind::Interrupted => {
            Error { kind: ErrorKind::Unreachable, ..error.context("the server stops") }
        }
        _ => error,
    }
}

fn expect_payload(header: &Header, bytes: u64, cuts: u64) -> Result<()> {
    if u64::from(header.payload_len) == bytes && u64::from(header.checks) == cuts {
        return Ok(());
    }
    let what = format!(
        "`{}` of {bytes} bytes in {cuts} blocks came with {} bytes and {} checksums",
        header.op.label(),
        header.payload_len,
        header.checks
    );
    Err(Error::new(ErrorKind::Protocol, what))
}

fn expect_no_payload(header: &Header) -> Result<()> {
    if header.payload_len != 0 || header.checks != 0 {
        let what = format!("`{}` takes neither payload nor checksums", header.op.label());
        return Err(Error::new(ErrorKind::Protocol, what));
    }
    Ok(())
}

/// Whether another data server may send the operation: it reads, and passes on clients' requests.
fn may_servers_ask(op: Op) -> bool {
    let hands_on =
        matches!(op, Op::Write | Op::Sync | Op::Truncate | Op::Punch | Op::Allocate | Op::Fence);
    reads(op) || op == Op::Ping || hands_on || only_servers_ask(op)
}

fn reads(op: Op) -> bool {
    matches!(op, Op::Read | Op::Seek | Op::StatObject)
}

fn only_servers_ask(op: Op) -> bool {
    matches!(op, Op::Align | Op::NoteGap | Op::Repair)
}

/// The rights for an operation for which any right to the object suffices.
fn either_right(access: &Access) -> Rights {
    if access.capability.rights.allow(Rights::WRITE) { Rights::WRITE } else { Rights::READ }
}
