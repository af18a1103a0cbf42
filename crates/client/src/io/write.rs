//! One write call: sends the data to all servers at once, and keeps it until every server has
//! confirmed it, so that it can be sent again.

use super::drive::{drive, now_ms};
use super::parts::{Parts, Until};
use super::stage::{gather_answers, leave};
use crate::config::Consistency;
use crate::core::durable::Taken;
use crate::core::plan::{Place, Plan};
use crate::core::transfer::Transfer;
use crate::counters::add;
use crate::rpc::servers::DataConn;
use crate::state::{Bytes, Call, Sent, WriteOp};
use std::io::IoSlice;
use weir_host::plant::{Bug, planted};
use weir_layout::{Run, cuts, scatter};
use weir_net::Wait;
use weir_types::checksum::crc32c;
use weir_types::{ErrorKind, Generation, Result};
use weir_wire::data::{ObjectLen, WriteFlags, WriteRequest};
use weir_wire::{Header, Request, Rights};

struct WriteParts<'a> {
    call: Call<'a>,
    plan: &'a mut Plan,
    conns: &'a mut Vec<Option<DataConn>>,
    taken: &'a mut Vec<Option<Taken>>,
    sent: &'a mut Vec<Sent>,
    left: &'a mut Vec<Vec<DataConn>>,
    data: &'a Bytes,
    losses: u64,
    generation: Generation,
}

impl WriteOp {
    /// Sends the requests of a planned write.
    pub(crate) fn start(call: Call<'_>, plan: Plan, offset: u64, data: Bytes, losses: u64) -> Self {
        let deadline_ms = now_ms() + call.inner.config.request_timeout_ms;
        let mut op = Self {
            range: offset..offset + data.len() as u64,
            data,
            transfer: Transfer::new(plan.parts.len(), deadline_ms),
            conns: plan.parts.iter().map(|_| None).collect(),
            taken: vec![None; plan.parts.len()],
            sent: vec![Sent::default(); plan.parts.len()],
            left: Vec::new(),
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

    /// Waits until every server has confirmed, at most until the deadline.
    pub(crate) fn finish(&mut self, call: Call<'_>, deadline_ms: u64) -> Result<()> {
        self.transfer.set_deadline_ms(deadline_ms);
        self.drive(call, Until::Done)
    }

    fn drive(&mut self, call: Call<'_>, until: Until) -> Result<()> {
        let mut parts = WriteParts {
            call,
            plan: &mut self.plan,
            conns: &mut self.conns,
            taken: &mut self.taken,
            sent: &mut self.sent,
            left: &mut self.left,
            data: &self.data,
            losses: self.losses,
            generation: self.generation,
        };
        drive(call, &mut self.transfer, &mut parts, until)
    }
}

impl Parts for WriteParts<'_> {
    fn place(&mut self, part: usize) -> &mut Place {
        &mut self.plan.parts[part].place
    }

    fn changes(&self, _part: usize) -> bool {
        true
    }

    fn conns(&mut self) -> &mut [Option<DataConn>] {
        self.conns
    }

    fn send(&mut self, part: usize, _locked: bool, conn: &mut DataConn, wait: &Wait) -> Result<()> {
        if self.call.inner.config.consistency == Consistency::Strict {
            // No write starts while leases may have been taken away.
            self.call.inner.holdings.clock.wait(wait)?;
            if self.call.file.is_fenced_off(&self.call.inner.config, self.generation) {
                self.call.file.lose_leases();
            }
            if self.call.file.losses() != self.losses {
                return Err(ErrorKind::LeaseLost.into());
            }
        }
        let chunk = self.plan.chunk(part);
        let at = usize::try_from(chunk.buffer_offset).unwrap_or(usize::MAX);
        let mut runs = Vec::new();
        let column = self.plan.parts[part].place.object.column;
        let bytes = scatter(&chunk.regions, chunk.stripe, column, &mut runs)?;
        let mut pieces = Vec::with_capacity(runs.len() + 1);
        for run in &runs {
            self.data.pieces(at, run, &mut pieces).ok_or(ErrorKind::Internal)?;
        }
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|(_, b)| IoSlice::new(b)).collect();
        let mut checks = Vec::with_capacity(bytes as usize / 4096 + 2);
        for (run, bytes) in &pieces {
            checksums(bytes, run, &mut checks);
        }
        let access = self.call.file.access(&self.plan.parts[part].place, Rights::WRITE)?;
        let protocol = self.call.file.protocol();
        let several = !access.copies.is_empty();
        // What failed is sent again to the one that orders, and that one sees to the others.
        let first = self.sent[part].copies.is_empty();
        let later = several && protocol.is_later();
        self.sent[part] = Sent::of(&access, later, &self.call.inner.servers);
        let staged = match several && first && protocol.is_by_client() && bytes > 0 {
            true => {
                self.left.resize_with(self.plan.parts.len(), Vec::new);
                leave(self.call, &access, chunk, (&checks, &slices), &mut self.left[part])
            }
            false => {
                self.left.get_mut(part).into_iter().for_each(Vec::clear);
                None
            }
        };
        let request = WriteRequest {
            access,
            stripe: chunk.stripe,
            // How fast a disk is shows when it has them, not when its server has.
            flags: WriteFlags { later, sync: self.call.file.is_graduated() },
            regions: chunk.regions.clone(),
            staged,
        };
        let mut header = Header::request(WriteRequest::OP, conn.conn.next_request_id());
        self.call.ctx.sign(&mut header);
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
        if let Some(left) = self.left.get_mut(part) {
            gather_answers(self.call, std::mem::take(left));
        }
        self.taken[part] = Some(self.sent[part].taken_by(conn));
        Ok(())
    }
}

fn checksums(bytes: &[u8], run: &Run, checks: &mut Vec<u32>) {
    let mut at = 0;
    for cut in cuts(&[run.piece()]) {
        checks.push(crc32c(&bytes[at..at + cut.len]));
        at += cut.len;
    }
}
