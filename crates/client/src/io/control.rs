//! Small requests with one message for each column: sync, truncate, and those about disk space.

use super::drive::{drive, now_ms, take_rest};
use super::parts::{Parts, Until};
use crate::core::copies::Purpose;
use crate::core::durable::Taken;
use crate::core::plan::Place;
use crate::core::transfer::Transfer;
use crate::rpc::servers::DataConn;
use crate::state::{Call, Sent};
use weir_net::Wait;
use weir_types::{Error, ErrorKind, Generation, Result, TargetId};
use weir_wire::data::{
    Access, AllocateRequest, FenceRequest, ObjectLen, ObjectStat, PunchRequest, SeekRequest,
    StatObjectRequest, SyncRequest, TruncateRequest,
};
use weir_wire::{Header, Request, Rights};

/// The most objects that are asked in parallel.
pub(crate) const BATCH: usize = 32;
/// First timeout of a connection attempt when several servers are asked about allocated space, or
/// something else is to be done beside. It is doubled with each failure.
const CONNECT_TO_ASK_MS: u64 = 100;
/// The most doublings of that timeout.
const MAX_DOUBLINGS: u32 = 6;

/// An operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Make it durable.
    Sync,
    /// Truncate it to this length, by the truncation of this generation. Under a later generation
    /// the request would pass for a later truncation, which cuts more.
    Truncate {
        /// Remaining bytes.
        len: u64,
        /// Generation of the truncation.
        generation: Generation,
    },
    /// Punch a hole.
    Punch {
        /// First byte.
        offset: u64,
        /// Length, bytes.
        len: u64,
    },
    /// Preallocate disk space for a range.
    Allocate {
        /// First byte.
        offset: u64,
        /// Length, bytes.
        len: u64,
    },
    /// Refuse writes of lower generations from now on, and return the length.
    Fence(Generation),
    /// Find data or a hole.
    Seek {
        /// First byte to look at.
        offset: u64,
        /// Whether to look for a hole.
        hole: bool,
    },
    /// Ask for its allocated space.
    Stat,
}

impl Control {
    /// Rights that the operation needs. Any right to a file suffices to sync it and to find its
    /// holes.
    fn needed(self) -> Rights {
        match self {
            Control::Sync | Control::Seek { .. } | Control::Stat => Rights::NONE,
            Control::Truncate { .. }
            | Control::Punch { .. }
            | Control::Allocate { .. }
            | Control::Fence(_) => Rights::WRITE,
        }
    }

    /// Whether the operation could undo newer writes if it is carried out late. (A truncation and a
    /// fence are bound to one generation.)
    fn may_undo(self) -> bool {
        matches!(self, Control::Punch { .. } | Control::Allocate { .. })
    }
}

struct ControlParts<'a> {
    call: Call<'a>,
    list: &'a mut [(Place, Control)],
    /// The generation of the file to which the operation is bound. It is refused under any other.
    bound: Option<Generation>,
    /// Whether something else is to be done as soon as these are sent: a server that cannot be
    /// reached is tried again after it.
    hurries: bool,
    sent: Vec<Sent>,
    conns: Vec<Option<DataConn>>,
    answers: Vec<Answer>,
}

/// Result of an operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// The server and the copies that have taken the change.
    pub(crate) taken: Option<Taken>,
    /// Result of a seek.
    pub(crate) found: Option<u64>,
    /// State that a fence or a query has returned.
    pub(crate) stat: Option<ObjectStat>,
}

/// Carries out a list of operations, several in parallel. Returns for each which server took it.
pub(crate) fn run_control(
    call: Call<'_>,
    list: Vec<(Place, Control)>,
) -> Result<Vec<Option<Taken>>> {
    run_control_under(call, list, None)
}

/// As [`run_control`], and calls `beside` once, while the servers work on the first operations.
pub(crate) fn run_control_beside(
    call: Call<'_>,
    mut list: Vec<(Place, Control)>,
    beside: &mut dyn FnMut(),
) -> Result<Vec<Option<Taken>>> {
    let rest = list.split_off(list.len().min(BATCH));
    let mut answers = ask_batch(call, &mut list, None, Some(beside))?;
    answers.append(&mut ask_objects_under(call, rest, None)?);
    Ok(answers.into_iter().map(|answer| answer.taken).collect())
}

/// As [`run_control`]. With `bound` the operations belong to this generation of the file: after any
/// truncation or fence they are refused, however often they are retried.
pub(crate) fn run_control_under(
    call: Call<'_>,
    list: Vec<(Place, Control)>,
    bound: Option<Generation>,
) -> Result<Vec<Option<Taken>>> {
    let answers = ask_objects_under(call, list, bound)?;
    Ok(answers.into_iter().map(|answer| answer.taken).collect())
}

/// Carries out a list of operations, several in parallel, and returns their results.
pub(crate) fn ask_objects(call: Call<'_>, list: Vec<(Place, Control)>) -> Result<Vec<Answer>> {
    ask_objects_under(call, list, None)
}

fn ask_objects_under(
    call: Call<'_>,
    mut list: Vec<(Place, Control)>,
    bound: Option<Generation>,
) -> Result<Vec<Answer>> {
    let mut answers = Vec::with_capacity(list.len());
    for batch in list.chunks_mut(BATCH) {
        answers.append(&mut ask_batch(call, batch, bound, None)?);
    }
    Ok(answers)
}

/// Carries out at most [`BATCH`] operations in parallel. `beside` is called when all were sent.
fn ask_batch(
    call: Call<'_>,
    batch: &mut [(Place, Control)],
    bound: Option<Generation>,
    beside: Option<&mut dyn FnMut()>,
) -> Result<Vec<Answer>> {
    let deadline_ms = || now_ms() + call.inner.config.request_timeout_ms;
    let mut transfer = Transfer::new(batch.len(), deadline_ms());
    let conns = batch.iter().map(|_| None).collect();
    let fresh = vec![Answer::default(); batch.len()];
    let sent = vec![Sent::default(); batch.len()];
    let hurries = beside.is_some();
    let mut parts = ControlParts { call, list: batch, bound, hurries, sent, conns, answers: fresh };
    if let Some(beside) = beside {
        // What fails now is tried again below.
        if let Err(error) = drive(call, &mut transfer, &mut parts, Until::Sent) {
            tracing::debug!("{error}");
        }
        parts.hurries = false;
        beside();
        transfer.retry_deferred();
        transfer.set_deadline_ms(deadline_ms());
    }
    let done = drive(call, &mut transfer, &mut parts, Until::Done);
    // One was refused while others were on their way, say.
    if transfer.outstanding().any(|part| parts.list[part].1.may_undo()) {
        call.file.leave_unconfirmed();
    }
    done?;
    for (part, _) in transfer.lacking() {
        // Nobody can say where the holes of a lost column are: it counts as full.
        if let Control::Seek { offset, hole } = parts.list[*part].1 {
            parts.answers[*part].found = (!hole).then_some(offset);
        }
    }
    Ok(parts.answers)
}

/// Result of asking for the allocated space of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// `None` if there was no reply.
    pub(crate) found: Option<u64>,
    /// The target that was asked last.
    pub(crate) target: TargetId,
    /// Whether that target gave no reply or was unreachable.
    pub(crate) silent: bool,
}

/// Asks for the allocated space of at most [`BATCH`] objects, within `time_ms`. When one request
/// fails, replies of the others that have arrived are taken, and no further ones are waited for.
///
/// # Errors
/// `Interrupted`.
pub(crate) fn ask_allocated(call: Call<'_>, places: &[Place], time_ms: u64) -> Result<Vec<Asked>> {
    let mut list: Vec<_> = places.iter().map(|place| (*place, Control::Stat)).collect();
    let mut transfer = Transfer::new(list.len(), now_ms() + time_ms);
    let conns = list.iter().map(|_| None).collect();
    let answers = vec![Answer::default(); list.len()];
    let sent = vec![Sent::default(); list.len()];
    let (bound, hurries) = (None, false);
    let mut parts = ControlParts { call, list: &mut list, bound, hurries, sent, conns, answers };
    let failure = drive(call, &mut transfer, &mut parts, Until::Done).err();
    if let Some(error) = &failure {
        if error.kind == ErrorKind::Interrupted {
            return Err(error.clone());
        }
        tracing::debug!("file {}: allocated space: {error}", call.file.id);
        take_rest(call, &transfer, &mut parts);
    }
    let is_silence =
        |error: &Error| matches!(error.kind, ErrorKind::TimedOut | ErrorKind::Unreachable);
    let of_part = |(part, (place, _)): (usize, &(Place, Control))| {
        // Of a column with several copies the failure of the call names all of them.
        let told = transfer.told(part).iter().find(|told| told.copy == place.object.copy);
        let why = told.map(|told| &told.error).or(failure.as_ref());
        let found = parts.answers[part].stat.as_ref().map(|stat| stat.allocated);
        let silent = found.is_none() && why.is_some_and(is_silence);
        Asked { found, target: place.target, silent }
    };
    Ok(parts.list.iter().enumerate().map(of_part).collect())
}

impl Parts for ControlParts<'_> {
    fn place(&mut self, part: usize) -> &mut Place {
        &mut self.list[part].0
    }

    fn changes(&self, part: usize) -> bool {
        self.list[part].1.needed() == Rights::WRITE
    }

    fn purpose(&self, part: usize) -> Purpose {
        // The primary makes all copies durable.
        let any = matches!(self.list[part].1, Control::Seek { .. } | Control::Stat);
        if any { Purpose::Read } else { Purpose::Change }
    }

    fn connect_ms(&self, failures: u32) -> Option<u64> {
        if self.hurries {
            return Some(CONNECT_TO_ASK_MS);
        }
        self.takes_as_they_come().then_some(CONNECT_TO_ASK_MS << failures.min(MAX_DOUBLINGS))
    }

    fn hurries(&self) -> bool {
        self.hurries
    }

    fn takes_as_they_come(&self) -> bool {
        self.list.iter().all(|(_, control)| *control == Control::Stat)
    }

    fn may_lack(&self) -> bool {
        self.list.iter().all(|(_, control)| matches!(control, Control::Seek { .. }))
    }

    fn conns(&mut self) -> &mut [Option<DataConn>] {
        &mut self.conns
    }

    fn send(&mut self, part: usize, _locked: bool, conn: &mut DataConn, wait: &Wait) -> Result<()> {
        let (place, control) = self.list[part];
        let access = self.call.file.access(&place, control.needed())?;
        self.check_bound(access.generation)?;
        self.sent[part] = Sent::of(&access, false, &self.call.inner.servers);
        match control {
            Control::Sync => ask(conn, &SyncRequest { access }, wait),
            Control::Truncate { len, generation } => {
                let access = Access { generation, ..access };
                ask(conn, &TruncateRequest { access, len }, wait)
            }
            Control::Punch { offset, len } => {
                ask(conn, &PunchRequest { access, offset, len }, wait)
            }
            Control::Allocate { offset, len } => {
                ask(conn, &AllocateRequest { access, offset, len }, wait)
            }
            Control::Fence(generation) => {
                ask(conn, &FenceRequest { access: Access { generation, ..access } }, wait)
            }
            Control::Seek { offset, hole } => {
                ask(conn, &SeekRequest { access, offset, hole }, wait)
            }
            Control::Stat => ask(conn, &StatObjectRequest { access }, wait),
        }
    }

    fn receive(&mut self, part: usize, conn: &mut DataConn, wait: &Wait) -> Result<()> {
        self.answers[part].taken = Some(self.sent[part].taken_by(conn));
        match self.list[part].1 {
            Control::Sync => conn.conn.recv_reply::<()>(wait),
            Control::Truncate { .. } | Control::Punch { .. } | Control::Allocate { .. } => {
                conn.conn.recv_reply::<ObjectLen>(wait).map(drop)
            }
            Control::Fence(_) | Control::Stat => {
                self.answers[part].stat = Some(conn.conn.recv_reply(wait)?);
                Ok(())
            }
            Control::Seek { .. } => {
                self.answers[part].found = conn.conn.recv_reply(wait)?;
                Ok(())
            }
        }
    }

    /// Renews layout and map. A truncation stays bound to its generation even if the file has a
    /// newer one: an overtaken truncation is refused however often it is retried.
    fn refresh(&mut self, call: Call<'_>) -> Result<()> {
        call.file.refresh(call.inner, call.ctx)?;
        let now = call.file.generation();
        let overtaken = |(_, control): &(Place, Control)| match control {
            Control::Truncate { generation, .. } => *generation < now,
            _ => false,
        };
        if self.list.iter().any(overtaken) {
            let what = format!("file {}: another truncation came after this one", call.file.id);
            return Err(Error::new(ErrorKind::Stale, what));
        }
        self.check_bound(now)
    }
}

impl ControlParts<'_> {
    fn check_bound(&self, now: Generation) -> Result<()> {
        if self.bound.is_none_or(|bound| bound == now) {
            return Ok(());
        }
        let what = format!("file {}: it was truncated or fenced meanwhile", self.call.file.id);
        Err(Error::new(ErrorKind::Stale, what))
    }
}

fn ask<R: Request>(conn: &mut DataConn, request: &R, wait: &Wait) -> Result<()> {
    let header = Header::request(R::OP, conn.conn.next_request_id());
    conn.conn.send(header, request, &[], &[], wait)
}
