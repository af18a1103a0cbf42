//! One read call: requests to all servers at once (or, where it is cut, as copies have space), the
//! replies directly into the caller's buffer, every byte verified.

mod around;
mod decode;
pub(crate) mod parities;

use self::decode::Undecoded;
use super::drive::{drive, now_ms};
use super::parts::{Parts, Until};
use crate::config::{Consistency, ReadPolicy};
use crate::core::choices::Wanted;
use crate::core::job::JobReader;
use crate::core::plan::{Place, Plan};
use crate::core::transfer::Transfer;
use crate::counters::add;
use crate::rpc::servers::{DataConn, Slot};
use crate::state::{Call, ReadOp};
use std::io::IoSliceMut;
use std::sync::Arc;
use std::time::Duration;
use weir_host::clock;
use weir_layout::{Piece, Run, cut_count, cuts, scatter};
use weir_net::{Expected, Wait};
use weir_policy::Micros;
use weir_types::checksum::crc32c;
use weir_types::{Error, ErrorKind, Result, TargetId};
use weir_wire::data::{ObjectLen, ReadFlags, ReadRequest};
use weir_wire::{Header, Request, Rights};

/// First and longest pause before a read of what cannot be computed either is tried again.
const FIRST_PAUSE_MS: u64 = 20;
const MAX_PAUSE_MS: u64 = 500;

/// Whether any current copy may be read. The call has to be under a lease, if the file's
/// `consistency` has any: then no other client with leases changes the file meanwhile, and this
/// client has no change under way that one copy may have and another not yet. Without a lease a
/// reader could see new bytes first and old ones afterwards, while another client writes.
pub(crate) fn may_read_any_copy(call: Call<'_>, consistency: Consistency) -> bool {
    call.inner.config.read_policy != ReadPolicy::Primary
        && consistency == Consistency::Strict
        && !call.file.has_changes_under_way()
}

struct ReadParts<'a> {
    call: Call<'a>,
    plan: &'a mut Plan,
    since: Micros,
    came: &'a mut Option<(Arc<JobReader>, u64)>,
    conns: &'a mut Vec<Option<DataConn>>,
    slots: &'a mut Vec<Option<Slot>>,
    dest: &'a mut [u8],
    runs: Vec<Run>,
    any_copy: bool,
    ahead: bool,
    preferred: Option<TargetId>,
    is_short: &'a mut bool,
}

impl ReadOp {
    /// Sends the requests of a planned read. `any_copy`: see [`may_read_any_copy`]; `ahead`: no
    /// caller waits yet.
    pub(crate) fn start(
        call: Call<'_>,
        plan: Plan,
        len: usize,
        (any_copy, ahead): (bool, bool),
    ) -> Self {
        Self::start_from(call, plan, len, (any_copy, ahead), None)
    }

    /// As [`ReadOp::start`], preferring the copy on a target where any copy may be read.
    pub(crate) fn start_from(
        call: Call<'_>,
        mut plan: Plan,
        len: usize,
        (any_copy, ahead): (bool, bool),
        preferred: Option<TargetId>,
    ) -> Self {
        let deadline_ms = now_ms() + call.ctx.read_ms(call.inner.config.request_timeout_ms);
        let choices = match any_copy && preferred.is_none() {
            true => around::choose(call, &mut plan),
            false => Vec::new(),
        };
        let mut op = Self {
            transfer: Transfer::new(plan.parts.len(), deadline_ms),
            since: clock::uptime().as_micros() as Micros,
            came: None,
            conns: plan.parts.iter().map(|_| None).collect(),
            slots: Vec::new(),
            plan,
            len,
            any_copy,
            ahead,
            preferred,
            arounds: Vec::new(),
            is_short: false,
            deadline_ms,
        };
        for part in choices.iter().flat_map(|choice| &choice.skipped) {
            op.transfer.lacks(*part, Error::new(ErrorKind::TimedOut, "its disk is slow"));
        }
        // What fails now is tried again by `finish`.
        if let Err(error) = op.drive(call, &mut [], Until::Sent) {
            tracing::debug!("{error}");
        }
        // After the columns: it may take time to reach a server.
        for choice in choices {
            let skipped = choice.skipped.clone();
            if let Some(around) = around::ask(call, &op.plan, choice, ahead) {
                op.arounds.push(around);
                continue;
            }
            op.transfer.is_wanted(&skipped);
            if let Err(error) = op.drive(call, &mut [], Until::Sent) {
                tracing::debug!("{error}");
            }
        }
        op
    }

    /// Waits for the replies and puts the bytes into `dest`.
    pub(crate) fn finish(&mut self, call: Call<'_>, dest: &mut [u8]) -> Result<()> {
        let time_ms = call.ctx.read_ms(call.inner.config.request_timeout_ms);
        self.deadline_ms = now_ms() + time_ms;
        let wait = Wait::for_ms(time_ms).interruptible(call.ctx.interrupt);
        let (mut pause_ms, mut rounds) = (FIRST_PAUSE_MS, 0);
        loop {
            self.take(call, dest)?;
            if !self.go_around(call, dest) {
                continue;
            }
            if self.transfer.lacking().is_empty() {
                return Ok(());
            }
            // Its copies may be others by then, or it has none because it is written again.
            match decode::all(call, &self.plan, (self.transfer.lacking(), rounds), dest) {
                Err(Undecoded::Changed) if now_ms() < self.deadline_ms => {
                    self.transfer = Transfer::new(self.plan.parts.len(), self.deadline_ms);
                }
                // Servers may come back, as is hoped of that of an only copy.
                Err(Undecoded::TooFew(_)) if now_ms() + pause_ms < self.deadline_ms => {
                    wait.sleep(Duration::from_millis(pause_ms))?;
                    // They may only be slow.
                    (pause_ms, rounds) = ((2 * pause_ms).min(MAX_PAUSE_MS), rounds + 1);
                    self.transfer = Transfer::new(self.plan.parts.len(), self.deadline_ms);
                    self.transfer.set_rounds(rounds);
                }
                Err(undecoded) => return Err(undecoded.into()),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Computes the columns that were not asked for. Those that cannot be computed are to be read;
    /// whether there are none.
    fn go_around(&mut self, call: Call<'_>, dest: &mut [u8]) -> bool {
        let mut is_done = true;
        let until_ms = self.deadline_ms.min(now_ms() + around::PATIENCE_MS);
        for mut around in std::mem::take(&mut self.arounds) {
            let came = (&self.plan, self.transfer.lacking(), self.is_short);
            let filled = around.fill(call, came, (dest, until_ms));
            match filled.unwrap_or_else(|error| {
                tracing::debug!("a slow column is read: {error}");
                false
            }) {
                true => self.transfer.has(&around.skipped),
                false => {
                    self.transfer.is_wanted(&around.skipped);
                    is_done = false;
                }
            }
        }
        is_done
    }

    /// Waits for the replies and puts the bytes into `dest`. Returns the parts of which none came,
    /// since no server has them: they can be computed from others.
    pub(crate) fn take(&mut self, call: Call<'_>, dest: &mut [u8]) -> Result<Vec<usize>> {
        self.transfer.set_deadline_ms(self.deadline_ms);
        self.drive(call, dest, Until::Done)?;
        Ok(self.transfer.lacking().iter().map(|(part, _)| *part).collect())
    }

    fn drive(&mut self, call: Call<'_>, dest: &mut [u8], until: Until) -> Result<()> {
        let mut parts = ReadParts {
            call,
            plan: &mut self.plan,
            since: self.since,
            came: &mut self.came,
            conns: &mut self.conns,
            slots: &mut self.slots,
            dest,
            runs: Vec::new(),
            any_copy: self.any_copy,
            ahead: self.ahead,
            preferred: self.preferred,
            is_short: &mut self.is_short,
        };
        drive(call, &mut self.transfer, &mut parts, until)
    }
}

impl Parts for ReadParts<'_> {
    fn place(&mut self, part: usize) -> &mut Place {
        &mut self.plan.parts[part].place
    }

    fn changes(&self, _part: usize) -> bool {
        false
    }

    fn may_read_any_copy(&self) -> bool {
        self.any_copy
    }

    fn preferred(&self) -> Option<TargetId> {
        self.preferred
    }

    fn may_lack(&self) -> bool {
        true
    }

    fn is_ahead(&self) -> bool {
        self.ahead
    }

    fn is_cut(&self) -> bool {
        self.plan.is_cut
    }

    fn wanted(&mut self, part: usize) -> Option<Wanted> {
        let (chunk, object) = (self.plan.chunk(part), self.plan.parts[part].place.object);
        let len_bytes =
            scatter(&chunk.regions, chunk.stripe, object.column, &mut self.runs).ok()?;
        let offset = self.runs.iter().map(|run| run.object_offset).min()?;
        let reader = self.call.ctx.reader.clone();
        let end = chunk.segment_start.saturating_add(chunk.regions.end());
        let left = self.call.file.size().saturating_sub(end);
        let rest_bytes = left / u64::from(chunk.stripe.columns.max(1));
        let column = (object.segment, object.column);
        let since = self.since;
        Some(Wanted { column, offset, len_bytes, rest_bytes, since, reader })
    }

    fn conns(&mut self) -> &mut [Option<DataConn>] {
        self.conns
    }

    fn keep(&mut self, part: usize, slot: Option<Slot>) {
        if self.slots.is_empty() && slot.is_some() {
            self.slots.resize_with(self.plan.parts.len(), || None);
        }
        if let Some(kept) = self.slots.get_mut(part) {
            *kept = slot;
        }
    }

    fn kept(&self, part: usize) -> Option<&Slot> {
        self.slots.get(part)?.as_ref()
    }

    fn send(&mut self, part: usize, locked: bool, conn: &mut DataConn, wait: &Wait) -> Result<()> {
        let chunk = self.plan.chunk(part);
        let request = ReadRequest {
            access: self.call.file.access(&self.plan.parts[part].place, Rights::READ)?,
            stripe: chunk.stripe,
            flags: ReadFlags {
                locked,
                unchecked: !self.call.inner.config.verify && !locked,
                as_is: false,
                near: self.call.inner.servers.is_here(self.plan.parts[part].place.target),
            },
            regions: chunk.regions.clone(),
        };
        conn.request_id = conn.conn.next_request_id();
        let mut header = Header::request(ReadRequest::OP, conn.request_id);
        self.call.ctx.sign(&mut header);
        conn.conn.send(header, &request, &[], &[], wait)
    }

    fn receive(&mut self, part: usize, conn: &mut DataConn, wait: &Wait) -> Result<()> {
        self.take_reply(part, conn, wait).map_err(|e| self.plan.locate_damage(part, e))?;
        self.counts(part);
        Ok(())
    }
}

impl ReadParts<'_> {
    /// Counts an arrived chunk of one column as progress of its reader, before the whole call has
    /// arrived.
    fn counts(&mut self, part: usize) {
        let (chunk, Some(reader)) = (self.plan.chunk(part), &self.call.ctx.reader) else { return };
        if chunk.stripe.columns != 1 || self.plan.parts.len() == 1 {
            return;
        }
        let ranges = chunk.regions.ranges();
        let of_file = ranges
            .map(|(start, len)| chunk.segment_start + start..chunk.segment_start + start + len);
        let bytes: u64 = of_file.map(|range| reader.comes(range)).sum();
        let (_, came) = self.came.get_or_insert_with(|| (reader.clone(), 0));
        *came += bytes;
    }

    fn take_reply(&mut self, part: usize, conn: &mut DataConn, wait: &Wait) -> Result<()> {
        let chunk = self.plan.chunk(part);
        let at = usize::try_from(chunk.buffer_offset).unwrap_or(usize::MAX);
        let dest = self.dest.get_mut(at..).ok_or(ErrorKind::Internal)?;
        let column = self.plan.parts[part].place.object.column;
        let expected = scatter(&chunk.regions, chunk.stripe, column, &mut self.runs)?;
        let pieces: Vec<Piece> = self.runs.iter().map(Run::piece).collect();
        let checked = self.call.inner.config.verify;
        let checks = if checked { cut_count(&pieces) as usize } else { 0 };
        // Body and checksums, as long as the object is.
        let meta_len = size_of::<u64>() + 4 * checks;
        let wanted = Expected { request_id: conn.request_id, meta_len };
        let header = conn.conn.recv_expected(wanted, &mut carve(dest, &self.runs), wait)?;
        if header.request_id != conn.request_id {
            return Err(Error::new(ErrorKind::Protocol, "the answer belongs to another request"));
        }
        let body: ObjectLen = conn.conn.reply(&header)?;
        conn.heard_of_pace(&header, self.call.ctx.reader.as_deref());
        let mut checks = Vec::with_capacity(header.checks as usize);
        conn.conn.checks(&header, &mut checks);
        let counters = &self.call.inner.counters;
        add(&counters.read_wire_bytes, u64::from(header.payload_len));
        if self.call.inner.servers.is_here(self.plan.parts[part].place.target) {
            add(&counters.read_near_bytes, u64::from(header.payload_len));
        }
        let valid: u64 = pieces.iter().map(|p| p.len_within(body.len)).sum();
        if u64::from(header.payload_len) != valid || valid > expected {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the reply has another length than its share",
            ));
        }
        if valid < expected {
            *self.is_short = true;
            settle_holes(dest, &self.runs, body.len);
        }
        if !checked && checks.is_empty() {
            return Ok(());
        }
        verify(dest, &self.runs, body.len, &checks).inspect_err(|_| {
            add(&self.call.inner.counters.checksum_mismatches, 1);
        })
    }
}

/// The parts of a buffer for the runs, which ascend and do not overlap.
fn carve<'a>(mut buffer: &'a mut [u8], runs: &[Run]) -> Vec<IoSliceMut<'a>> {
    let mut slices = Vec::with_capacity(runs.len());
    let mut at = 0;
    for run in runs {
        let (start, len) = (run.buffer_offset as usize, run.len as usize);
        let rest = std::mem::take(&mut buffer);
        let Some((slice, tail)) =
            rest.get_mut(start - at..).and_then(|r| r.split_at_mut_checked(len))
        else {
            break;
        };
        slices.push(IoSliceMut::new(slice));
        buffer = tail;
        at = start + len;
    }
    slices
}

/// Moves the bytes of a reply to their places, and fills the bytes that the object does not have
/// with zeros.
///
/// The bytes were received as if none were missing, so all bytes after the first missing one are
/// too far in front.
fn settle_holes(dest: &mut [u8], runs: &[Run], object_len: u64) {
    let mut received = Vec::new();
    let mut first_gap = None;
    for (i, run) in runs.iter().enumerate() {
        let valid = run.piece().len_within(object_len);
        if valid < run.len && first_gap.is_none() {
            first_gap = Some(i);
        }
    }
    let Some(first) = first_gap else { return };
    let later: u64 = runs[first..].iter().map(|r| r.piece().len_within(object_len)).sum();
    let mut left = later as usize;
    for run in &runs[first..] {
        let take = left.min(run.len as usize);
        let start = run.buffer_offset as usize;
        received.extend_from_slice(&dest[start..start + take]);
        left -= take;
    }
    let mut at = 0;
    for run in &runs[first..] {
        let valid = run.piece().len_within(object_len) as usize;
        let start = run.buffer_offset as usize;
        dest[start..start + valid].copy_from_slice(&received[at..at + valid]);
        dest[start + valid..start + run.len as usize].fill(0);
        at += valid;
    }
}

/// Verifies the existing bytes of the runs against the checksums of the reply.
fn verify(dest: &[u8], runs: &[Run], object_len: u64, checks: &[u32]) -> Result<()> {
    let mut checks = checks.iter();
    for run in runs {
        let len = run.piece().len_within(object_len);
        if len == 0 {
            continue;
        }
        let mut at = run.buffer_offset as usize;
        for cut in cuts(&[Piece { object_offset: run.object_offset, len }]) {
            let bytes = &dest[at..at + cut.len];
            match checks.next() {
                Some(check) if *check == crc32c(bytes) => at += cut.len,
                Some(_) => {
                    let what =
                        format!("object byte {} does not match its checksum", cut.object_offset);
                    let error = Error::new(ErrorKind::ChecksumMismatch, what);
                    return Err(error.at(cut.object_offset));
                }
                None => return Err(Error::new(ErrorKind::Protocol, "the reply lacks checksums")),
            }
        }
    }
    if checks.next().is_some() {
        return Err(Error::new(ErrorKind::Protocol, "the reply has too many checksums"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(object_offset: u64, len: u64, buffer_offset: u64) -> Run {
        Run { object_offset, len, buffer_offset }
    }

    #[test]
    fn short_replies_leave_zeros_where_the_object_ends() {
        // Two runs of one column; the object ends inside the first, and a
        // third run lies before that end (a list need not ascend).
        let runs = [run(4096, 8, 0), run(5000, 4, 8), run(0, 4, 12)];
        let mut dest = vec![0xffu8; 16];
        // Object of 4100 bytes: 4 of run 0, none of run 1, 4 of run 2 arrive.
        dest[..8].copy_from_slice(b"abcdWXYZ");
        settle_holes(&mut dest, &runs, 4100);
        assert_eq!(&dest, b"abcd\0\0\0\0\0\0\0\0WXYZ");
    }

    #[test]
    fn carved_slices_are_the_runs() {
        let mut dest: Vec<u8> = (0..20).collect();
        let slices = carve(&mut dest, &[run(0, 3, 2), run(3, 4, 10)]);
        let seen: Vec<Vec<u8>> = slices.iter().map(|s| s.to_vec()).collect();
        assert_eq!(seen, [vec![2, 3, 4], vec![10, 11, 12, 13]]);
    }

    #[test]
    fn a_flipped_bit_is_a_mismatch_and_a_missing_checksum_a_protocol_error() {
        let data = vec![7u8; 5000];
        let runs = [run(0, 5000, 0)];
        let checks = [crc32c(&data[..4096]), crc32c(&data[4096..])];
        assert!(verify(&data, &runs, 5000, &checks).is_ok());
        let mut bad = data.clone();
        bad[4500] ^= 1;
        let kind = |d: &[u8], c: &[u32]| verify(d, &runs, 5000, c).unwrap_err().kind;
        assert_eq!(kind(&bad, &checks), ErrorKind::ChecksumMismatch);
        assert_eq!(kind(&data, &checks[..1]), ErrorKind::Protocol);
    }
}
