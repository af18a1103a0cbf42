//! Gathering small writes into whole stripes, and requests on their way.

use super::graduated::now_us;
use super::{InFlight, Writer};
use crate::buffer::Buffer;
use crate::core::gather::{Gather, gather, is_full};
use crate::core::plan::Plan;
use crate::drive::{Call, now_ms};
use crate::write::{WriteData, WriteOp};
use weir_layout::preferred_io_bytes;
use weir_types::{Error, ErrorKind, Result};

/// Requests of one file on their way: each has a connection of its own.
pub(super) const MAX_IN_FLIGHT: usize = 32;

pub(super) struct Gathered {
    start: u64,
    buffer: Buffer,
    len: usize,
    /// The number of the call whose bytes are the oldest.
    call: u64,
}

impl Writer {
    pub(super) fn gather(
        &mut self,
        call: Call<'_>,
        mut offset: u64,
        mut data: &[u8],
    ) -> Result<()> {
        let capacity = preferred_io_bytes(&call.file.layout()) as usize;
        while !data.is_empty() {
            let (start, held) = self.gathered.as_ref().map_or((offset, 0), |g| (g.start, g.len));
            match gather(start, held, capacity, offset, data.len()) {
                Gather::SendFirst => self.send_gathered(call),
                Gather::Direct => {
                    let mut buffer = Buffer::take(&call.inner.buffers, data.len());
                    buffer[..data.len()].copy_from_slice(data);
                    let data = WriteData::Ours(buffer, data.len());
                    return self.submit(call, offset, data, self.calls);
                }
                Gather::Append(n) => {
                    self.hold(call, capacity, offset, &data[..n])?;
                    offset += n as u64;
                    data = &data[n..];
                }
            }
        }
        Ok(())
    }

    fn hold(&mut self, call: Call<'_>, capacity: usize, offset: u64, data: &[u8]) -> Result<()> {
        let mut gathered = match self.gathered.take() {
            Some(gathered) => gathered,
            None => Gathered {
                start: offset,
                buffer: Buffer::take(&call.inner.buffers, capacity),
                len: 0,
                call: self.calls,
            },
        };
        gathered.buffer[gathered.len..gathered.len + data.len()].copy_from_slice(data);
        gathered.len += data.len();
        // Beyond the pool nothing is held back.
        let full = is_full(gathered.start, gathered.len, capacity) || !gathered.buffer.is_pooled();
        self.gathered = Some(gathered);
        if full {
            self.send_gathered(call);
        }
        Ok(())
    }

    pub(super) fn send_gathered(&mut self, call: Call<'_>) {
        if let Some(Gathered { start, buffer, len, call: by }) = self.gathered.take()
            && let Err(error) = self.submit(call, start, WriteData::Ours(buffer, len), by)
        {
            self.failed(call, error, by);
        }
    }

    /// Sends bytes of which the oldest are those of call number `by`.
    pub(super) fn submit(
        &mut self,
        call: Call<'_>,
        offset: u64,
        data: WriteData,
        by: u64,
    ) -> Result<()> {
        let len = data.as_ref().len();
        let range = offset..offset + len as u64;
        let overlaps =
            |sent: &InFlight| sent.op.range.start < range.end && range.start < sent.op.range.end;
        if let Some(last) = self.in_flight.iter().rposition(overlaps) {
            self.finish_first(call, last + 1);
        }
        let plan = match call.file.plan(offset, len as u64) {
            Err(error) if error.kind == ErrorKind::Stale => {
                call.file.refresh(call.inner, call.ctx)?;
                self.cover(call, range.clone())?;
                call.file.plan(offset, len as u64)?
            }
            plan => plan?,
        };
        // Memory beyond the pool is given back before more is taken.
        let beyond_pool = matches!(&data, WriteData::Ours(buffer, _) if !buffer.is_pooled());
        self.start(call, plan, (offset, by), data, 0..len);
        if beyond_pool {
            self.finish_all(call);
        }
        if call.file.is_graduated() {
            self.keep_busy(call);
            return Ok(());
        }
        while self.in_flight_bytes > call.inner.config.write_behind_bytes.max(1)
            || self.in_flight.len() > MAX_IN_FLIGHT
        {
            self.finish_first(call, 1);
        }
        Ok(())
    }

    pub(super) fn start(
        &mut self,
        call: Call<'_>,
        plan: Plan,
        (offset, by): (u64, u64),
        data: WriteData,
        slice: std::ops::Range<usize>,
    ) {
        for part in &plan.parts {
            self.unsynced.sent(part.place);
        }
        let outstanding = self.outstanding(call, &plan);
        let at = now_us();
        let op = WriteOp::start(call, plan, offset, data, slice, self.losses);
        self.in_flight_bytes += op.len();
        self.in_flight.push_back(InFlight { by, at, outstanding, op });
    }

    fn finish_first(&mut self, call: Call<'_>, count: usize) {
        // One deadline for all, or a dead server would be waited for many times.
        let deadline_ms = now_ms() + call.inner.config.request_timeout_ms;
        for _ in 0..count {
            self.finish(call, 0, deadline_ms);
        }
    }

    /// Waits for the answer to one of the requests on their way, if there is it.
    pub(super) fn finish(&mut self, call: Call<'_>, which: usize, deadline_ms: u64) {
        let Some(mut sent) = self.in_flight.remove(which) else { return };
        let (by, op) = (sent.by, &mut sent.op);
        self.in_flight_bytes -= op.len();
        let finished = op.finish(call, deadline_ms);
        for (place, taken) in op.confirmed() {
            self.unsynced.confirmed(place, taken);
        }
        self.has_ended(&sent, finished.is_ok());
        let op = &sent.op;
        match finished {
            Ok(()) => self.note_written(op.plan()),
            Err(error) => {
                call.inner.counters.presence.data_lost(call.file.id, &error);
                call.file.change_failed(&error);
                if op.may_be_done_yet() {
                    call.file.leave_unconfirmed();
                }
                self.failed(call, error, by);
            }
        }
    }

    /// Bytes are given up that call number `by` has taken, or is about to.
    fn failed(&mut self, call: Call<'_>, error: Error, by: u64) {
        match by == self.calls {
            true => self.failures.note_own(error),
            false => self.failures.note(error),
        }
        // They are nowhere else, and would be there until the page has to make room.
        call.inner.holdings.drops.of(call.file.id);
    }

    fn note_written(&mut self, plan: &Plan) {
        for part in &plan.parts {
            let start = plan.chunks[part.chunk].segment_start;
            let object = part.place.object;
            self.written.note(object.segment, start, object.column);
        }
    }

    pub(super) fn finish_all(&mut self, call: Call<'_>) {
        self.finish_first(call, self.in_flight.len());
    }
}
