//! Brings one copy of an object up to date with the copy here, while both take changes. Rotted
//! bytes here are left out: the other copy is told that it lacks those, and nothing else, and
//! serves the rest.

use super::awaited::Awaited;
use crate::disk::Disk;
use crate::machine::Work;
use crate::machine::change::{Asked, Change, copy_of};
use crate::peers::lines::{Lines, Parcel};
use crate::standing::roles::not_current;
use crate::standing::unreachable::PATIENCE;
use crate::state::Shared;
use crate::state::suspects::Suspect;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use weir_host::clock;
use weir_host::plant::{Bug, planted};
use weir_layout::{RegionList, segment_offset};
use weir_net::Wait;
use weir_store::{ELSEWHERE, Object, RangeSet, ReadMode, ReadOutcome, gap_parts};
use weir_types::limits::{MAX_FILE_BYTES, MAX_STRIPE_UNIT_BYTES};
use weir_types::{
    CopyIndex, Decode, Epoch, Error, ErrorKind, Generation, ObjectId, Result, StripeMap, TargetId,
};
use weir_wire::data::{
    Access, AlignRequest, CopyAccess, NoteGapRequest, ObjectLen, PunchRequest, Relay, SyncRequest,
    WriteFlags, WriteRequest,
};
use weir_wire::peer::Copies as Column;

/// Bytes of one step, under the lock of the range.
pub(crate) const STEP_BYTES: u64 = 1 << 20;
/// Timeout of one step, milliseconds. After it the step is repeated.
const STEP_MS: u64 = 8_000;
/// Timeout of the connection, which is made before anything is locked, milliseconds.
const REACH_MS: u64 = PATIENCE.as_millis() as u64;
/// After this many bytes the other copy is synced.
const SYNC_BYTES: u64 = 64 << 20;
/// Timeout of that sync, milliseconds.
const SYNC_MS: u64 = 30_000;
/// Interval of checks whether the other copy is still online, milliseconds.
const LOOK_MS: u64 = 100;

/// The transfer of one object of which another copy lacks bytes.
pub(crate) struct Push<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) disk: &'a Disk,
    /// The object here.
    pub(crate) object: ObjectId,
    pub(crate) column: &'a Column,
    /// Position of the other copy.
    pub(crate) to: usize,
    /// Called with the bytes of each step before it, or after it if they are not known before.
    pub(crate) pace: &'a dyn Fn(u64) -> Result<()>,
}

impl Push<'_> {
    fn own(&self) -> TargetId {
        self.disk.served.id
    }

    fn behind(&self) -> TargetId {
        self.column.copies[self.to].target
    }

    /// Brings over the bytes of `lacking`. Finished steps are cleared in the gap log.
    ///
    /// # Errors
    /// `NotCurrent` if this copy does not order changes, or the other takes none; `Corrupt`: some
    /// bytes have rotted here, and the rest was brought over.
    pub(crate) fn bring(&self, lacking: &RangeSet, buffer: &mut Vec<u8>) -> Result<()> {
        let len = match self.disk.store.gaps().of(self.object, ELSEWHERE) {
            // It may be longer there.
            Some(_) => self.check().map(|_| MAX_FILE_BYTES)?,
            None => self.align().or_else(|error| match error.kind {
                ErrorKind::Corrupt => {
                    self.leave_out(Suspect::Header, lacking)?;
                    Err(error)
                }
                _ => Err(error),
            })?,
        };
        let (mut unsynced, mut rotten) = (0, Ok(()));
        for range in lacking.iter() {
            let (mut at, end) = (range.start, range.end.min(len));
            while at < end {
                let (next, bytes) = self.next_step(at, end)?;
                (self.pace)(bytes)?;
                match self.step(at..next, buffer) {
                    Err(error) if error.kind == ErrorKind::Corrupt => {
                        self.step_around(at..next, buffer)?;
                        rotten = Err(error);
                    }
                    other => other?,
                }
                unsynced += bytes;
                at = next;
                if unsynced >= SYNC_BYTES {
                    self.sync()?;
                    unsynced = 0;
                }
            }
        }
        if rotten.is_err() {
            // It has noted more as lacking than there is.
            self.align()?;
        }
        self.sync().and(rotten)
    }

    /// End of a step from `at` on, and the most bytes that it has to send. A hole, and what lies
    /// behind the end here, is one step however long it is, because none of it is sent.
    fn next_step(&self, at: u64, end: u64) -> Result<(u64, u64)> {
        let Some(object) = self.found()?.filter(|object| at < object.len()) else {
            return Ok((end, 0));
        };
        let data = object.next_data(at)?.map_or(end, |data| data.clamp(at, end));
        let part = if data < end { data - data % STEP_BYTES } else { end };
        if part > at {
            return Ok((part, 0));
        }
        let next = (at - at % STEP_BYTES + STEP_BYTES).min(end);
        let (mut bytes, mut data) = (0, data);
        while data < next {
            let hole = object.next_hole(data)?.clamp(data + 1, next);
            bytes += hole - data;
            data = object.next_data(hole)?.unwrap_or(next);
        }
        Ok((next, bytes))
    }

    /// Removes bytes of the other copy behind the end of the copy here, in ranges of which this
    /// copy lacks nothing.
    pub(crate) fn clear_away(&self, ranges: &RangeSet) -> Result<()> {
        self.reach()?;
        self.look_at_its_run();
        for range in ranges.iter() {
            let _lock = self.shared.copies.locks.lock(self.own(), self.object, range.clone());
            self.check()?;
            let here = self.found()?.map_or(0, |object| object.len());
            if here > range.start {
                return Err(Error::new(ErrorKind::Busy, "it has become longer since"));
            }
            self.begins(&range);
            self.punch(range.start..range.end.min(MAX_FILE_BYTES))?;
            self.sent(range);
        }
        self.sync()
    }

    /// As [`Push::bring`]. Of changes postponed in this run of the server only the bytes are sent
    /// that have not arrived.
    pub(crate) fn catch_up(&self, lacking: &RangeSet, buffer: &mut Vec<u8>) -> Result<()> {
        for range in lacking.iter() {
            let mut at = range.start;
            while at < range.end {
                self.look_at_its_run();
                let Some(left) = self.left() else { return self.bring(lacking, buffer) };
                // In long steps: most of it has got there.
                let begins = left.iter().map(|part| part.start).find(|start| *start > at);
                let next = match left.touches(&(at..at + 1)) {
                    true => self.next_step(at, range.end)?.0,
                    false => begins.unwrap_or(range.end).min(range.end),
                };
                // By then most of it has got there in other ways.
                match self.fill_in(at..next, buffer) {
                    // Around what has rotted.
                    Err(error) if error.kind == ErrorKind::Corrupt => {
                        return self.bring(lacking, buffer);
                    }
                    sent => (self.pace)(sent?)?,
                }
                at = next;
            }
        }
        self.sync()
    }

    /// Clears a range that is noted as lacking together with the rest of its part, if the other
    /// copy is known to have all of it. Returns whether that is so.
    ///
    /// # Errors
    /// As [`Push::bring`]; the other copy cannot be told now.
    pub(crate) fn has_got(&self, range: &Range<u64>) -> Result<bool> {
        self.look_at_its_run();
        if self.left().is_none_or(|left| left.touches(range)) {
            return Ok(false);
        }
        self.fill_in(range.clone(), &mut Vec::new())?;
        self.sync()?;
        Ok(!self.disk.store.gaps().lacks(self.object, self.behind(), range))
    }

    fn left(&self) -> Option<RangeSet> {
        self.disk.store.gaps().left(self.object, self.behind())
    }

    /// Sends a range and returns how many bytes that took.
    fn fill_in(&self, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<u64> {
        let mut sent = 0;
        self.reach()?;
        self.look_at_its_run();
        let _lock = self.shared.copies.locks.lock(self.own(), self.object, range.clone());
        self.check()?;
        let Some(left) = self.left() else {
            return Err(Error::new(ErrorKind::Busy, "more is lacking since"));
        };
        self.begins(&range);
        for part in left.iter() {
            let start = part.start.max(range.start);
            let end = part.end.min(range.end).max(start);
            let mut at = start;
            while at < end {
                let (next, bytes) = self.next_step(at, end)?;
                self.send(at..next, buffer)?;
                self.disk.store.gaps().got(self.object, self.behind(), &[(at, next - at)]);
                sent += bytes;
                at = next;
            }
        }
        self.tell_filled(&range)?;
        self.sent(range);
        Ok(sent)
    }

    /// Tells the other copy that it lacks nothing of a range any more.
    fn tell_filled(&self, range: &Range<u64>) -> Result<()> {
        let object = copy_of(self.object, self.to);
        let note = note(object, self.behind(), range, What::Filled(self.check()?));
        self.ask_while_there(STEP_MS, (&[], &[]), |parcel| parcel.send(&note))
    }

    /// Syncs the other copy before its gap is cleared here: it must not lose bytes again that may
    /// be durable here.
    fn sync(&self) -> Result<()> {
        let request = SyncRequest { access: self.access() };
        self.ask_while_there::<()>(SYNC_MS, (&[], &[]), |parcel| parcel.send(&request))?;
        // It may have started anew since it was sent that.
        self.look_at_its_run();
        self.disk.store.gaps().clear_sent(self.object, self.behind())
    }

    /// Starts over if the machine of the other copy has restarted, because received bytes may be
    /// lost.
    fn look_at_its_run(&self) {
        let run = self.shared.copies.lines.run_of(self.behind());
        self.disk.store.gaps().in_run(self.behind(), run);
    }

    /// Gives the other copy the length and the fence of this one. Behind the length both then have
    /// nothing.
    fn align(&self) -> Result<u64> {
        let copies = &self.shared.copies;
        self.reach()?;
        self.look_at_its_run();
        let _lock = copies.locks.lock(self.own(), self.object, 0..MAX_FILE_BYTES);
        self.check()?;
        let object = self.found()?;
        let (len, generation) = object
            .as_ref()
            .map_or((0, Generation(0)), |object| (object.len(), object.generation()));
        let access = Access { generation, ..self.access() };
        self.begins(&(len..u64::MAX));
        self.ask((&[], &[]), |parcel| parcel.send(&AlignRequest { access, len }))?;
        self.sent(len..u64::MAX);
        Ok(len)
    }

    /// Sends blocks of a range again, although no gap is known.
    pub(crate) fn again(&self, range: Range<u64>) -> Result<()> {
        self.step(range, &mut Vec::new())
    }

    fn step(&self, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<()> {
        self.reach()?;
        let _lock = self.shared.copies.locks.lock(self.own(), self.object, range.clone());
        self.check()?;
        if planted(Bug::ClearGapEarly) {
            return self.disk.store.gaps().clear(self.object, self.behind(), &range);
        }
        self.begins(&range);
        for part in self.here(&range).iter() {
            self.send(part, buffer)?;
        }
        self.sent(range);
        Ok(())
    }

    /// The bytes of a range that this copy has. The other copy may have those that it lacks.
    fn here(&self, range: &Range<u64>) -> RangeSet {
        let mut here = RangeSet::default();
        here.insert(range.clone());
        if let Some(elsewhere) = self.disk.store.gaps().of(self.object, ELSEWHERE) {
            elsewhere.iter().for_each(|lacking| here.remove(&lacking));
        }
        here
    }

    /// As [`Push::step`], without rotted bytes.
    fn step_around(&self, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<()> {
        let _lock = self.shared.copies.locks.lock(self.own(), self.object, range.clone());
        self.check()?;
        let Some(object) = self.found()? else { return Ok(()) };
        let (mut here, mut rotten) = (self.here(&range), RangeSet::default());
        object.damaged(&range).into_iter().for_each(|block| rotten.insert(block));
        let mut sent = RangeSet::default();
        sent.insert(range.clone());
        for block in rotten.iter() {
            here.remove(&block);
            sent.remove(&block);
        }
        // First: it notes whole parts, and strikes out what comes then.
        self.leave_out(Suspect::Bytes(range.clone()), &rotten)?;
        self.begins(&range);
        for part in here.iter() {
            self.send(part, buffer)?;
        }
        sent.iter().for_each(|part| self.sent(part));
        Ok(())
    }

    /// Tells the other copy that it lacks the bytes that have rotted here, so that it may be online
    /// without them. Bytes that are only in doubt here may be good there.
    fn leave_out(&self, suspect: Suspect, rotten: &RangeSet) -> Result<()> {
        let (gaps, behind) = (self.disk.store.gaps(), self.behind());
        self.shared.copies.repairs.suspect(self.own(), self.object, suspect);
        for range in rotten.iter().filter(|range| gaps.lacks(self.object, behind, range)) {
            let (lines, copy) = (&self.shared.copies.lines, CopyIndex(self.to as u8));
            let object = copy_of(self.object, self.to);
            let how = (self.check()?, false);
            tell_gap(lines, &lines.wait(STEP_MS), object, behind, &range, how)?;
            if !gaps.is_told(self.object, behind, &range) {
                gaps.note_told(self.object, behind, copy, &range)?;
            }
        }
        Ok(())
    }

    fn send(&self, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<()> {
        let object = self.found()?;
        // It may have been cut since.
        let end = object.as_ref().map_or(0, |object| object.len()).min(range.end);
        let mut at = range.start;
        while at < end {
            let data = match &object {
                Some(object) => object.next_data(at)?.map_or(end, |data| data.clamp(at, end)),
                None => end,
            };
            if at < data {
                self.punch(at..data)?;
                at = data;
                continue;
            }
            let Some(object) = &object else { break };
            let hole = object.next_hole(at)?.clamp(at + 1, end).min(at + STEP_BYTES);
            self.write(object, at..hole, buffer)?;
            at = hole;
        }
        Ok(())
    }

    fn write(&self, object: &Arc<Object>, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<()> {
        let len = (range.end - range.start) as usize;
        buffer.resize(len, 0);
        let mut checks = Vec::new();
        let pieces = [(range.start, len as u64)];
        let n = match object.read_pieces(&pieces, buffer, &mut checks, ReadMode::Locked)? {
            ReadOutcome::Done { bytes, .. } => bytes,
            ReadOutcome::WouldBlock => return Err(ErrorKind::Internal.into()),
        };
        if n < len {
            let what = "it has become shorter while its range was locked";
            return Err(Error::new(ErrorKind::Internal, what));
        }
        // Any stripe does that has the column and units as long as the range.
        let column = self.object.column;
        let stripe = StripeMap { unit_bytes: MAX_STRIPE_UNIT_BYTES, columns: column.0 + 1 };
        let start =
            segment_offset(stripe, column, range.start).ok_or(ErrorKind::InvalidArgument)?;
        let request = WriteRequest {
            access: Access { generation: object.generation(), ..self.access() },
            stripe,
            flags: WriteFlags::default(),
            regions: RegionList::contiguous(start, len as u64)?,
            staged: None,
        };
        self.ask((buffer, &checks), |parcel| parcel.send(&request))
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        let access = Access { generation: Generation(u64::MAX), ..self.access() };
        let (offset, len) = (range.start, range.end - range.start);
        self.ask((&[], &[]), |parcel| parcel.send(&PunchRequest { access, offset, len }))
    }

    /// The object here; `None` if it was never made.
    fn found(&self) -> Result<Option<Arc<Object>>> {
        // The layout that this goes by may be one of before.
        self.shared.copies.removed.look(self.disk, self.object)
    }

    /// Checks that this copy orders changes, and that the other takes them.
    fn check(&self) -> Result<Epoch> {
        let orders = self.shared.copies.standings.orders(self.own(), &self.column.copies)?;
        match orders.lacking.contains(&self.behind()) {
            true => Err(not_current(self.behind(), "it is away")),
            false => Ok(orders.epoch),
        }
    }

    /// Begins a transfer: from now on the other copy clears its gaps piece by piece.
    fn begins(&self, range: &Range<u64>) {
        self.disk.store.gaps().begins(self.object, self.behind(), range);
    }

    fn sent(&self, range: Range<u64>) {
        self.disk.store.gaps().sent(self.object, self.behind(), &range);
    }

    fn access(&self) -> Access {
        // Nobody can vouch for what may be different elsewhere.
        let vouched = self.disk.store.gaps().of(self.object, self.own()).is_none();
        let CopyAccess { target, mac, .. } = self.column.copies[self.to];
        Access {
            target,
            object: copy_of(self.object, self.to),
            generation: self.column.generation,
            capability: self.column.capability.clone(),
            mac,
            copies: self.column.copies.clone(),
            relay: Some(Relay {
                by: self.own(),
                epoch: self.shared.copies.standings.acting(),
                lacking: Vec::new(),
                alone: true,
                vouched,
                way: self.shared.copies.ways.now(),
            }),
        }
    }

    fn ask(
        &self,
        data: (&[u8], &[u32]),
        send: impl FnOnce(&mut Parcel<'_>) -> Result<()>,
    ) -> Result<()> {
        self.ask_while_there::<ObjectLen>(STEP_MS, data, send).map(drop)
    }

    /// Makes sure that there is a connection, before anything is locked.
    fn reach(&self) -> Result<()> {
        let (copies, begun) = (&self.shared.copies, clock::now());
        let reached = copies.lines.reach(self.behind(), &copies.lines.wait(REACH_MS));
        // A client may wait for what is to be brought.
        let is_out = || copies.lines.is_out_of_reach(self.behind());
        if reached.is_err() && clock::elapsed(begun) >= PATIENCE && is_out() {
            copies.cannot_reach(self.own(), self.behind());
        }
        reached
    }

    /// Waits for the reply, at most for `ms` milliseconds and as long as the other copy is online.
    /// While a change waits here, the epoch in which that copy is away cannot begin.
    fn ask_while_there<T: Decode>(
        &self,
        ms: u64,
        data: (&[u8], &[u32]),
        send: impl FnOnce(&mut Parcel<'_>) -> Result<()>,
    ) -> Result<T> {
        let (lines, standings) = (&self.shared.copies.lines, &self.shared.copies.standings);
        let was_online = standings.is_online(self.behind());
        let mut line = lines.take(self.behind(), &lines.wait(REACH_MS))?;
        let begun = clock::now();
        line.send(&lines.wait(STEP_MS), data, send)?;
        let look = || {
            let lost_its_place = was_online && !standings.is_online(self.behind());
            let has_gone = lost_its_place || standings.is_away(self.behind());
            match has_gone || clock::elapsed(begun) > Duration::from_millis(ms) {
                true => Err(Error::new(ErrorKind::TimedOut, "no answer")),
                false => Ok(()),
            }
        };
        // Its disk may be slow.
        let awaited = Awaited { own: self.own(), target: self.behind(), last: false, begun };
        while !line.is_ready(LOOK_MS)? {
            awaited.look(&self.shared.copies, &line, &look)?;
        }
        line.receive(&lines.wait(STEP_MS))
    }
}

/// Lets another copy note that it lacks a range, in whole parts, so that it does not serve the
/// range. With `first` it refuses if it lacked any of it before. It also refuses if it acts under
/// another epoch than `epoch`, because it may have ordered changes since.
pub(super) fn tell_gap(
    lines: &Lines,
    wait: &Wait,
    object: ObjectId,
    target: TargetId,
    range: &Range<u64>,
    (epoch, first): (Epoch, bool),
) -> Result<()> {
    // What is noted here as told are whole parts.
    let note = note(object, target, &gap_parts(range), What::Lacks { epoch, first });
    lines.take(target, wait)?.ask(wait, (&[], &[]), |parcel| parcel.send(&note))
}

/// A message to another copy about a range.
enum What {
    Lacks {
        epoch: Epoch,
        first: bool,
    },
    /// It lacks the range no more, under that epoch.
    Filled(Epoch),
}

fn note(object: ObjectId, target: TargetId, range: &Range<u64>, what: What) -> NoteGapRequest {
    let (first, filled, epoch) = match what {
        What::Lacks { epoch, first } => (first, false, epoch),
        What::Filled(epoch) => (false, true, epoch),
    };
    NoteGapRequest {
        target,
        object,
        behind: target,
        copy: object.copy,
        start: range.start,
        end: range.end,
        told: true,
        first,
        filled,
        epoch,
    }
}

/// The column from a request to one of its copies.
pub(crate) fn column_of(access: &Access) -> Column {
    Column {
        copies: access.copies.clone(),
        generation: access.generation,
        // A request does not say it.
        fence: Generation(0),
        sealed: false,
        columns: 0,
        parities: 0,
        capability: access.capability.clone(),
    }
}

/// Raises the fence of all copies of a column, as a client would ask for it.
pub(crate) fn fence(
    column: &Column,
    object: ObjectId,
    own: usize,
    generation: Generation,
) -> Change {
    let CopyAccess { target, mac, .. } = column.copies[own];
    let object = copy_of(object, own);
    let access = Access {
        target,
        object,
        generation,
        capability: column.capability.clone(),
        mac,
        copies: column.copies.clone(),
        relay: None,
    };
    Change { access, asked: Asked::Fence, work: Work::Fence { object, generation } }
}
