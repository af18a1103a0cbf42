//! Gathers writes into requests for whole stripes, and tracks requests on their way.

use crate::core::gather::{Gather, gather, is_full, joins, room};
use crate::core::plan::Plan;
use crate::io::drive::now_ms;
use crate::state::{
    Buffer, Bytes, Call, Gathered, InFlight, WriteData, WriteOp, Writer, was_refused,
};
use std::ops::Range;
use std::sync::atomic::Ordering;
use weir_host::clock;
use weir_layout::{begins_block, preferred_io_bytes};
use weir_policy::Micros;
use weir_types::{Error, ErrorKind, FileLayout, Result};

/// The most requests of one file on their way. Each has its own connection.
pub(super) const MAX_IN_FLIGHT: usize = 32;
/// Bytes per server of a stripe in one request. A request costs a server as much as 100 to 200 KiB
/// of data.
const REQUEST_BYTES: usize = 512 << 10;
/// The most gathered bytes. More would leave the CPU caches before they are sent.
const GATHER_BYTES: usize = 2 << 20;

impl Writer {
    pub(super) fn gather(
        &mut self,
        call: Call<'_>,
        mut offset: u64,
        mut data: &[u8],
    ) -> Result<()> {
        let layout = call.file.layout();
        let capacity = gathered_bytes(&layout);
        while !data.is_empty() {
            let (start, held) = self.gathered.as_ref().map_or((offset, 0), Gathered::held);
            let goes_on = |gathered: &Gathered| gathered.takes_at(&layout, offset);
            match gather(start, held, capacity, offset, data.len()) {
                Gather::Append(n) if self.gathered.as_ref().is_none_or(goes_on) => {
                    self.hold(call, capacity, offset, &data[..n]);
                    offset += n as u64;
                    data = &data[n..];
                }
                Gather::Append(_) | Gather::SendFirst => self.send_gathered(call),
            }
        }
        Ok(())
    }

    fn hold(&mut self, call: Call<'_>, capacity: usize, offset: u64, data: &[u8]) {
        let mut gathered = self.gathered_at(offset);
        if !gathered.bytes.append(data) {
            let (start, held) = gathered.held();
            let buffer = Buffer::take(&call.inner.buffers, room(start, held, capacity));
            gathered.bytes.push(WriteData::Ours(buffer, 0));
            gathered.bytes.append(data);
        }
        self.keep(call, gathered, capacity);
    }

    /// Gathers a buffer that was handed over, without a copy.
    pub(super) fn join(&mut self, call: Call<'_>, offset: u64, data: WriteData) {
        let layout = call.file.layout();
        let (capacity, next) = (gathered_bytes(&layout), (offset, data.as_ref().len()));
        if let Some(held) = self.gathered.as_ref().map(Gathered::held)
            && !joins(held, capacity, next, begins_block(&layout, offset))
        {
            self.send_gathered(call);
        }
        let mut gathered = self.gathered_at(offset);
        gathered.bytes.push(data);
        self.keep(call, gathered, capacity);
    }

    fn gathered_at(&mut self, offset: u64) -> Gathered {
        let (bytes, call) = (Bytes::default(), self.calls);
        self.gathered.take().unwrap_or(Gathered { start: offset, bytes, call })
    }

    fn keep(&mut self, call: Call<'_>, gathered: Gathered, capacity: usize) {
        let (start, held) = gathered.held();
        // Beyond the pool nothing is held back.
        let full = is_full(start, held, capacity) || gathered.bytes.is_beyond_pool();
        self.gathered = Some(gathered);
        if full {
            self.send_gathered(call);
        }
    }

    pub(super) fn send_gathered(&mut self, call: Call<'_>) {
        let Some(Gathered { start, bytes, call: by }) = self.gathered.take() else { return };
        if let Err(error) = self.submit(call, start, bytes, by) {
            self.failed(call, error, by);
        }
    }

    /// Sends bytes whose oldest are of call number `by`.
    pub(super) fn submit(
        &mut self,
        call: Call<'_>,
        offset: u64,
        data: Bytes,
        by: u64,
    ) -> Result<()> {
        let len = data.len();
        let range = offset..offset + len as u64;
        let overlaps =
            |sent: &InFlight| sent.op.range.start < range.end && range.start < sent.op.range.end;
        if let Some(last) = self.in_flight.iter().rposition(overlaps) {
            self.finish_first(call, last + 1);
        }
        let plan = match self.plan(call, &range) {
            Ok(plan) => plan,
            Err(error) => {
                self.tail.refused(range);
                return Err(error);
            }
        };
        // Memory beyond the pool is given back before more is taken.
        let beyond_pool = data.is_beyond_pool();
        self.start(call, plan, (offset, by), data, Vec::new());
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

    fn plan(&mut self, call: Call<'_>, range: &Range<u64>) -> Result<Plan> {
        let len = range.end - range.start;
        match call.file.plan(range.start, len) {
            Err(error) if error.kind == ErrorKind::Stale => {
                call.file.refresh(call.inner, call.ctx)?;
                self.cover(call, range.clone())?;
                call.file.plan(range.start, len)
            }
            plan => plan,
        }
    }

    pub(super) fn start(
        &mut self,
        call: Call<'_>,
        plan: Plan,
        (offset, by): (u64, u64),
        data: Bytes,
        fills: Vec<(u64, u64)>,
    ) {
        for part in &plan.parts {
            self.unsynced.sent(part.place);
        }
        let outstanding = self.outstanding(call, &plan);
        let at = now_us();
        let op = WriteOp::start(call, plan, offset, data, self.losses);
        self.in_flight_bytes += op.len();
        self.in_flight.push_back(InFlight { by, at, outstanding, fills, op });
    }

    fn finish_first(&mut self, call: Call<'_>, count: usize) {
        // One deadline for all, or a dead server would be waited for many times.
        let deadline_ms = now_ms() + call.inner.config.request_timeout_ms;
        for _ in 0..count {
            self.finish(call, 0, deadline_ms);
        }
    }

    /// Waits for the reply to one of the requests on their way, if that exists.
    pub(super) fn finish(&mut self, call: Call<'_>, which: usize, deadline_ms: u64) {
        let Some(mut sent) = self.in_flight.remove(which) else { return };
        let (by, op) = (sent.by, &mut sent.op);
        self.in_flight_bytes -= op.len();
        let finished = op.finish(call, deadline_ms);
        for (place, taken) in op.confirmed() {
            self.unsynced.confirmed(place, taken);
        }
        self.has_ended(&sent, finished.is_ok());
        call.file.changes.fetch_add(1, Ordering::AcqRel);
        let op = &sent.op;
        match finished {
            Ok(()) => {
                self.note_written(op.plan());
                if sent.fills.is_empty() {
                    self.filled.note(op.generation, (op.range.start, op.range.end));
                }
                sent.fills.iter().for_each(|range| self.filled.note(op.generation, *range));
                self.tail.confirmed(op.range.end);
            }
            Err(error) => {
                call.inner.counters.presence.data_lost(call.file.id, &error);
                call.file.change_failed(&error);
                if was_refused(&error) && !op.may_be_done_yet() && sent.fills.is_empty() {
                    self.tail.confirmed(op.confirmed_end());
                    self.tail.refused(op.range.clone());
                } else {
                    // Nobody knows, or others may have written in between: it counts as written.
                    self.tail.confirmed(op.range.end);
                }
                if op.may_be_done_yet() {
                    call.file.leave_unconfirmed();
                }
                self.failed(call, error, by);
            }
        }
    }

    /// Gives up bytes that call number `by`, or a later one, has taken or is about to take.
    fn failed(&mut self, call: Call<'_>, error: Error, by: u64) {
        match by >= self.under_way {
            true => self.failures.note_own(by..=by, error),
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
        if self.gathered.is_none() {
            self.give_back(call);
        }
    }
}

/// Bytes of a file that are gathered: whole stripes.
fn gathered_bytes(layout: &FileLayout) -> usize {
    let one = preferred_io_bytes(layout) as usize;
    let columns = layout.segments.first().map_or(1, |segment| segment.columns.len());
    one * ((columns * REQUEST_BYTES).min(GATHER_BYTES) / one).max(1)
}

pub(super) fn now_us() -> Micros {
    clock::uptime().as_micros() as Micros
}
