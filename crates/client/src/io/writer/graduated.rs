//! Graduated writing: files whose chunks may go to any target. Replies are received in order of
//! arrival, so that the load of each target is known as soon as it has replied.

use super::send::{MAX_IN_FLIGHT, now_us};
use crate::core::graduated::Answer;
use crate::core::plan::{Part, Plan};
use crate::io::drive::now_ms;
use crate::state::{Call, InFlight, Writer};
use std::collections::BTreeMap;
use std::ops::Range;
use weir_net::Wait;
use weir_types::{Result, TargetId};

/// Bytes that are on their way to all targets together. With two targets each has more than one
/// chunk, and neither has much left when the other is done.
const WINDOW_BYTES: usize = 8 << 20;
/// Poll interval while no target has replied, milliseconds.
const LOOK_MS: u64 = 3;

impl Writer {
    /// Extends the layout to cover a range that is about to be written.
    pub(super) fn cover(&mut self, call: Call<'_>, range: Range<u64>) -> Result<()> {
        let mut pending = BTreeMap::<TargetId, u64>::new();
        // Small writes seldom need another chunk, and to look costs a call for each request.
        if !call.file.covers(range.end) && call.file.is_graduated() {
            self.finish_answered(call);
            for (target, bytes, _) in self.in_flight.iter().flat_map(|sent| &sent.outstanding) {
                *pending.entry(*target).or_default() += bytes;
            }
        }
        let waits = |chunk_bytes: u64, given: &BTreeMap<TargetId, u64>| {
            let mut pending = pending.clone();
            given.iter().for_each(|(target, bytes)| *pending.entry(*target).or_default() += bytes);
            self.graduated.waits(chunk_bytes, &pending)
        };
        call.file.cover(call, range, waits)
    }

    /// Waits until there is space for another request.
    pub(super) fn keep_busy(&mut self, call: Call<'_>) {
        let is_full =
            |w: &Self| w.in_flight_bytes > WINDOW_BYTES || w.in_flight.len() > MAX_IN_FLIGHT;
        let deadline_ms = now_ms() + call.inner.config.request_timeout_ms;
        self.finish_answered(call);
        let mut turn = 0;
        while is_full(self) {
            // One after another, so that nobody is waited for who does not answer.
            let which = turn % self.in_flight.len();
            turn += 1;
            self.in_flight[which].op.is_answered(&Wait::for_ms(LOOK_MS));
            if !self.finish_answered(call) && now_ms() >= deadline_ms {
                self.finish(call, 0, deadline_ms);
            }
        }
    }

    /// Receives all replies that have arrived. Returns whether there were any.
    pub(super) fn finish_answered(&mut self, call: Call<'_>) -> bool {
        // One deadline for all, or a dead server would be waited for many times.
        let deadline_ms = now_ms() + call.inner.config.request_timeout_ms;
        let before = self.in_flight.len();
        let mut which = 0;
        while which < self.in_flight.len() {
            if self.in_flight[which].op.is_answered(&Wait::for_ms(0)) {
                self.finish(call, which, deadline_ms);
            } else {
                which += 1;
            }
        }
        self.looked = now_us();
        self.in_flight.len() < before
    }

    /// For each part of a request that is about to be sent: its target, its bytes, and the bytes
    /// that the target then has outstanding.
    pub(super) fn outstanding(&self, call: Call<'_>, plan: &Plan) -> Vec<(TargetId, u64, u64)> {
        if !call.file.is_graduated() {
            return Vec::new();
        }
        let sent = || self.in_flight.iter().flat_map(|sent| &sent.outstanding);
        let own = |target: TargetId| {
            sent().filter(move |(to, ..)| *to == target).map(|(_, bytes, _)| bytes)
        };
        let of = |part: &Part| {
            // A chunk has one column.
            let (target, chunk) = (part.place.target, &plan.chunks[part.chunk]);
            let bytes = chunk.regions.total_bytes();
            (target, bytes, own(target).sum::<u64>() + bytes)
        };
        plan.parts.iter().map(of).collect()
    }

    /// Records that a request has ended, with success or not.
    pub(super) fn has_ended(&mut self, sent: &InFlight, is_done: bool) {
        // Of several targets nobody knows when the first one had answered; nor when it was if
        // nobody looked for long, as while the program did something else.
        let ([(target, _, own_bytes)], true) = (&sent.outstanding[..], is_done) else { return };
        let now = now_us();
        let took_us = now.saturating_sub(sent.at);
        if now.saturating_sub(self.looked.max(sent.at)) <= took_us / 4 + LOOK_MS * 1_000 {
            self.graduated.answered(*target, Answer { took_us, own_bytes: *own_bytes });
        }
    }
}
