//! Reads with read-ahead. Ranges are requested before the reader wants them, and their bytes wait
//! in buffers of the servers and the kernel until the reader's own buffer can receive them. No
//! thread, no copy.

use super::read::may_read_any_copy;
use crate::config::{Consistency, ReadPolicy};
use crate::core::plan::{Part, Plan};
use crate::core::stream::{MAX_AHEAD_BYTES, Pattern, records_of};
use crate::counters::add;
use crate::state::{Buffer, CUT_BYTES, Call, Data, Piece, ReadOp, Reader};
use std::ops::Range;
use std::sync::atomic::Ordering;
use weir_host::clock;
use weir_layout::covered_bytes;
use weir_types::{ErrorKind, Result};

/// The most ranges of one file that are on their way or held.
const MAX_PIECES: usize = 32;
impl Reader {
    /// Reads at least one byte, at most all of `dest`, which lies within the file.
    pub(crate) fn read(
        call: Call<'_>,
        (consistency, pattern): (Consistency, Pattern),
        offset: u64,
        dest: &mut [u8],
    ) -> Result<usize> {
        let file = call.file;
        let range = offset..offset + dest.len() as u64;
        let any_copy = may_read_any_copy(call, consistency);
        let (taken, version) = {
            let mut reader = file.reader();
            let losses = file.losses();
            if std::mem::replace(&mut reader.losses, losses) != losses {
                reader.clear();
            }
            reader.reading += 1;
            let mut taken = reader.take(offset, consistency);
            // Ahead of the lease, others may write before it is read.
            let limit = match consistency {
                Consistency::Strict => file.lease().reach(offset),
                Consistency::Relaxed => u64::MAX,
                Consistency::None => 0,
            };
            let leased = consistency == Consistency::Strict;
            match pattern {
                Pattern::Usual => reader.fetch_ahead(call, range, (limit, leased), any_copy),
                Pattern::Reverse => reader.fetch_behind(call, range, consistency, any_copy),
                Pattern::Records(bytes) if taken.is_none() => {
                    reader.fetch_records(call, (&range, bytes), consistency, any_copy);
                    taken = reader.take(offset, consistency);
                }
                Pattern::Random | Pattern::Records(_) => {}
            }
            (taken, reader.version)
        };
        let read = match taken {
            Some(piece) => {
                add(&call.inner.counters.ahead_used, 1);
                from_piece(call, (piece, pattern), offset, dest, version)
            }
            None => {
                // Up to the next range that is already on its way.
                let len = file.reader().gap(offset).min(dest.len() as u64) as usize;
                direct(call, offset, &mut dest[..len], any_copy).map(|()| len)
            }
        };
        file.reader().ended();
        read
    }

    fn fetch_ahead(
        &mut self,
        call: Call<'_>,
        range: Range<u64>,
        (limit, leased): (u64, bool),
        any_copy: bool,
    ) {
        let mut size = call.file.size().min(limit);
        if call.inner.config.only_hinted {
            return;
        }
        if call.inner.config.prefers_near {
            // The next chunk is for who is near to it.
            size = size.min(call.file.segment_end(range.end.saturating_sub(1)));
        }
        if call.file.dirty.load(Ordering::Acquire) {
            // It would be out of date when it is used.
            return;
        }
        let window = call.inner.config.read_ahead_bytes;
        let mut ahead = std::mem::take(&mut self.ahead);
        self.streams.on_read(range, size, window, &mut ahead);
        ahead.drain(..).for_each(|range| self.fetch(call, range, leased, any_copy));
        self.ahead = ahead;
    }

    /// For a reader that goes to the beginning of the file.
    fn fetch_behind(
        &mut self,
        call: Call<'_>,
        range: Range<u64>,
        consistency: Consistency,
        any_copy: bool,
    ) {
        if consistency == Consistency::None || call.file.dirty.load(Ordering::Acquire) {
            return;
        }
        let leased = consistency == Consistency::Strict;
        let window = call.inner.config.read_ahead_bytes;
        let mut ahead = std::mem::take(&mut self.ahead);
        self.streams.on_read_backward(range, window, &mut ahead);
        // Before the lease, others may write before it is read.
        ahead.retain(|range| !leased || call.file.lease().reach(range.start) >= range.end);
        ahead.drain(..).for_each(|range| self.fetch(call, range, leased, any_copy));
        self.ahead = ahead;
    }

    /// Asks for the whole records of a range that has only parts of some.
    fn fetch_records(
        &mut self,
        call: Call<'_>,
        (range, bytes): (&Range<u64>, u64),
        consistency: Consistency,
        any_copy: bool,
    ) {
        let is_off = call.inner.config.read_ahead_bytes == 0;
        if is_off || consistency == Consistency::None || call.file.dirty.load(Ordering::Acquire) {
            return;
        }
        let Some(whole) = records_of(range, bytes, call.file.size()) else { return };
        let leased = consistency == Consistency::Strict;
        // Beyond the lease, others may write before it is read.
        let may = !leased || call.file.lease().reach(whole.start) >= whole.end;
        let overlaps = |p: &Piece| p.range.start < whole.end && whole.start < p.range.end;
        if may && !self.pieces.iter().any(overlaps) {
            self.fetch(call, whole, leased, any_copy);
        }
    }

    fn fetch(&mut self, call: Call<'_>, range: Range<u64>, leased: bool, any_copy: bool) {
        let len = range.end - range.start;
        // What the layout does not cover is a hole: nothing to fetch.
        let Ok(plan) = call.file.plan(range.start, len) else { return };
        if self.pieces.len() >= MAX_PIECES {
            self.pieces.remove(0);
        }
        add(&call.inner.counters.ahead_fetched, 1);
        let op = ReadOp::start(call, plan, len as usize, (any_copy, true));
        let data = Data::Asked(Box::new(op));
        self.pieces.push(Piece { range, data, since: clock::now(), leased });
    }

    /// Asks for a range that somebody will read, but what is on its way or held already.
    pub(crate) fn will_need(
        &mut self,
        call: Call<'_>,
        range: Range<u64>,
        (limit, leased): (u64, bool),
        any_copy: bool,
    ) {
        if call.file.dirty.load(Ordering::Acquire) {
            // It would be out of date when it is used.
            return;
        }
        let window = call.inner.config.read_ahead_bytes.min(MAX_PIECES as u64 * MAX_AHEAD_BYTES);
        let most = range.start.saturating_add(window);
        let end = range.end.min(call.file.size()).min(limit).min(most);
        let mut at = range.start;
        while at < end {
            if let Some(piece) = self.pieces.iter().find(|piece| piece.range.contains(&at)) {
                at = piece.range.end;
                continue;
            }
            let to = end.min(at + MAX_AHEAD_BYTES).min(at.saturating_add(self.gap(at)));
            self.fetch(call, at..to, leased, any_copy);
            at = to;
        }
    }
}

/// Serves a read from a range that was fetched ahead. The unread rest of the range is kept.
fn from_piece(
    call: Call<'_>,
    (piece, pattern): (Piece, Pattern),
    offset: u64,
    dest: &mut [u8],
    version: u64,
) -> Result<usize> {
    let len = (piece.range.end - piece.range.start) as usize;
    let held = match piece.data {
        Data::Asked(mut op) if offset == piece.range.start && len <= dest.len() => {
            op.finish(call, &mut dest[..len])?;
            return Ok(len);
        }
        Data::Asked(mut op) => {
            let mut held = Buffer::take(&call.inner.buffers, op.len);
            op.finish(call, &mut held[..len])?;
            held
        }
        Data::Held(held) => held,
    };
    let start = (offset - piece.range.start) as usize;
    let n = dest.len().min(len - start);
    dest[..n].copy_from_slice(&held[start..start + n]);
    let is_left = match pattern {
        Pattern::Reverse => start > 0,
        Pattern::Usual | Pattern::Random => start + n < len,
        // Its parts are read in any order.
        Pattern::Records(_) => n < len,
    };
    if is_left {
        let mut reader = call.file.reader();
        // Memory beyond the pool is not kept.
        let keep = held.is_pooled() && reader.pieces.len() < MAX_PIECES;
        if reader.version == version && keep {
            reader.pieces.push(Piece { data: Data::Held(held), ..piece });
        }
    }
    Ok(n)
}

/// Whether a read is cut into small requests. That is for a process of a job where copies are
/// chosen by speed and the disk takes some time. (For other programs a measurement showed no gain.)
fn is_cut(call: Call<'_>, plan: &Plan, any_copy: bool, len: u64) -> bool {
    use ReadPolicy::{Graduated, GraduatedPrimary, Proportional};
    let policy = call.inner.config.read_policy;
    let goes_by_room = matches!(policy, Proportional | Graduated | GraduatedPrimary);
    // A disk that has a piece at once would be asked for all of them.
    let takes_time = |part: &Part| call.inner.servers.takes_time(part.place.target, CUT_BYTES);
    let mut mirrored = plan.parts.iter().filter(|part| part.place.mirrored);
    let of_job = call.ctx.reader.is_some() && !call.inner.config.prefers_near;
    let may = any_copy && goes_by_room && len > CUT_BYTES && of_job;
    may && mirrored.any(takes_time)
}

fn direct(call: Call<'_>, offset: u64, dest: &mut [u8], any_copy: bool) -> Result<()> {
    let (file, len) = (call.file, dest.len() as u64);
    let (plan, dest) = match file.plan(offset, len) {
        Err(error) if error.kind == ErrorKind::Stale => {
            // Another client made the file longer.
            file.refresh(call.inner, call.ctx)?;
            let covered = covered_bytes(&file.layout()).saturating_sub(offset).min(len) as usize;
            // What no segment was granted for was never written.
            dest[covered..].fill(0);
            if covered == 0 {
                return Ok(());
            }
            (file.plan(offset, covered as u64)?, &mut dest[..covered])
        }
        plan => (plan?, dest),
    };
    let len = dest.len() as u64;
    // Meanwhile the layout may be another one: then it goes as it was to go.
    let cut = is_cut(call, &plan, any_copy, len).then(|| file.plan_cut(offset, len));
    let plan = cut.and_then(Result::ok).unwrap_or(plan);
    ReadOp::start(call, plan, dest.len(), (any_copy, false)).finish(call, dest)
}
