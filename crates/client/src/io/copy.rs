//! Requests for copies that the servers make among themselves.

use super::drive::{drive, now_ms};
use super::parts::{Parts, Until};
use crate::config::Consistency;
use crate::core::copies::Purpose;
use crate::core::copy::CopyPart;
use crate::core::durable::Taken;
use crate::core::plan::Place;
use crate::core::transfer::Transfer;
use crate::rpc::servers::DataConn;
use crate::state::{Call, OpenState, Sent};
use weir_net::Wait;
use weir_types::{CopyIndex, ErrorKind, Generation, ObjectId, Result};
use weir_wire::data::{Copied, CopyRequest};
use weir_wire::{Header, Request, Rights};

/// The most requests in parallel, each on its own connection.
pub(crate) const BATCH: usize = 32;
/// State of a file when its part in a copy began.
#[derive(Clone, Copy)]
struct Began {
    losses: u64,
    generation: Generation,
}

impl Began {
    fn of(file: &OpenState) -> Self {
        Self { losses: file.losses(), generation: file.generation() }
    }

    /// Fails if leases that the copy relied on were lost.
    fn still_holds(self, call: Call<'_>) -> Result<()> {
        if call.file.is_fenced_off(&call.inner.config, self.generation) {
            call.file.lose_leases();
        }
        if call.file.losses() == self.losses { Ok(()) } else { Err(ErrorKind::LeaseLost.into()) }
    }
}

/// A completed request.
#[derive(Clone)]
pub(crate) struct Done {
    /// The server and the copies that have taken the change.
    pub(crate) taken: Taken,
    pub(crate) copied: Copied,
}

struct CopyParts<'a> {
    /// Call on the source file.
    from: Call<'a>,
    /// Call on the destination file.
    to: Call<'a>,
    began: (Began, Began),
    list: Vec<CopyPart>,
    sent: Vec<Sent>,
    /// Copies of the source that requests have named already, for each part.
    sources: Vec<Vec<CopyIndex>>,
    conns: Vec<Option<DataConn>>,
    done: &'a mut Vec<Option<Done>>,
}

/// Carries out a list of at most [`BATCH`] requests. Completed requests are in `done`, even if
/// others fail.
pub(crate) fn run_copy(
    from: Call<'_>,
    to: Call<'_>,
    list: &[CopyPart],
    done: &mut Vec<Option<Done>>,
) -> Result<()> {
    done.clear();
    done.resize(list.len(), None);
    let deadline_ms = now_ms() + to.inner.config.request_timeout_ms;
    let mut transfer = Transfer::new(list.len(), deadline_ms);
    let conns = list.iter().map(|_| None).collect();
    let began = (Began::of(from.file), Began::of(to.file));
    let (sent, sources) = (vec![Sent::default(); list.len()], vec![Vec::new(); list.len()]);
    let list = list.to_vec();
    let mut parts = CopyParts { from, to, began, list, sent, sources, conns, done };
    let ended = drive(to, &mut transfer, &mut parts, Until::Done);
    if transfer.outstanding().next().is_some() {
        // Done late, it would undo what was written since.
        to.file.leave_unconfirmed();
    }
    ended
}

impl Parts for CopyParts<'_> {
    fn place(&mut self, part: usize) -> &mut Place {
        &mut self.list[part].to
    }

    fn changes(&self, _part: usize) -> bool {
        true
    }

    fn conns(&mut self) -> &mut [Option<DataConn>] {
        &mut self.conns
    }

    fn send(&mut self, part: usize, _locked: bool, conn: &mut DataConn, wait: &Wait) -> Result<()> {
        if self.to.inner.config.consistency == Consistency::Strict {
            self.to.inner.holdings.clock.wait(wait)?;
            self.began.0.still_holds(self.from)?;
            self.began.1.still_holds(self.to)?;
        }
        self.choose_source(part);
        let CopyPart { from, to, pieces, .. } = &self.list[part];
        let access = self.to.file.access(to, Rights::WRITE)?;
        self.sent[part] = Sent::of(&access, false, &self.to.inner.servers);
        let request = CopyRequest {
            access,
            source: self.from.file.access(from, Rights::READ)?,
            pieces: pieces.clone(),
        };
        let mut header = Header::request(CopyRequest::OP, conn.conn.next_request_id());
        self.to.ctx.sign(&mut header);
        conn.conn.send(header, &request, &[], &[], wait)
    }

    fn receive(&mut self, part: usize, conn: &mut DataConn, wait: &Wait) -> Result<()> {
        let copied: Copied = conn.conn.recv_reply(wait)?;
        self.done[part] = Some(Done { taken: self.sent[part].taken_by(conn), copied });
        Ok(())
    }

    fn refresh(&mut self, call: Call<'_>) -> Result<()> {
        // Nobody knows whose capability it was.
        self.from.file.refresh(call.inner, call.ctx)?;
        match std::ptr::eq(self.from.file, call.file) {
            true => Ok(()),
            false => call.file.refresh(call.inner, call.ctx),
        }
    }
}

impl CopyParts<'_> {
    /// Chooses another copy of the source for each attempt: it is unknown whether the reading or
    /// the writing server has failed.
    fn choose_source(&mut self, part: usize) {
        let (place, tried) = (&mut self.list[part].from, &mut self.sources[part]);
        let object = place.object;
        let servers = &self.from.inner.servers;
        let chosen = self.from.file.with_segment(object, |segment| {
            let next = |tried: &[CopyIndex]| {
                servers.next_copy(Purpose::Read, segment, object.column, tried)
            };
            next(tried).or_else(|| {
                tried.clear();
                next(tried)
            })
        });
        // If there is none, the one named last is asked, and says so.
        if let Some((copy, target)) = chosen.flatten() {
            tried.push(copy);
            *place = Place { object: ObjectId { copy, ..object }, target, ..*place };
        }
    }
}
