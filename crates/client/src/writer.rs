//! Write-behind: small writes are gathered into whole stripes, and requests
//! are on their way while the program goes on. Everything is kept until every
//! server has confirmed it.
//!
//! Invariant: two requests that overlap are never in flight at the same time,
//! so the later write is what stays.

use crate::buffer::Buffer;
use crate::control::{Control, run_control};
use crate::core::gather::{Gather, gather, is_full};
use crate::core::plan::{MAX_CALL_BYTES, Part, Plan, objects, plan_regions};
use crate::counters::add;
use crate::drive::Call;
use crate::write::{WriteData, WriteOp};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_layout::{RegionList, preferred_io_bytes};
use weir_types::{Error, ErrorKind, ObjectId, Result, TargetId, Timestamp};
use weir_wire::meta::{CommitSizeRequest, SetTime, SyncMetaRequest};

/// A write that needs no gathering: it fills stripes by itself.
const DIRECT_BYTES: usize = 512 << 10;
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
    /// Objects written since the last sync.
    unsynced: HashSet<(ObjectId, TargetId)>,
    /// `unsynced` names all: what was written before this client opened the
    /// file is known to be durable.
    complete: bool,
    since: Option<Instant>,
}

impl Writer {
    /// Writes a copy of `data`.
    pub(crate) fn write(call: Call<'_>, offset: u64, data: &[u8]) -> Result<()> {
        let mut writer = Self::begin(call, offset, data.len())?;
        if call.inner.config.write_behind_bytes > 0 && data.len() < DIRECT_BYTES {
            writer.gather(call, offset, data)?;
        } else {
            writer.send_gathered(call);
            for (i, chunk) in data.chunks(MAX_CALL_BYTES).enumerate() {
                let mut buffer = Buffer::take(&call.inner.buffers, chunk.len());
                buffer[..chunk.len()].copy_from_slice(chunk);
                let offset = offset + (i * MAX_CALL_BYTES) as u64;
                writer.submit(call, offset, WriteData::Ours(buffer, chunk.len()))?;
            }
        }
        writer.end(call)
    }

    /// Writes a buffer that was given away.
    pub(crate) fn write_owned(call: Call<'_>, offset: u64, data: WriteData) -> Result<()> {
        let len = data.as_ref().len();
        if !(DIRECT_BYTES..=MAX_CALL_BYTES).contains(&len) {
            return Self::write(call, offset, data.as_ref());
        }
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
        let mut writer = Self::begin(call, end, 0)?;
        writer.send_gathered(call);
        writer.finish_all(call);
        let plan = plan_regions(call.file.id, &call.file.layout(), regions)?;
        let mut buffer = Buffer::take(&call.inner.buffers, data.len());
        buffer[..data.len()].copy_from_slice(data);
        writer.start(call, plan, 0, WriteData::Ours(buffer, data.len()), 0..data.len());
        writer.wrote(call, end, data.len());
        writer.finish_all(call);
        writer.take_error()
    }

    /// Locks the writer, reports an earlier failure, makes room in the layout.
    fn begin(call: Call<'_>, offset: u64, len: usize) -> Result<std::sync::MutexGuard<'_, Writer>> {
        let end = offset.checked_add(len as u64).ok_or(ErrorKind::FileTooLarge)?;
        let mut writer = call.file.writer();
        writer.take_error()?;
        call.file.cover(call, end)?;
        call.file.reader().clear();
        if len > 0 {
            call.file.dirty.store(true, Ordering::Release);
            writer.wrote(call, end, len);
        }
        Ok(writer)
    }

    fn wrote(&mut self, call: Call<'_>, end: u64, len: usize) {
        add(&call.inner.counters.write_bytes, len as u64);
        call.file.wrote(end, now());
        self.since.get_or_insert_with(Instant::now);
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
                    self.append(call, capacity, offset, &data[..n])?;
                    offset += n as u64;
                    data = &data[n..];
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, call: Call<'_>, capacity: usize, offset: u64, data: &[u8]) -> Result<()> {
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
        let plan = call.file.plan(offset, len as u64)?;
        // Memory beyond the pool is given back before more is taken.
        let beyond_pool = matches!(&data, WriteData::Ours(buffer, _) if !buffer.is_pooled());
        self.start(call, plan, offset, data, 0..len);
        if beyond_pool {
            self.finish_all(call);
        }
        while self.in_flight_bytes > call.inner.config.write_behind_bytes.max(1) {
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
        self.unsynced.extend(plan.parts.iter().map(|p| (p.object, p.target)));
        let op = WriteOp::start(call, plan, offset, data, slice, false);
        self.in_flight_bytes += op.len();
        self.in_flight.push_back(op);
    }

    fn finish_first(&mut self, call: Call<'_>, count: usize) {
        for _ in 0..count {
            let Some(mut op) = self.in_flight.pop_front() else { return };
            self.in_flight_bytes -= op.len();
            if let Err(error) = op.finish(call) {
                self.error.get_or_insert(error);
            }
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
        if clean && call.file.uncommitted().is_none() {
            self.since = None;
        }
    }

    /// Before a read of the file: the servers get what was written.
    pub(crate) fn settle(call: Call<'_>) -> Result<()> {
        if call.file.dirty.load(Ordering::Acquire) {
            let mut writer = call.file.writer();
            writer.send_gathered(call);
            writer.finish_all(call);
            writer.note_clean(call);
        }
        Ok(())
    }

    /// Sends everything and tells the metadata server size and time.
    pub(crate) fn flush(call: Call<'_>) -> Result<()> {
        let mut writer = call.file.writer();
        writer.flush_locked(call)
    }

    fn flush_locked(&mut self, call: Call<'_>) -> Result<()> {
        self.send_gathered(call);
        self.finish_all(call);
        let committed = self.commit(call);
        self.note_clean(call);
        self.take_error()?;
        committed
    }

    fn commit(&self, call: Call<'_>) -> Result<()> {
        let Some((size, mtime)) = call.file.uncommitted() else { return Ok(()) };
        let request = CommitSizeRequest {
            file: call.file.id,
            size,
            generation: call.file.generation(),
            mtime: Some(SetTime::At(mtime)),
        };
        call.inner.session.change(call.ctx, &request)?;
        call.file.committed();
        Ok(())
    }

    /// Makes everything durable.
    pub(crate) fn sync(call: Call<'_>) -> Result<()> {
        let mut writer = call.file.writer();
        writer.flush_locked(call)?;
        let mut unsynced = std::mem::take(&mut writer.unsynced);
        if !writer.complete {
            // Whoever wrote it, and whenever: fsync makes the whole file durable.
            let all = objects(call.file.id, &call.file.layout(), call.file.size());
            let with_data = all.into_iter().filter(|(_, _, len)| *len > 0);
            unsynced.extend(with_data.map(|(object, target, _)| (object, target)));
        }
        let list = unsynced
            .iter()
            .map(|(object, target)| {
                (Part { chunk: 0, object: *object, target: *target }, Control::Sync)
            })
            .collect();
        if let Err(error) = run_control(call, list) {
            // They are still to be synced, should the program try again.
            writer.unsynced.extend(unsynced);
            return Err(error);
        }
        writer.complete = true;
        drop(writer);
        call.inner.session.call(call.ctx, &SyncMetaRequest {})
    }

    /// Sends and commits what has waited long enough.
    pub(crate) fn flush_old(call: Call<'_>) {
        let mut writer = call.file.writer();
        if writer.since.is_some_and(|since| since.elapsed() > MAX_AGE) {
            // The program is told by its next write, sync or close.
            if let Err(error) = writer.flush_locked(call) {
                tracing::warn!("file {}: write-behind failed: {error}", call.file.id);
                writer.error.get_or_insert(error);
            }
            writer.since = None;
        }
    }

    /// The file has no contents (just made, or emptied by this client).
    pub(crate) fn forget_objects(&mut self) {
        self.unsynced.clear();
        self.complete = true;
    }
}

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::new(since.as_secs() as i64, since.subsec_nanos())
}
