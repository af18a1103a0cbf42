//! Write-behind: writes are gathered into whole stripes, and requests are on their way while the
//! program goes on. All bytes are kept until every server has confirmed them.

mod closing;
mod commit;
mod copy;
mod graduated;
mod send;
mod space;
mod sync;
mod together;

use crate::context::Context;
use crate::core::plan::MAX_CALL_BYTES;
use crate::counters::add;
use crate::state::{Buffer, Call, Failures, WriteData, Writer};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_host::clock;
use weir_host::sync::MutexGuard;
use weir_layout::RegionList;
use weir_types::{Error, ErrorKind, Result, Timestamp};

/// A write of this size is sent at once if nothing is before it, because it fills stripes by
/// itself.
const DIRECT_BYTES: usize = 512 << 10;
/// Data that has been gathered or uncommitted for this long is sent and committed.
const MAX_AGE: Duration = Duration::from_millis(500);
/// The same time while chunks of files with graduated writing are on their way.
const GRADUATED_MAX_AGE: Duration = Duration::from_secs(4);

/// When a write call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returns {
    /// After its bytes were taken.
    Taken,
    /// After the servers have its bytes, and the metadata server knows size and time.
    Confirmed,
}

impl Writer {
    /// Writes a copy of `data`.
    pub(crate) fn write(call: Call<'_>, offset: u64, data: &[u8], returns: Returns) -> Result<()> {
        match Self::may_wait(call, data.len(), returns) {
            true => Self::write_together(call, offset, data),
            false => Self::write_by_itself(call, (offset, data), returns),
        }
    }

    fn write_by_itself(
        call: Call<'_>,
        (offset, data): (u64, &[u8]),
        returns: Returns,
    ) -> Result<()> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = Self::begin(call, offset, data.len())?;
        writer.take(call, offset, data)?;
        writer.end(call, returns)
    }

    /// Writes a copy of `data` at the end of the file as this client knows it, and returns the
    /// offset.
    pub(crate) fn append(call: Call<'_>, data: &[u8], returns: Returns) -> Result<u64> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = call.file.writer();
        writer.begin_turn();
        writer.give_back(call);
        // Nobody of this client writes meanwhile: the writer is locked.
        let offset = call.file.size();
        writer.prepare(call, offset, data.len())?;
        writer.take(call, offset, data)?;
        writer.end(call, returns)?;
        Ok(offset)
    }

    fn take(&mut self, call: Call<'_>, offset: u64, data: &[u8]) -> Result<()> {
        let gathers = call.inner.config.write_behind_bytes > 0;
        if gathers && (data.len() < DIRECT_BYTES || !call.file.is_graduated()) {
            let goes_at_once = data.len() >= DIRECT_BYTES && self.is_idle();
            self.gather(call, offset, data)?;
            if goes_at_once {
                self.send_gathered(call);
            }
        } else {
            self.send_gathered(call);
            for (i, chunk) in data.chunks(MAX_CALL_BYTES).enumerate() {
                let mut buffer = Buffer::take(&call.inner.buffers, chunk.len());
                buffer[..chunk.len()].copy_from_slice(chunk);
                let offset = offset + (i * MAX_CALL_BYTES) as u64;
                let data = WriteData::Ours(buffer, chunk.len());
                self.submit(call, offset, data.into(), self.calls)?;
            }
        }
        Ok(())
    }

    /// Writes a buffer that was handed over.
    pub(crate) fn write_owned(
        call: Call<'_>,
        offset: u64,
        data: WriteData,
        returns: Returns,
    ) -> Result<()> {
        let len = data.as_ref().len();
        if !(DIRECT_BYTES..=MAX_CALL_BYTES).contains(&len) {
            return Self::write(call, offset, data.as_ref(), returns);
        }
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = Self::begin(call, offset, len)?;
        if call.inner.config.write_behind_bytes > 0 && !call.file.is_graduated() {
            let goes_at_once = writer.is_idle();
            writer.join(call, offset, data);
            if goes_at_once {
                writer.send_gathered(call);
            }
        } else {
            writer.send_gathered(call);
            let by = writer.calls;
            writer.submit(call, offset, data.into(), by)?;
        }
        writer.end(call, returns)
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
        let plan = call.file.plan_regions(regions)?;
        let mut buffer = Buffer::take(&call.inner.buffers, data.len());
        buffer[..data.len()].copy_from_slice(data);
        let by = writer.calls;
        let fills: Vec<_> = regions.ranges().map(|(start, len)| (start, start + len)).collect();
        let start = fills.first().map_or(end, |(start, _)| *start);
        writer.start(call, plan, (0, by), WriteData::Ours(buffer, data.len()).into(), fills);
        writer.wrote(call, start..end, data.len());
        writer.finish_all(call);
        writer.note_clean(call);
        writer.failures.tell_own()
    }

    /// Locks the writer, reports an earlier failure, and extends the layout.
    fn begin(call: Call<'_>, offset: u64, len: usize) -> Result<MutexGuard<'_, Writer>> {
        let mut writer = call.file.writer();
        writer.begin_turn();
        writer.prepare(call, offset, len)?;
        Ok(writer)
    }

    fn prepare(&mut self, call: Call<'_>, offset: u64, len: usize) -> Result<()> {
        let end = offset.checked_add(len as u64).ok_or(ErrorKind::FileTooLarge)?;
        self.give_back(call);
        self.notice_loss(call);
        self.calls += 1;
        self.failures.tell_next()?;
        call.file.require_room(call, end)?;
        self.cover(call, offset..end)?;
        // In this order: a reader that does not see `dirty` has fetched what
        // it fetched ahead before, and it is forgotten.
        call.file.dirty.store(true, Ordering::Release);
        call.file.reader().clear();
        if self.is_idle() {
            self.tail.begins(call.file.size());
        }
        if len > 0 {
            self.wrote(call, offset..end, len);
        }
        Ok(())
    }

    /// Drops data that was written under lost leases, because another client may have written
    /// since. Each call under way that has written gets an error. No other call gets it if all of the
    /// data is of those.
    fn notice_loss(&mut self, call: Call<'_>) {
        let losses = call.file.losses_so_far();
        if std::mem::replace(&mut self.losses, losses) == losses {
            return;
        }
        let unsent = self.gathered.take().is_some() || !self.in_flight.is_empty();
        if call.file.take_lost_writes() || unsent {
            let what = "the metadata server had not heard of this client for too long: what was \
                        written and not synced may be gone";
            let error = Error::new(ErrorKind::LeaseLost, what);
            let has_own = self.calls >= self.under_way;
            if has_own {
                self.failures.note_own(self.under_way..=self.calls, error.clone());
            }
            if !has_own || self.since.is_none_or(|(_, by)| by < self.under_way) {
                self.failures.note(error);
            }
        }
        self.written.forget();
        self.complete = false;
    }

    fn wrote(&mut self, call: Call<'_>, range: Range<u64>, len: usize) {
        add(&call.inner.counters.write_bytes, len as u64);
        call.file.wrote(range.start, range.end, now());
        self.is_to_be_committed();
    }

    /// Ends a write call: without write-behind waits for confirmation, with it reports failures
    /// known so far. A failure of bytes of this call is reported by this call only, because it has
    /// not returned.
    fn end(&mut self, call: Call<'_>, returns: Returns) -> Result<()> {
        if returns == Returns::Confirmed {
            let (committed, in_place) = self.confirm(call);
            self.failures.tell_own()?;
            if in_place {
                self.only_time_is_left(call);
            }
            return committed;
        }
        if call.inner.config.write_behind_bytes == 0 {
            self.send_gathered(call);
            self.finish_all(call);
        }
        self.note_clean(call);
        self.failures.tell_own()
    }

    /// Waits until the servers have all data, and the metadata server knows the size. Returns whether
    /// that was told, and whether there is nothing to tell but the time.
    fn confirm(&mut self, call: Call<'_>) -> (Result<()>, bool) {
        self.send_gathered(call);
        self.finish_all(call);
        let in_place = self.is_in_place(call);
        let committed = if in_place { Ok(()) } else { self.commit(call) };
        // What was lost meanwhile was not there to be committed.
        self.notice_loss(call);
        self.note_clean(call);
        (committed, in_place)
    }

    /// The time of confirmed writes may be reported a little later.
    fn only_time_is_left(&mut self, call: Call<'_>) {
        call.file.is_sure();
        self.since = None;
        self.late.get_or_insert_with(clock::now);
    }

    /// Whether all uncommitted data is of calls under way, and only its time has to be reported to the
    /// metadata server.
    fn is_in_place(&self, call: Call<'_>) -> bool {
        let alone = self.since.is_some_and(|(_, by)| by >= self.under_way);
        alone && !call.file.has_grown() && !self.written.has_news()
    }

    fn note_clean(&mut self, call: Call<'_>) {
        let clean = self.gathered.is_none() && self.in_flight.is_empty();
        call.file.dirty.store(!clean, Ordering::Release);
        call.file.buffered.store(self.held_bytes(), Ordering::Release);
        if clean && call.file.uncommitted().is_none() && !self.has_news() {
            (self.since, self.late) = (None, None);
        }
    }

    /// Sends written data to the servers before a read of the file.
    pub(crate) fn settle(call: Call<'_>) -> Result<()> {
        if call.file.dirty.load(Ordering::Acquire) {
            let ctx = patient(call.ctx);
            let call = Call { ctx: &ctx, ..call };
            let mut writer = call.file.writer();
            writer.between_calls();
            writer.notice_loss(call);
            writer.send_gathered(call);
            writer.finish_all(call);
            writer.note_clean(call);
        }
        Ok(())
    }

    /// Sends everything and reports size and time to the metadata server.
    pub(crate) fn flush(call: Call<'_>) -> Result<()> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        call.file.writer().flush_locked(call, Failures::tell_next)
    }

    /// As [`Writer::flush`]. A failed write is reported, and reported again to the next write and
    /// to the next sync.
    pub(crate) fn flush_and_keep_error(call: Call<'_>) -> Result<()> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        call.file.writer().flush_locked(call, |failures| failures.show())
    }

    fn flush_locked(
        &mut self,
        call: Call<'_>,
        tell: impl FnOnce(&mut Failures) -> Result<()>,
    ) -> Result<()> {
        self.between_calls();
        self.notice_loss(call);
        self.send_gathered(call);
        self.finish_all(call);
        let committed = self.commit(call);
        // What was lost meanwhile was not there to be committed.
        self.notice_loss(call);
        self.note_clean(call);
        tell(&mut self.failures)?;
        committed
    }

    /// Sends and commits data that has waited long enough.
    pub(crate) fn flush_old(call: Call<'_>) {
        // Whoever cuts the file has sent all, and is told the new size.
        if call.file.is_resizing() {
            return;
        }
        // Whoever holds the lock is sending.
        let Some(mut writer) = call.file.writer.try_lock() else { return };
        if writer.since().is_none() && call.file.uncommitted().is_some() {
            writer.tell_again(call);
            return;
        }
        let Some(since) = writer.since().filter(|since| clock::elapsed(*since) > MAX_AGE) else {
            return;
        };
        if call.file.is_graduated() {
            // What was sent is not waited for yet: that would stop all targets until the slowest is
            // done.
            writer.between_calls();
            writer.notice_loss(call);
            writer.send_gathered(call);
            writer.finish_answered(call);
        }
        if writer.in_flight.is_empty()
            || !call.file.is_graduated()
            || clock::elapsed(since) > GRADUATED_MAX_AGE
        {
            writer.between_calls();
            writer.notice_loss(call);
            writer.send_gathered(call);
            writer.finish_all(call);
            // A failed write stays in `failures`: the program is told by its next
            // write, sync or close. A failed commit is tried again later.
            match writer.commit(call) {
                Ok(()) => (writer.since, writer.late) = (None, None),
                Err(error) => {
                    writer.not_committed(call, error);
                    writer.since = writer.since.map(|(_, by)| (clock::now(), by));
                    writer.late = writer.late.map(|_| clock::now());
                }
            }
            writer.note_clean(call);
        }
    }

    /// Repeats reports that the metadata server may have forgotten by a restart. It happens soon,
    /// because with the lease they would be lost.
    fn tell_again(&mut self, call: Call<'_>) {
        self.between_calls();
        self.notice_loss(call);
        if let Err(error) = self.commit(call) {
            // Tried again as what is new.
            self.not_committed(call, error);
            self.is_to_be_committed();
        }
    }

    /// Handles the failure of a report that no program waits for. What is still to be reported is
    /// reported later; of what is gone with its file's contents the program is told by its next
    /// call.
    fn not_committed(&mut self, call: Call<'_>, error: Error) {
        tracing::warn!("file {}: size not committed: {error}", call.file.id);
        if error.kind == ErrorKind::Stale && call.file.uncommitted().is_none() {
            self.failures.note(error);
        }
    }
}

/// A context without interruption, for sending bytes of write calls that have returned: a signal to
/// any program must not discard them.
fn patient(ctx: &Context) -> Context {
    Context { interrupt: None, ..ctx.clone() }
}

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    let since = clock::unix_now();
    Timestamp::new(since.as_secs() as i64, since.subsec_nanos())
}
