//! Small requests, one for each column: sync, truncate, and what is done to
//! the room of an object.

use crate::core::copies::Purpose;
use crate::core::durable::Taken;
use crate::core::plan::Place;
use crate::core::transfer::Transfer;
use crate::drive::{Call, Parts, Until, drive, now_ms, take_rest};
use crate::servers::DataConn;
use crate::write::Sent;
use weir_net::Wait;
use weir_types::{Error, ErrorKind, Generation, Result, TargetId};
use weir_wire::data::{
    Access, AllocateRequest, FenceRequest, ObjectLen, ObjectStat, PunchRequest, SeekRequest,
    StatObjectRequest, SyncRequest, TruncateRequest,
};
use weir_wire::{Header, Request, Rights};

/// Objects asked at the same time.
pub(crate) const BATCH: usize = 32;
/// To connect takes no longer at first where others are to be asked what they hold; doubled with
/// each failure.
const CONNECT_TO_ASK_MS: u64 = 100;
/// How often at the most.
const MAX_DOUBLINGS: u32 = 6;

/// What to do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Make it durable.
    Sync,
    /// Cut it to this length, by the truncation of this generation: under a later
    /// one, which cuts more, it would pass for that.
    Truncate {
        /// Bytes that stay.
        len: u64,
        /// That of the truncation.
        generation: Generation,
    },
    /// Make a range zeros.
    Punch {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Reserve room for a range.
    Allocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Refuse writes of lower generations from now on, and ask for the length.
    Fence(Generation),
    /// Find data or a hole.
    Seek {
        /// From here on.
        offset: u64,
        /// A hole.
        hole: bool,
    },
    /// Ask what it takes.
    Stat,
}

impl Control {
    /// What rights it takes. Whoever may use a file may ask that it be durable, and
    /// where its holes are.
    fn needed(self) -> Rights {
        match self {
            Control::Sync | Control::Seek { .. } | Control::Stat => Rights::NONE,
            Control::Truncate { .. }
            | Control::Punch { .. }
            | Control::Allocate { .. }
            | Control::Fence(_) => Rights::WRITE,
        }
    }

    /// Whether it could undo what was written since, if it is done late. (A truncation and a
    /// fence are of one generation.)
    fn may_undo(self) -> bool {
        matches!(self, Control::Punch { .. } | Control::Allocate { .. })
    }
}

struct ControlParts<'a> {
    call: Call<'a>,
    list: &'a mut [(Place, Control)],
    /// It is to be done under this generation of the file, or not at all.
    bound: Option<Generation>,
    sent: Vec<Sent>,
    conns: Vec<Option<DataConn>>,
    answers: Vec<Answer>,
}

/// What came of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// Who did it.
    pub(crate) taken: Option<Taken>,
    /// What a seek found.
    pub(crate) found: Option<u64>,
    /// What a fence found, or was asked.
    pub(crate) stat: Option<ObjectStat>,
}

/// Does all of a list, several at a time. Returns for each who did it.
pub(crate) fn run_control(
    call: Call<'_>,
    list: Vec<(Place, Control)>,
) -> Result<Vec<Option<Taken>>> {
    run_control_under(call, list, None)
}

/// The same. With `bound` it is done under this generation of the file: once the file was truncated
/// or fenced, by anybody, it is refused, however often it is asked for.
pub(crate) fn run_control_under(
    call: Call<'_>,
    list: Vec<(Place, Control)>,
    bound: Option<Generation>,
) -> Result<Vec<Option<Taken>>> {
    let answers = ask_objects_under(call, list, bound)?;
    Ok(answers.into_iter().map(|answer| answer.taken).collect())
}

/// Does all of a list, several at a time.
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
        let deadline_ms = now_ms() + call.inner.config.request_timeout_ms;
        let mut transfer = Transfer::new(batch.len(), deadline_ms);
        let conns = batch.iter().map(|_| None).collect();
        let fresh = vec![Answer::default(); batch.len()];
        let sent = vec![Sent::default(); batch.len()];
        let mut parts = ControlParts { call, list: batch, bound, sent, conns, answers: fresh };
        let done = drive(call, &mut transfer, &mut parts, Until::Done);
        // One was refused while others were on their way, say.
        if transfer.outstanding().any(|part| parts.list[part].1.may_undo()) {
            call.file.leave_unconfirmed();
        }
        done?;
        answers.append(&mut parts.answers);
    }
    Ok(answers)
}

/// What came of asking what an object takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// `None`: it was not said.
    pub(crate) found: Option<u64>,
    /// Who was asked last.
    pub(crate) target: TargetId,
    /// And did not answer, or was not there.
    pub(crate) silent: bool,
}

/// Asks what the data of some objects takes, at most [`BATCH`], within so long. When one fails
/// what has come from the others is taken, and nothing more is waited for.
///
/// # Errors
/// `Interrupted`.
pub(crate) fn ask_allocated(call: Call<'_>, places: &[Place], time_ms: u64) -> Result<Vec<Asked>> {
    let mut list: Vec<_> = places.iter().map(|place| (*place, Control::Stat)).collect();
    let mut transfer = Transfer::new(list.len(), now_ms() + time_ms);
    let conns = list.iter().map(|_| None).collect();
    let answers = vec![Answer::default(); list.len()];
    let sent = vec![Sent::default(); list.len()];
    let bound = None;
    let mut parts = ControlParts { call, list: &mut list, bound, sent, conns, answers };
    let failure = drive(call, &mut transfer, &mut parts, Until::Done).err();
    if let Some(error) = &failure {
        if error.kind == ErrorKind::Interrupted {
            return Err(error.clone());
        }
        tracing::debug!("file {}: what it takes: {error}", call.file.id);
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
        self.takes_as_they_come().then_some(CONNECT_TO_ASK_MS << failures.min(MAX_DOUBLINGS))
    }

    fn takes_as_they_come(&self) -> bool {
        self.list.iter().all(|(_, control)| *control == Control::Stat)
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
        self.answers[part].taken = Some(self.sent[part].taken_by(conn.instance));
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

    /// A truncation is of one generation, also when the file has a newer one: who
    /// has been overtaken is refused however often it asks.
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
