//! Copies between files that the servers carry out. No bytes pass through the client, unless a
//! server cannot reach another one, or rotted bytes have to be located.

use crate::Consistency;
use crate::context::Context;
use crate::core::copies::Purpose;
use crate::core::copy::{CopyPart, MAX_COPY_CALL_BYTES};
use crate::core::durable::Taken;
use crate::core::lease::CallKind;
use crate::core::plan::{MAX_CALL_BYTES, Place};
use crate::core::transfer::Transfer;
use crate::counters::add;
use crate::drive::{Call, Parts, Until, drive, now_ms};
use crate::file::{File, OpenState};
use crate::leases::span;
use crate::reader::Reader;
use crate::servers::DataConn;
use crate::write::Sent;
use crate::writer::{Returns, Writer};
use std::ops::Range;
use std::sync::Arc;
use weir_net::Wait;
use weir_types::{CopyIndex, Error, ErrorKind, Generation, ObjectId, Result};
use weir_wire::data::{Copied, CopyRequest};
use weir_wire::{Header, Request, Rights};

/// The most requests in parallel, each on its own connection.
pub(crate) const BATCH: usize = 32;
/// Bytes read and written at once where the servers cannot copy.
const STEP_BYTES: u64 = 1 << 20;

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
        if call.file.is_fenced_off(call.inner, self.generation) {
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

impl File {
    /// Copies bytes of this file to another file of the same client, or within this one. Returns
    /// the number of copied bytes. It is less than `len` if the file ends earlier, and for very
    /// large ranges. The servers copy among themselves, and keep holes.
    ///
    /// # Errors
    /// `InvalidArgument` if the ranges overlap in one file, `CrossDevice` if the files are not of
    /// the same client; those of reading and writing. The destination range may then hold old or
    /// new bytes.
    pub fn copy_range(
        &self,
        ctx: &Context,
        offset: u64,
        to: &File,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        if !Arc::ptr_eq(&self.inner, &to.inner) {
            return Err(ErrorKind::CrossDevice.into());
        }
        let len = len.min(MAX_COPY_CALL_BYTES);
        let (source, dest) = (span(offset, len)?, span(to_offset, len)?);
        if len == 0 {
            return Ok(0);
        }
        let same = self.id() == to.id();
        if same && source.start < dest.end && dest.start < source.end {
            return Err(Error::new(ErrorKind::InvalidArgument, "the ranges overlap"));
        }
        // Before there are leases, or the call could be in the way of who knows it. Should
        // the file be cut until then, getting the lease tells.
        let timeout_ms = self.inner.config.request_timeout_ms;
        self.learn_size(self.call(ctx), source.end, timeout_ms)?;
        let wait = Wait::for_ms(timeout_ms).interruptible(ctx.interrupt);
        let pair = if same { None } else { Some(self.inner.pairs.enter(&wait)?) };
        // In the order of their ids, or two such calls could wait for each other.
        let (_one, _other) = if same {
            (to.enter_all(ctx, &[source.clone(), dest], CallKind::Write)?, None)
        } else if self.id() < to.id() {
            let reading = self.enter(ctx, source.clone(), CallKind::Look)?;
            (reading, Some(to.enter(ctx, dest, CallKind::Write)?))
        } else {
            let writing = to.enter(ctx, dest, CallKind::Write)?;
            (writing, Some(self.enter(ctx, source.clone(), CallKind::Look)?))
        };
        drop(pair);
        let from = self.call(ctx);
        Writer::settle(from)?;
        let end = source.end.min(self.size());
        if end <= source.start {
            return Ok(0);
        }
        let source = source.start..end;
        if !Writer::copy(to.call(ctx), from, source.clone(), to_offset)? {
            self.copy_by_hand(from, source.clone(), to.call(ctx), to_offset)?;
        }
        to.pass_on(to.call(ctx))?;
        Ok(end - source.start)
    }

    /// Copies by reading and writing, under the leases of the call.
    fn copy_by_hand(
        &self,
        from: Call<'_>,
        source: Range<u64>,
        to: Call<'_>,
        to_offset: u64,
    ) -> Result<()> {
        const { assert!(STEP_BYTES as usize <= MAX_CALL_BYTES) };
        let mut buffer = vec![0; STEP_BYTES.min(source.end - source.start) as usize];
        let mut at = source.start;
        // What was fetched ahead of a reader may be older than the writes before.
        self.state.reader().clear();
        while at < source.end {
            let len = STEP_BYTES.min(source.end - at) as usize;
            let mut done = 0;
            while done < len {
                let dest = &mut buffer[done..len];
                done += Reader::read(
                    from,
                    (self.consistency(), self.pattern()),
                    at + done as u64,
                    dest,
                )?;
            }
            add(&to.inner.counters.copied_by_hand_bytes, len as u64);
            Writer::write(to, to_offset + (at - source.start), &buffer[..len], Returns::Taken)?;
            at += len as u64;
        }
        Ok(())
    }
}
