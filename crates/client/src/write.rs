//! One write call: the data to all servers at once, kept until every server
//! has confirmed it, so that it can be sent again.

use crate::buffer::Buffer;
use crate::config::Consistency;
use crate::core::plan::Plan;
use crate::core::transfer::Transfer;
use crate::counters::add;
use crate::drive::{Call, Parts, Until, drive, now_ms};
use crate::servers::DataConn;
use std::io::IoSlice;
use std::ops::Range;
use weir_host::plant::{Bug, planted};
use weir_layout::{Run, cuts, scatter};
use weir_net::Wait;
use weir_types::checksum::crc32c;
use weir_types::{ErrorKind, Generation, ObjectId, Result, TargetId};
use weir_wire::data::{ObjectLen, WriteFlags, WriteRequest};
use weir_wire::{Header, Request, Rights};

/// Bytes on their way to the servers.
pub enum WriteData {
    /// In a buffer of ours.
    Ours(Buffer, usize),
    /// In a buffer of the caller's, given away so that nothing is copied.
    Owned(Box<dyn AsRef<[u8]> + Send>),
}

impl AsRef<[u8]> for WriteData {
    fn as_ref(&self) -> &[u8] {
        match self {
            WriteData::Ours(buffer, len) => &buffer[..*len],
            WriteData::Owned(owned) => (**owned).as_ref(),
        }
    }
}

/// A write that has been sent.
pub(crate) struct WriteOp {
    pub(crate) range: Range<u64>,
    data: WriteData,
    /// The part of `data` that is written.
    slice: Range<usize>,
    plan: Plan,
    transfer: Transfer,
    conns: Vec<Option<DataConn>>,
    /// The run of the machine that confirmed each part.
    confirmed_by: Vec<Option<u64>>,
    /// How often the leases had been lost when it was written.
    losses: u64,
    /// What it was written under.
    generation: Generation,
}

struct WriteParts<'a> {
    call: Call<'a>,
    plan: &'a Plan,
    conns: &'a mut Vec<Option<DataConn>>,
    confirmed_by: &'a mut Vec<Option<u64>>,
    data: &'a [u8],
    losses: u64,
    generation: Generation,
}

impl WriteOp {
    /// Sends the requests of a planned write of `data[slice]`.
    pub(crate) fn start(
        call: Call<'_>,
        plan: Plan,
        offset: u64,
        data: WriteData,
        slice: Range<usize>,
        losses: u64,
    ) -> Self {
        let deadline_ms = now_ms() + call.inner.config.request_timeout_ms;
        let mut op = Self {
            range: offset..offset + slice.len() as u64,
            data,
            slice,
            transfer: Transfer::new(plan.parts.len(), deadline_ms),
            conns: plan.parts.iter().map(|_| None).collect(),
            confirmed_by: vec![None; plan.parts.len()],
            plan,
            losses,
            generation: call.file.generation(),
        };
        // What fails now is tried again by `finish`.
        if let Err(error) = op.drive(call, Until::Sent) {
            tracing::debug!("{error}");
        }
        op
    }

    /// Waits until every server has confirmed, but not beyond the deadline.
    pub(crate) fn finish(&mut self, call: Call<'_>, deadline_ms: u64) -> Result<()> {
        self.transfer.set_deadline_ms(deadline_ms);
        self.drive(call, Until::Done)
    }

    /// Which servers it went to.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What was confirmed so far, each with the run of the machine that did.
    pub(crate) fn confirmed(&self) -> impl Iterator<Item = ((ObjectId, TargetId), u64)> + '_ {
        let parts = self.plan.parts.iter().zip(&self.confirmed_by);
        parts.filter_map(|(part, by)| by.map(|by| ((part.object, part.target), by)))
    }

    /// Bytes that are kept for a repetition.
    pub(crate) fn len(&self) -> usize {
        self.slice.len()
    }

    fn drive(&mut self, call: Call<'_>, until: Until) -> Result<()> {
        let data = self.data.as_ref().get(self.slice.clone()).ok_or(ErrorKind::Internal)?;
        let mut parts = WriteParts {
            call,
            plan: &self.plan,
            conns: &mut self.conns,
            confirmed_by: &mut self.confirmed_by,
            data,
            losses: self.losses,
            generation: self.generation,
        };
        drive(call, &mut self.transfer, &mut parts, until)
    }
}

impl Parts for WriteParts<'_> {
    fn target(&self, part: usize) -> TargetId {
        self.plan.parts[part].target
    }

    fn conn(&mut self, part: usize) -> &mut Option<DataConn> {
        &mut self.conns[part]
    }

    fn send(&mut self, part: usize, _locked: bool, conn: &mut DataConn, wait: &Wait) -> Result<()> {
        if self.call.inner.config.consistency == Consistency::Strict {
            // No write starts while leases may have been taken away.
            self.call.inner.holdings.clock.wait(wait)?;
            if self.call.file.is_fenced_off(self.call.inner, self.generation) {
                self.call.file.lose_leases();
            }
            if self.call.file.losses() != self.losses {
                return Err(ErrorKind::LeaseLost.into());
            }
        }
        let chunk = self.plan.chunk(part);
        let at = usize::try_from(chunk.buffer_offset).unwrap_or(usize::MAX);
        let source = self.data.get(at..).ok_or(ErrorKind::Internal)?;
        let mut runs = Vec::new();
        let column = self.plan.parts[part].object.column;
        let bytes = scatter(&chunk.regions, chunk.stripe, column, &mut runs)?;
        let slices: Vec<IoSlice<'_>> =
            runs.iter().map(|r| IoSlice::new(bytes_of(source, r))).collect();
        let mut checks = Vec::with_capacity(bytes as usize / 4096 + 2);
        for run in &runs {
            checksums(bytes_of(source, run), run, &mut checks);
        }
        let request = WriteRequest {
            access: self.call.file.access(&self.plan.parts[part], Rights::WRITE)?,
            stripe: chunk.stripe,
            flags: WriteFlags::default(),
            regions: chunk.regions.clone(),
        };
        let mut header = Header::request(WriteRequest::OP, conn.conn.next_request_id());
        header.job = self.call.ctx.job;
        header.rank = self.call.ctx.rank;
        add(&self.call.inner.counters.write_wire_bytes, bytes);
        conn.conn.send(header, &request, &checks, &slices, wait)
    }

    fn receive(&mut self, part: usize, conn: &mut DataConn, wait: &Wait) -> Result<()> {
        let reply = conn.conn.recv_reply::<ObjectLen>(wait).map(drop);
        let lost = reply.as_ref().is_err_and(|e| e.kind == ErrorKind::Unreachable);
        if lost && planted(Bug::DropRetriedWrite) {
            return Ok(());
        }
        reply.map_err(|e| self.plan.locate_damage(part, e))?;
        self.confirmed_by[part] = Some(conn.instance);
        Ok(())
    }
}

fn bytes_of<'a>(source: &'a [u8], run: &Run) -> &'a [u8] {
    let start = run.buffer_offset as usize;
    &source[start..start + run.len as usize]
}

fn checksums(bytes: &[u8], run: &Run, checks: &mut Vec<u32>) {
    let mut at = 0;
    for cut in cuts(&[run.piece()]) {
        checks.push(crc32c(&bytes[at..at + cut.len]));
        at += cut.len;
    }
}
