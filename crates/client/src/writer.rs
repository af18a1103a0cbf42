//! Write-behind: small writes are gathered into whole stripes, and requests
//! are on their way while the program goes on. Everything is kept until every
//! server has confirmed it.
//!
//! Invariant: two requests that overlap are never in flight at the same time,
//! so the later write is what stays.

use crate::buffer::Buffer;
use crate::context::Context;
use crate::control::{Control, run_control};
use crate::copy::{BATCH, Done, run_copy};
use crate::core::copy::plan_copy;
use crate::core::gather::{Gather, gather, is_full};
use crate::core::plan::{MAX_CALL_BYTES, Part, Plan, objects, plan_regions};
use crate::core::written::Written;
use crate::counters::add;
use crate::drive::{Call, now_ms};
use crate::space::{Space, space_requests, steps};
use crate::write::{WriteData, WriteOp};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::MutexGuard;
use weir_layout::{RegionList, covered_bytes, preferred_io_bytes};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{Error, ErrorKind, FileLayout, ObjectId, Result, TargetId, Timestamp};
use weir_wire::meta::{CommitSizeRequest, SetTime};

/// A write that needs no gathering: it fills stripes by itself.
const DIRECT_BYTES: usize = 512 << 10;
/// Requests of one file on their way: each has a connection of its own.
const MAX_IN_FLIGHT: usize = 32;
/// What is gathered or not committed for so long is sent and committed.
const MAX_AGE: Duration = Duration::from_millis(500);

struct Gathered {
    start: u64,
    buffer: Buffer,
    len: usize,
}

/// The write-behind of one file.
#[derive(Default)]
pub(crate) struct Writer {
    gathered: Option<Gathered>,
    in_flight: VecDeque<WriteOp>,
    in_flight_bytes: usize,
    /// What failed after its write call had returned; told once.
    error: Option<Error>,
    /// Columns that servers have confirmed bytes of.
    written: Written,
    /// Objects written since the last sync, each with the run of the machine
    /// that first confirmed some of it.
    unsynced: BTreeMap<(ObjectId, TargetId), Option<u64>>,
    /// `unsynced` names all: what was written before this client opened the
    /// file is known to be durable.
    complete: bool,
    since: Option<Instant>,
    /// How often the leases had been lost when the last write began: what was
    /// written before another loss is not sent any more.
    losses: u64,
}

impl Writer {
    /// Writes a copy of `data`.
    pub(crate) fn write(call: Call<'_>, offset: u64, data: &[u8]) -> Result<()> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = Self::begin(call, offset, data.len())?;
        writer.take(call, offset, data)
    }

    /// Writes a copy of `data` at the end of the file as this client knows it;
    /// returns where that was.
    pub(crate) fn append(call: Call<'_>, data: &[u8]) -> Result<u64> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = call.file.writer();
        // Nobody of this client writes meanwhile: the writer is locked.
        let offset = call.file.size();
        writer.prepare(call, offset, data.len())?;
        writer.take(call, offset, data)?;
        Ok(offset)
    }

    fn take(&mut self, call: Call<'_>, offset: u64, data: &[u8]) -> Result<()> {
        if call.inner.config.write_behind_bytes > 0 && data.len() < DIRECT_BYTES {
            self.gather(call, offset, data)?;
        } else {
            self.send_gathered(call);
            for (i, chunk) in data.chunks(MAX_CALL_BYTES).enumerate() {
                let mut buffer = Buffer::take(&call.inner.buffers, chunk.len());
                buffer[..chunk.len()].copy_from_slice(chunk);
                let offset = offset + (i * MAX_CALL_BYTES) as u64;
                self.submit(call, offset, WriteData::Ours(buffer, chunk.len()))?;
            }
        }
        self.end(call)
    }

    /// Writes a buffer that was given away.
    pub(crate) fn write_owned(call: Call<'_>, offset: u64, data: WriteData) -> Result<()> {
        let len = data.as_ref().len();
        if !(DIRECT_BYTES..=MAX_CALL_BYTES).contains(&len) {
            return Self::write(call, offset, data.as_ref());
        }
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = Self::begin(call, offset, len)?;
        writer.send_gathered(call);
        writer.submit(call, offset, data)?;
        writer.end(call)
    }

    /// Writes strided regions and waits for the confirmation.
    pub(crate) fn write_regions(call: Call<'_>, regions: &RegionList, data: &[u8]) -> Result<()> {
        if !regions.is_ascending() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "regions to write must ascend and not overlap",
            ));
        }
        let end = regions.end();
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = Self::begin(call, end, 0)?;
        writer.send_gathered(call);
        writer.finish_all(call);
        let plan = plan_regions(call.file.id, &call.file.layout(), regions)?;
        let mut buffer = Buffer::take(&call.inner.buffers, data.len());
        buffer[..data.len()].copy_from_slice(data);
        writer.start(call, plan, 0, WriteData::Ours(buffer, data.len()), 0..data.len());
        writer.wrote(call, end, data.len());
        writer.finish_all(call);
        writer.note_clean(call);
        writer.take_error()
    }

    /// Punches or reserves a range while nothing of the file is on its way;
    /// unless `keep_size`, the file grows to hold it.
    pub(crate) fn change_space(
        call: Call<'_>,
        space: Space,
        offset: u64,
        len: u64,
        keep_size: bool,
    ) -> Result<()> {
        let end = offset.checked_add(len).filter(|&end| end <= MAX_FILE_BYTES);
        let end = end.ok_or(ErrorKind::FileTooLarge)?;
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let covered = if space == Space::Reserve { end } else { 0 };
        let mut writer = Self::begin(call, covered, 0)?;
        writer.send_gathered(call);
        writer.finish_all(call);
        let changed = writer.change_objects(call, space, offset..end);
        // What was fetched ahead meanwhile may be of before.
        call.file.reader().clear();
        let grows = !keep_size && end > call.file.size();
        if changed.is_ok() && (space == Space::Punch || grows) {
            call.file.wrote(if grows { end } else { 0 }, now());
            writer.since.get_or_insert_with(clock::now);
        }
        let result = changed.and_then(|()| if grows { writer.commit(call) } else { Ok(()) });
        writer.note_clean(call);
        writer.take_error()?;
        result
    }

    /// Lets the servers copy bytes of a file to this one; nothing of the file is on
    /// its way meanwhile. False: they cannot, or have found rot; whoever reads and
    /// writes the bytes himself learns of which.
    pub(crate) fn copy(
        call: Call<'_>,
        from: Call<'_>,
        source: Range<u64>,
        to_offset: u64,
    ) -> Result<bool> {
        let end = to_offset + (source.end - source.start);
        let ctx = patient(call.ctx);
        let sure = Call { ctx: &ctx, ..call };
        let mut writer = Self::begin(sure, end, 0)?;
        writer.send_gathered(sure);
        writer.finish_all(sure);
        let ready = writer.take_error();
        // Of a copy that ends half way some bytes may be there.
        if ready.is_ok() {
            call.file.wrote(end, now());
            writer.since.get_or_insert_with(clock::now);
        }
        // Bytes that nobody was promised yet: a signal may end it.
        let copied = ready.and_then(|()| writer.copy_objects(call, from, source, to_offset));
        // What was fetched ahead meanwhile may be of before.
        call.file.reader().clear();
        writer.note_clean(sure);
        match copied {
            Ok(bytes) => add(&call.inner.counters.copied_bytes, bytes),
            Err(e) if matches!(e.kind, ErrorKind::Unsupported | ErrorKind::Corrupt) => {
                tracing::debug!("file {}: not copied by the servers: {e}", call.file.id);
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    fn copy_objects(
        &mut self,
        call: Call<'_>,
        from: Call<'_>,
        source: Range<u64>,
        to_offset: u64,
    ) -> Result<u64> {
        if covered_bytes(&from.file.layout()) < source.end {
            // Another client may have made the file longer.
            from.file.refresh(from.inner, from.ctx)?;
        }
        let (layout, to_layout) = (from.file.layout(), call.file.layout());
        // What no segment was granted for was never written.
        let covered = covered_bytes(&layout).clamp(source.start, source.end);
        let to = |at: u64| to_offset + (at - source.start);
        let (of, range) = ((from.file.id, &layout), source.start..covered);
        let list = plan_copy(of, range, (call.file.id, &to_layout), to_offset)?;
        for part in &list {
            self.unsynced.entry(part.to).or_default();
        }
        let mut done = Vec::new();
        for batch in list.chunks(BATCH) {
            let result = run_copy(from, call, batch, &mut done);
            for (part, done) in batch.iter().zip(&done) {
                let Some(Done { by, copied }) = done else { continue };
                self.unsynced.entry(part.to).or_default().get_or_insert(*by);
                if copied.written > 0 {
                    let object = part.to.0;
                    self.written.note(object.segment, part.segment_start, object.column);
                }
            }
            result?;
        }
        if covered < source.end {
            self.change_objects(call, Space::Punch, to(covered)..to(source.end))?;
        }
        Ok(source.end - source.start)
    }

    fn change_objects(&mut self, call: Call<'_>, space: Space, range: Range<u64>) -> Result<()> {
        if space == Space::Punch && covered_bytes(&call.file.layout()) < range.end {
            // Another client may have made the file longer.
            call.file.refresh(call.inner, call.ctx)?;
        }
        let layout = call.file.layout();
        for step in steps(space, range) {
            let list = space_requests(call.file.id, &layout, space, step);
            for (part, ..) in &list {
                self.unsynced.entry((part.object, part.target)).or_default();
            }
            let requests = list.iter().map(|&(part, control, _)| (part, control)).collect();
            let done_by = run_control(call, requests)?;
            for ((part, _, start), by) in list.iter().zip(done_by) {
                let object = (part.object, part.target);
                self.unsynced.entry(object).or_default().get_or_insert(by);
                if space == Space::Reserve {
                    self.written.note(part.object.segment, *start, part.object.column);
                }
            }
        }
        Ok(())
    }

    /// Locks the writer, reports an earlier failure, makes room in the layout.
    fn begin(call: Call<'_>, offset: u64, len: usize) -> Result<MutexGuard<'_, Writer>> {
        let mut writer = call.file.writer();
        writer.prepare(call, offset, len)?;
        Ok(writer)
    }

    fn prepare(&mut self, call: Call<'_>, offset: u64, len: usize) -> Result<()> {
        let end = offset.checked_add(len as u64).ok_or(ErrorKind::FileTooLarge)?;
        self.notice_loss(call);
        self.take_error()?;
        call.file.cover(call, end)?;
        // In this order: a reader that does not see `dirty` has fetched what
        // it fetched ahead before, and it is forgotten.
        call.file.dirty.store(true, Ordering::Release);
        call.file.reader().clear();
        if len > 0 {
            self.wrote(call, end, len);
        }
        Ok(())
    }

    /// What was written under leases that were lost is not sent: somebody else
    /// may have written since. Whoever wrote it is told.
    fn notice_loss(&mut self, call: Call<'_>) {
        let losses = call.file.losses();
        if std::mem::replace(&mut self.losses, losses) == losses {
            return;
        }
        let unsent = self.gathered.take().is_some() || !self.in_flight.is_empty();
        if call.file.take_lost_writes() || unsent {
            let what = "the metadata server had not heard of this client for too long: what was \
                        written and not synced may be gone";
            self.error.get_or_insert(Error::new(ErrorKind::LeaseLost, what));
        }
        self.written.forget();
        self.complete = false;
    }

    fn wrote(&mut self, call: Call<'_>, end: u64, len: usize) {
        add(&call.inner.counters.write_bytes, len as u64);
        call.file.wrote(end, now());
        self.since.get_or_insert_with(clock::now);
    }

    /// Without write-behind, waits; with it, reports what is known so far.
    fn end(&mut self, call: Call<'_>) -> Result<()> {
        if call.inner.config.write_behind_bytes == 0 {
            self.finish_all(call);
        }
        self.note_clean(call);
        self.take_error()
    }

    fn gather(&mut self, call: Call<'_>, mut offset: u64, mut data: &[u8]) -> Result<()> {
        let capacity = preferred_io_bytes(&call.file.layout()) as usize;
        while !data.is_empty() {
            let (start, held) = self.gathered.as_ref().map_or((offset, 0), |g| (g.start, g.len));
            match gather(start, held, capacity, offset, data.len()) {
                Gather::SendFirst => self.send_gathered(call),
                Gather::Direct => {
                    let mut buffer = Buffer::take(&call.inner.buffers, data.len());
                    buffer[..data.len()].copy_from_slice(data);
                    return self.submit(call, offset, WriteData::Ours(buffer, data.len()));
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

    fn send_gathered(&mut self, call: Call<'_>) {
        if let Some(Gathered { start, buffer, len }) = self.gathered.take()
            && let Err(error) = self.submit(call, start, WriteData::Ours(buffer, len))
        {
            self.error.get_or_insert(error);
        }
    }

    fn submit(&mut self, call: Call<'_>, offset: u64, data: WriteData) -> Result<()> {
        let len = data.as_ref().len();
        let range = offset..offset + len as u64;
        let overlaps = |op: &WriteOp| op.range.start < range.end && range.start < op.range.end;
        if let Some(last) = self.in_flight.iter().rposition(overlaps) {
            self.finish_first(call, last + 1);
        }
        let plan = match call.file.plan(offset, len as u64) {
            Err(error) if error.kind == ErrorKind::Stale => {
                call.file.refresh(call.inner, call.ctx)?;
                call.file.cover(call, range.end)?;
                call.file.plan(offset, len as u64)?
            }
            plan => plan?,
        };
        // Memory beyond the pool is given back before more is taken.
        let beyond_pool = matches!(&data, WriteData::Ours(buffer, _) if !buffer.is_pooled());
        self.start(call, plan, offset, data, 0..len);
        if beyond_pool {
            self.finish_all(call);
        }
        while self.in_flight_bytes > call.inner.config.write_behind_bytes.max(1)
            || self.in_flight.len() > MAX_IN_FLIGHT
        {
            self.finish_first(call, 1);
        }
        Ok(())
    }

    fn start(
        &mut self,
        call: Call<'_>,
        plan: Plan,
        offset: u64,
        data: WriteData,
        slice: std::ops::Range<usize>,
    ) {
        for part in &plan.parts {
            self.unsynced.entry((part.object, part.target)).or_default();
        }
        let op = WriteOp::start(call, plan, offset, data, slice, self.losses);
        self.in_flight_bytes += op.len();
        self.in_flight.push_back(op);
    }

    fn finish_first(&mut self, call: Call<'_>, count: usize) {
        // One deadline for all, or a dead server would be waited for many times.
        let deadline_ms = now_ms() + call.inner.config.request_timeout_ms;
        for _ in 0..count {
            let Some(mut op) = self.in_flight.pop_front() else { return };
            self.in_flight_bytes -= op.len();
            let finished = op.finish(call, deadline_ms);
            for (object, by) in op.confirmed() {
                self.unsynced.entry(object).or_default().get_or_insert(by);
            }
            match finished {
                Ok(()) => self.note_written(op.plan()),
                Err(error) => {
                    call.inner.counters.presence.data_lost(call.file.id, &error);
                    self.error.get_or_insert(error);
                }
            }
        }
    }

    fn note_written(&mut self, plan: &Plan) {
        for part in &plan.parts {
            let start = plan.chunks[part.chunk].segment_start;
            self.written.note(part.object.segment, start, part.object.column);
        }
    }

    fn finish_all(&mut self, call: Call<'_>) {
        self.finish_first(call, self.in_flight.len());
    }

    fn take_error(&mut self) -> Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }

    fn note_clean(&mut self, call: Call<'_>) {
        let clean = self.gathered.is_none() && self.in_flight.is_empty();
        call.file.dirty.store(!clean, Ordering::Release);
        if clean && call.file.uncommitted().is_none() && !self.written.has_news() {
            self.since = None;
        }
    }

    /// Before a read of the file: the servers get what was written.
    pub(crate) fn settle(call: Call<'_>) -> Result<()> {
        if call.file.dirty.load(Ordering::Acquire) {
            let ctx = patient(call.ctx);
            let call = Call { ctx: &ctx, ..call };
            let mut writer = call.file.writer();
            writer.notice_loss(call);
            writer.send_gathered(call);
            writer.finish_all(call);
            writer.note_clean(call);
        }
        Ok(())
    }

    /// Sends everything and tells the metadata server size and time.
    pub(crate) fn flush(call: Call<'_>) -> Result<()> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = call.file.writer();
        writer.flush_locked(call)
    }

    /// As [`Writer::flush`]; a failed write is told of, and remains to be told
    /// of to the next who writes or syncs.
    pub(crate) fn flush_and_keep_error(call: Call<'_>) -> Result<()> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = call.file.writer();
        writer.notice_loss(call);
        writer.send_gathered(call);
        writer.finish_all(call);
        let kept = writer.error.clone();
        let flushed = writer.flush_locked(call);
        let lost = |error: &&Error| error.kind == ErrorKind::LeaseLost;
        writer.error = kept.or_else(|| flushed.as_ref().err().filter(lost).cloned());
        flushed
    }

    fn flush_locked(&mut self, call: Call<'_>) -> Result<()> {
        self.notice_loss(call);
        self.send_gathered(call);
        self.finish_all(call);
        let committed = self.commit(call);
        // What was lost meanwhile was not there to be committed.
        self.notice_loss(call);
        self.note_clean(call);
        self.take_error()?;
        committed
    }

    /// Before a lease is given up: the servers get all, and the metadata server
    /// knows size and time. What could not be written is told to the program.
    ///
    /// # Errors
    /// The metadata server could not be told.
    pub(crate) fn give_up(call: Call<'_>) -> Result<()> {
        let mut writer = call.file.writer();
        writer.notice_loss(call);
        writer.send_gathered(call);
        writer.finish_all(call);
        let committed = match writer.commit(call) {
            Err(error) if error.kind == ErrorKind::Stale => {
                writer.error.get_or_insert(error);
                Ok(())
            }
            // The last name went, and the file with it: nobody will ask.
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            result => result,
        };
        writer.note_clean(call);
        committed
    }

    /// Tells the metadata server size and time of what was written, sent or
    /// not. Does not wait for data servers, nor for whoever does.
    pub(crate) fn report(call: Call<'_>) -> Result<()> {
        for again in [true, false] {
            let Some(unreported) = call.file.uncommitted() else { return Ok(()) };
            let request = CommitSizeRequest {
                file: call.file.id,
                size: unreported.0,
                generation: call.file.generation(),
                mtime: Some(SetTime::At(unreported.1)),
                written: Vec::new(),
            };
            match call.inner.commit_size(call.ctx, &request) {
                Ok(attr) => {
                    call.file.saw_attr(&attr);
                    call.file.committed_if(unreported);
                    return Ok(());
                }
                Err(error) if error.kind == ErrorKind::Stale && again => {
                    let generation = call.file.generation();
                    call.file.refresh(call.inner, call.ctx)?;
                    if call.file.is_fenced_off(call.inner, generation) {
                        call.file.lose_leases();
                    }
                }
                // The writer will be told by its own commit, or there is nobody.
                Err(error) if matches!(error.kind, ErrorKind::Stale | ErrorKind::NotFound) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn commit(&mut self, call: Call<'_>) -> Result<()> {
        if call.file.uncommitted().is_none() && !self.written.has_news() {
            return Ok(());
        }
        let first = |layout: FileLayout| layout.segments.first().map(|s| s.index);
        match self.commit_once(call) {
            Err(error) if error.kind == ErrorKind::Stale => {
                let (before, generation) = (first(call.file.layout()), call.file.generation());
                call.file.refresh(call.inner, call.ctx)?;
                if call.file.is_fenced_off(call.inner, generation) {
                    call.file.lose_leases();
                    // The program is told by its next call.
                    self.notice_loss(call);
                    return Ok(());
                }
                if first(call.file.layout()) == before {
                    // Cut, but not emptied: what was written is still there.
                    return self.commit_once(call);
                }
                // What was written is gone with what it was written over. The
                // program is told once, and may go on anew.
                call.file.committed();
                self.written.forget();
                Err(error.context("the file was emptied meanwhile"))
            }
            result => result,
        }
    }

    fn commit_once(&mut self, call: Call<'_>) -> Result<()> {
        let (size, mtime) = match call.file.uncommitted() {
            Some((size, mtime)) => (size, Some(SetTime::At(mtime))),
            // They were reported before all of it was sent.
            None => (0, None),
        };
        // Once, but for a file of very many segments.
        loop {
            let request = CommitSizeRequest {
                file: call.file.id,
                size,
                generation: call.file.generation(),
                mtime,
                written: self.written.report(),
            };
            let attr = call.inner.commit_size(call.ctx, &request)?;
            call.file.saw_attr(&attr);
            if !self.written.reported(&request.written) {
                call.file.committed();
                return Ok(());
            }
        }
    }

    /// Makes everything durable.
    pub(crate) fn sync(call: Call<'_>) -> Result<()> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = call.file.writer();
        writer.flush_locked(call)?;
        let mut unsynced = std::mem::take(&mut writer.unsynced);
        if !writer.complete {
            // Whoever wrote it, and whenever: fsync makes the whole file durable.
            let all = objects(call.file.id, &call.file.layout(), call.file.size());
            let with_data = all.into_iter().filter(|(_, _, len)| *len > 0);
            for (object, target, _) in with_data {
                unsynced.entry((object, target)).or_default();
            }
        }
        let list = unsynced
            .keys()
            .map(|(object, target)| {
                (Part { chunk: 0, object: *object, target: *target }, Control::Sync)
            })
            .collect();
        let synced_by = match run_control(call, list) {
            Ok(synced_by) => synced_by,
            Err(error) => {
                // They are still to be synced, should the program try again.
                writer.unsynced.extend(unsynced);
                return Err(error);
            }
        };
        writer.complete = true;
        drop(writer);
        require_kept(&unsynced, &synced_by)?;
        call.inner.session.sync(call.ctx)
    }

    /// Sends and commits what has waited long enough.
    pub(crate) fn flush_old(call: Call<'_>) {
        // Whoever holds the lock is sending.
        let Some(mut writer) = call.file.writer.try_lock() else { return };
        if writer.since.is_some_and(|since| clock::elapsed(since) > MAX_AGE) {
            writer.notice_loss(call);
            writer.send_gathered(call);
            writer.finish_all(call);
            // A failed write stays in `error`: the program is told by its next
            // write, sync or close. A failed commit is tried again later.
            match writer.commit(call) {
                Ok(()) => writer.since = None,
                Err(error) => {
                    tracing::warn!("file {}: size not committed: {error}", call.file.id);
                    writer.since = Some(clock::now());
                }
            }
            writer.note_clean(call);
        }
    }

    /// The file has no contents (just made, or emptied by this client).
    pub(crate) fn forget_objects(&mut self) {
        self.gathered = None;
        self.unsynced.clear();
        self.written.forget();
        self.complete = true;
    }
}

/// What a machine confirmed before it started anew may be gone: the program is
/// told, once.
fn require_kept(
    unsynced: &BTreeMap<(ObjectId, TargetId), Option<u64>>,
    synced_by: &[u64],
) -> Result<()> {
    for (((_, target), confirmed_by), synced_by) in unsynced.iter().zip(synced_by) {
        if confirmed_by.is_some_and(|by| by != *synced_by) {
            let what = format!(
                "target {target}: its machine was started anew since some of this was written, \
                 and what was not synced before may be gone: write it again"
            );
            return Err(Error::new(ErrorKind::Io, what));
        }
    }
    Ok(())
}

/// Sending what was already taken from a program goes on when it, or another
/// one, gets a signal: bytes that a write call has returned for are not given up.
fn patient(ctx: &Context) -> Context {
    Context { interrupt: None, ..ctx.clone() }
}

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    let since = clock::unix_now();
    Timestamp::new(since.as_secs() as i64, since.subsec_nanos())
}
