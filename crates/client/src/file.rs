//! Open files. All handles of a file in one client share its [`OpenState`]: layout, capabilities,
//! size, read-ahead and write-behind.

pub(crate) mod hints;

mod copy;
mod space;

use crate::config::Consistency;
use crate::context::Context;
use crate::core::lease::CallKind;
use crate::core::plan::MAX_CALL_BYTES;
use crate::counters::add;
use crate::io::fence::Fenced;
use crate::io::read::may_read_any_copy;
use crate::io::read::parities::{self, Compared};
use crate::io::writer::Returns;
use crate::leases::{Entered, enter, share_size, span};
use crate::state::{Call, Inner, OpenState, ReadOp, Reader, WriteData, Writer};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use weir_layout::{Region, RegionList};
use weir_types::{
    Attr, Error, ErrorKind, FileId, FileLayout, Generation, Result, Segment, SegmentIndex, TargetId,
};
use weir_wire::lease::{LeaseMode, TO_THE_END};
use weir_wire::meta::SetAttrRequest;

/// Timeout for asking for the size during a call, milliseconds. Usually the answer takes a few
/// milliseconds.
const UNDER_WAY_MS: u64 = 2_000;

/// How often the parities of a segment that changes are compared.
const MAX_COMPARED: usize = 3;

/// An open file. Close it to learn of errors; dropping it closes it silently.
pub struct File {
    pub(crate) state: Arc<OpenState>,
    pub(crate) inner: Arc<Inner>,
    consistency: AtomicU8,
    /// How it is read: see [`crate::Hint`].
    pub(crate) pattern: AtomicU64,
    closed: bool,
}

impl File {
    pub(crate) fn new(state: Arc<OpenState>, inner: Arc<Inner>) -> Self {
        let consistency = inner.config.consistency.with_hint(state.hint);
        let consistency = AtomicU8::new(consistency as u8);
        Self { state, inner, consistency, pattern: AtomicU64::default(), closed: false }
    }

    /// Id of the file.
    pub fn id(&self) -> FileId {
        self.state.id
    }

    /// The size as this client knows it, with its own writes.
    pub fn size(&self) -> u64 {
        self.state.size()
    }

    /// The layout.
    pub fn layout(&self) -> FileLayout {
        self.state.layout()
    }

    /// Gets the layout anew, as somebody may have moved or extended the file.
    pub(crate) fn refresh_layout(&self, ctx: &Context) -> Result<()> {
        self.state.refresh(&self.inner, ctx)
    }

    /// Sets when this handle sees other clients' changes, and when they see its own, from now on.
    pub fn set_consistency(&self, consistency: Consistency) {
        self.consistency.store(consistency as u8, Ordering::Relaxed);
    }

    /// The setting of [`File::set_consistency`].
    pub fn consistency(&self) -> Consistency {
        let now = self.consistency.load(Ordering::Relaxed);
        let all = [Consistency::Relaxed, Consistency::None];
        let hint = all.into_iter().find(|c| *c as u8 == now);
        // A client that hears of no events cannot be stricter than it is.
        hint.unwrap_or(self.inner.config.consistency)
    }

    /// The mode of this client's lease on the whole file. While it holds the lease, no other client
    /// changes the file (`Read`) or uses it at all (`Write`).
    pub fn lease_on_whole(&self) -> Option<LeaseMode> {
        self.state.lease().on_whole()
    }

    /// Takes a lease on the whole file to read: from its return on nobody else writes the file or
    /// moves its bytes until the lease is wanted back, which a layer above is told of
    /// ([`crate::UpperCache::drop_pages`]).
    ///
    /// # Errors
    /// `InvalidArgument` if this handle does without leases; `TimedOut` if others do not give
    /// theirs up.
    pub fn hold_still(&self, ctx: &Context) -> Result<()> {
        if self.consistency() != Consistency::Strict {
            let text = "a file that is open without strict consistency has no leases";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        self.enter(ctx, 0..TO_THE_END, CallKind::Read).map(drop)
    }

    pub(crate) fn call<'a>(&'a self, ctx: &'a Context) -> Call<'a> {
        Call { inner: &self.inner, file: &self.state, ctx }
    }

    /// Begins a call under a lease.
    pub(crate) fn enter<'a>(
        &'a self,
        ctx: &'a Context,
        range: Range<u64>,
        kind: CallKind,
    ) -> Result<Entered<'a>> {
        self.enter_all(ctx, std::slice::from_ref(&range), kind)
    }

    pub(crate) fn enter_all<'a>(
        &'a self,
        ctx: &'a Context,
        ranges: &[Range<u64>],
        kind: CallKind,
    ) -> Result<Entered<'a>> {
        if kind.mode() == LeaseMode::Write && self.consistency() != Consistency::Strict {
            self.state.unleased.store(true, Ordering::Release);
        }
        enter(self.call(ctx), self.consistency(), ranges, kind, &|| ())
    }

    /// Begins a call that changes the file as a whole.
    pub(crate) fn enter_whole<'a>(&'a self, ctx: &'a Context) -> Result<Entered<'a>> {
        self.enter(ctx, 0..TO_THE_END, CallKind::Whole)
    }

    /// Begins a read, and makes sure that the size is right if it matters to a read that ends at
    /// `end`. With leases from the end on the size is known; otherwise the server is asked.
    /// `entered` is called when the read has a lease, under the lock of the leases, and when it has
    /// none.
    pub(crate) fn enter_reading<'a>(
        &'a self,
        ctx: &'a Context,
        (range, end): (Range<u64>, u64),
        kind: CallKind,
        entered: &dyn Fn(bool),
    ) -> Result<Entered<'a>> {
        let call = self.call(ctx);
        let begin = || -> Result<Entered<'a>> {
            let ranges = std::slice::from_ref(&range);
            let begun = enter(call, self.consistency(), ranges, kind, &|| entered(true))?;
            Writer::settle(call)?;
            Ok(begun)
        };
        let begun = begin()?;
        let timeout_ms = self.inner.config.request_timeout_ms;
        match self.learn_size(call, end, UNDER_WAY_MS.min(timeout_ms / 4)) {
            Err(error) if error.kind == ErrorKind::TimedOut => {}
            result => return result.map(|()| begun),
        }
        // Another writer is dead, perhaps, and the server wants everybody's leases, ours too,
        // before it answers. They are not wanted in vain: this call is not under way meanwhile.
        // Whatever changes what it reads makes it get its lease anew, and that brings the size.
        entered(false);
        drop(begun);
        self.learn_size(call, end, timeout_ms)?;
        begin()
    }

    pub(crate) fn learn_size(&self, call: Call<'_>, end: u64, time_ms: u64) -> Result<()> {
        let size = self.size();
        let known = match self.consistency() {
            Consistency::Strict => {
                end <= size || self.state.lease().held().reach(size, LeaseMode::Read) == TO_THE_END
            }
            Consistency::Relaxed => true,
            Consistency::None => false,
        };
        if !known {
            self.inner.getattr_within(call.ctx, self.id(), time_ms)?;
        }
        Ok(())
    }

    /// The size, for a read of regions that ends here: as a read of one range finds it.
    pub fn size_for(&self, ctx: &Context, end: u64) -> Result<u64> {
        self.learn_size(self.call(ctx), end, self.inner.config.request_timeout_ms)?;
        Ok(self.size())
    }

    /// Sends buffered writes at once if the file is used without any cache.
    pub(crate) fn pass_on(&self, call: Call<'_>) -> Result<()> {
        if self.consistency() == Consistency::None {
            Writer::flush_and_keep_error(call)?;
        }
        Ok(())
    }

    /// Reads at `offset` until `buffer` is full or the file ends. Returns the number of bytes. One
    /// request goes to each server that has any of a call's bytes (for calls of up to 4 MiB).
    pub fn read_at(&self, ctx: &Context, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read_past_pages(ctx, offset, buffer, &|_| ())
    }

    /// As [`File::read_at`] into locked pages of the layer above. `entered` is called with `true`
    /// when the lease is held, and with `false` if it has to be acquired again. A lock is held
    /// during that call, so it must not call the client. The layer above need not drop those pages
    /// before, since their new contents are read under the lease.
    pub fn read_entering(
        &self,
        ctx: &Context,
        offset: u64,
        buffer: &mut [u8],
        entered: &dyn Fn(bool),
    ) -> Result<usize> {
        self.read(ctx, offset, buffer, CallKind::Read, entered)
    }

    /// As [`File::read_entering`], for a read that may have locked no pages: pages of the layer
    /// above with bytes of the range are dropped while the read waits for its lease.
    pub fn read_past_pages(
        &self,
        ctx: &Context,
        offset: u64,
        buffer: &mut [u8],
        entered: &dyn Fn(bool),
    ) -> Result<usize> {
        self.read(ctx, offset, buffer, CallKind::Look, entered)
    }

    fn read(
        &self,
        ctx: &Context,
        offset: u64,
        buffer: &mut [u8],
        kind: CallKind,
        entered: &dyn Fn(bool),
    ) -> Result<usize> {
        let call = self.call(ctx);
        if buffer.is_empty() {
            return Ok(0);
        }
        let range = offset..offset.saturating_add(buffer.len() as u64);
        let _entered = self.enter_reading(ctx, (range.clone(), range.end), kind, entered)?;
        if self.consistency() == Consistency::None {
            self.state.reader().clear();
        }
        let len = usize::try_from(self.size().saturating_sub(offset))
            .map_or(buffer.len(), |left| left.min(buffer.len()));
        add(&self.inner.counters.read_bytes, len as u64);
        let mut done = 0;
        while done < len {
            let n = (len - done).min(MAX_CALL_BYTES);
            let consistency = self.consistency();
            let dest = &mut buffer[done..done + n];
            let how = (consistency, self.pattern());
            done += Reader::read(call, how, offset + done as u64, dest)?;
        }
        Ok(len)
    }

    /// Drops read-ahead and asks for the size. Later reads see what others have flushed, also
    /// without [`Consistency::Strict`].
    pub fn refresh(&self, ctx: &Context) -> Result<()> {
        self.state.reader().clear();
        self.inner.getattr(ctx, self.id()).map(drop)
    }

    /// Reads strided regions into `buffer`, one after another, with one request to each server (up
    /// to 4 MiB in all). Bytes beyond the end of the file read as zeros.
    pub fn read_regions(
        &self,
        ctx: &Context,
        regions: &RegionList,
        mut buffer: &mut [u8],
    ) -> Result<()> {
        for is_last in [false, true] {
            match self.read_regions_from(ctx, regions, buffer, None) {
                Err(error) if error.kind == ErrorKind::Stale => {}
                read => return read.map(drop),
            }
            // Another client has made the file longer, or some of it was never written.
            if !is_last {
                self.refresh_layout(ctx)?;
            }
        }
        for (offset, len) in regions.ranges() {
            let (here, rest) = buffer.split_at_mut(len as usize);
            let read = self.read_at(ctx, offset, here)?;
            here[read..].fill(0);
            buffer = rest;
        }
        Ok(())
    }

    /// Fills `buffer` from `offset` on (up to 4 MiB), and reads nothing ahead: for programs that run
    /// where the bytes are. Where any copy may be read, that on `target` is preferred, if there is
    /// one. Bytes beyond the end of the file read as zeros.
    ///
    /// # Errors
    /// `Stale`: a part of it was never written, or the file has grown meanwhile.
    pub fn read_from(
        &self,
        ctx: &Context,
        offset: u64,
        buffer: &mut [u8],
        target: Option<TargetId>,
    ) -> Result<()> {
        let region = Region::contiguous(offset, buffer.len() as u64);
        self.read_regions_from(ctx, &RegionList::new(vec![region])?, buffer, target).map(drop)
    }

    /// As [`File::read_regions`], preferring the copies on one target where any copy may be read.
    /// Returns the targets from which the bytes came.
    pub fn read_regions_from(
        &self,
        ctx: &Context,
        regions: &RegionList,
        buffer: &mut [u8],
        target: Option<TargetId>,
    ) -> Result<Vec<TargetId>> {
        let call = self.call(ctx);
        if regions.total_bytes() != buffer.len() as u64 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "buffer and regions differ in size",
            ));
        }
        let _entered = self.enter_all(ctx, &ranges(regions), CallKind::Look)?;
        Writer::settle(call)?;
        add(&self.inner.counters.read_bytes, buffer.len() as u64);
        let plan = self.state.plan_regions(regions)?;
        let any_copy = may_read_any_copy(call, self.consistency());
        let mut op = ReadOp::start_from(call, plan, buffer.len(), (any_copy, false), target);
        op.finish(call, buffer)?;
        Ok(op.targets().collect())
    }

    /// Writes all of `data` at `offset`. With write-behind the data may still be on its way on
    /// return; an error is then returned by a later write, sync, flush or close.
    pub fn write_at(&self, ctx: &Context, offset: u64, data: &[u8]) -> Result<()> {
        self.write(ctx, offset, data, Returns::Taken)
    }

    /// As [`File::write_at`], but returns when the servers have the data and the metadata server
    /// knows the size. (If the file does not grow, the metadata server learns the time a little
    /// later.) A failure is reported by this call only.
    pub fn write_at_confirmed(&self, ctx: &Context, offset: u64, data: &[u8]) -> Result<()> {
        self.write(ctx, offset, data, Returns::Confirmed)
    }

    fn write(&self, ctx: &Context, offset: u64, data: &[u8], returns: Returns) -> Result<()> {
        let range = span(offset, data.len() as u64)?;
        let _entered = self.enter(ctx, range, CallKind::Write)?;
        Writer::write(self.call(ctx), offset, data, returns)?;
        self.pass_on(self.call(ctx))
    }

    /// As [`File::write_at`] for the write-back of a page of a shared mapping. It goes on under a
    /// lease that is being given up, because giving it up waits for the page.
    pub fn write_page(&self, ctx: &Context, offset: u64, data: &[u8]) -> Result<()> {
        let range = span(offset, data.len() as u64)?;
        let _entered = self.enter(ctx, range, CallKind::Page)?;
        Writer::write(self.call(ctx), offset, data, Returns::Taken)?;
        self.pass_on(self.call(ctx))
    }

    /// As [`File::write_at`] with a buffer that is handed over and not copied.
    pub fn write_owned(
        &self,
        ctx: &Context,
        offset: u64,
        data: Box<dyn AsRef<[u8]> + Send>,
    ) -> Result<()> {
        self.write_given(ctx, offset, data, Returns::Taken)
    }

    /// As [`File::write_at_confirmed`] with a buffer that is handed over.
    pub fn write_owned_confirmed(
        &self,
        ctx: &Context,
        offset: u64,
        data: Box<dyn AsRef<[u8]> + Send>,
    ) -> Result<()> {
        self.write_given(ctx, offset, data, Returns::Confirmed)
    }

    fn write_given(
        &self,
        ctx: &Context,
        offset: u64,
        data: Box<dyn AsRef<[u8]> + Send>,
        returns: Returns,
    ) -> Result<()> {
        let range = span(offset, (*data).as_ref().len() as u64)?;
        let _entered = self.enter(ctx, range, CallKind::Write)?;
        Writer::write_owned(self.call(ctx), offset, WriteData::Owned(data), returns)?;
        self.pass_on(self.call(ctx))
    }

    /// Writes all of `data` at the true end of the file, even if other clients append. Returns the
    /// offset. (With [`Consistency::Relaxed`] and [`Consistency::None`] two clients may find the
    /// same end.)
    pub fn append(&self, ctx: &Context, data: &[u8]) -> Result<u64> {
        self.append_and(ctx, data, Returns::Taken)
    }

    /// As [`File::append`] and [`File::write_at_confirmed`].
    pub fn append_confirmed(&self, ctx: &Context, data: &[u8]) -> Result<u64> {
        self.append_and(ctx, data, Returns::Confirmed)
    }

    fn append_and(&self, ctx: &Context, data: &[u8], returns: Returns) -> Result<u64> {
        let call = self.call(ctx);
        if self.consistency() != Consistency::Strict {
            self.inner.getattr(ctx, self.id())?;
        }
        let _entered = loop {
            let known = self.size();
            let entered = self.enter(ctx, known..TO_THE_END, CallKind::Write)?;
            // Those who could have moved the end have reported before the lease came.
            // Somebody may have cut the file since it was known: then the lease begins
            // behind the end.
            if self.size() >= known {
                break entered;
            }
        };
        let offset = Writer::append(call, data, returns)?;
        self.pass_on(call)?;
        Ok(offset)
    }

    /// Writes strided regions from `data`, with one request to each server (up to 4 MiB in all).
    /// Returns when the servers have confirmed.
    pub fn write_regions(&self, ctx: &Context, regions: &RegionList, data: &[u8]) -> Result<()> {
        if regions.total_bytes() != data.len() as u64 {
            return Err(Error::new(ErrorKind::InvalidArgument, "data and regions differ in size"));
        }
        let _entered = self.enter_all(ctx, &ranges(regions), CallKind::Write)?;
        Writer::write_regions(self.call(ctx), regions, data)?;
        self.pass_on(self.call(ctx))
    }

    /// Sends buffered writes and waits until the servers have them: the next reader who opens the
    /// file sees them. An error of an earlier write is returned, and again by the next write, sync
    /// or close. A mount flushes whenever any copy of a descriptor is closed, and that process may
    /// not be the writer.
    pub fn flush(&self, ctx: &Context) -> Result<()> {
        let _sizing = share_size(&self.inner, &self.state);
        Writer::flush_and_keep_error(self.call(ctx))
    }

    /// As [`File::flush`], for a descriptor that is closed. The metadata server is told the size of a
    /// new small file while its bytes are on their way, and which columns it has with the close.
    pub fn flush_for_close(&self, ctx: &Context) -> Result<()> {
        let _sizing = share_size(&self.inner, &self.state);
        Writer::flush_for_close(self.call(ctx))
    }

    /// Makes data and metadata durable.
    pub fn sync(&self, ctx: &Context) -> Result<()> {
        let _sizing = share_size(&self.inner, &self.state);
        Writer::sync(self.call(ctx))
    }

    /// Sets the size of the file.
    pub fn truncate(&self, ctx: &Context, size: u64) -> Result<Attr> {
        let request = SetAttrRequest { size: Some(size), ..set_nothing(self.id()) };
        self.inner.clone().set_attr(ctx, &request)
    }

    /// Makes every object of the file refuse writes of generations below this one from now on, from
    /// any client, and finds the size that follows from the objects. The file must be open for
    /// writing.
    ///
    /// Errors: those of waiting for every server of the file.
    pub fn fence(&self, ctx: &Context, generation: Generation) -> Result<Fenced> {
        self.state.fence_objects(self.call(ctx), generation)
    }

    /// Compares all parities of the file with the columns that they are of, and reads both. `told`
    /// is called with the bytes that were read of each object, and the number of objects.
    ///
    /// # Errors
    /// `Unreachable`: a server does not give its part.
    pub fn compare_parities(
        &self,
        ctx: &Context,
        told: &mut dyn FnMut(u64, usize),
    ) -> Result<Compared> {
        let call = self.call(ctx);
        self.state.refresh(&self.inner, ctx)?;
        let mut found = Compared::default();
        let is_coded = |segment: &&Segment| segment.is_coded();
        let indexes: Vec<SegmentIndex> =
            self.layout().segments.iter().filter(is_coded).map(|segment| segment.index).collect();
        for index in indexes {
            let mut tries = 0;
            // As it is now; it may have no parities any more.
            while let Some(segment) =
                self.layout().segments.iter().filter(is_coded).find(|now| now.index == index)
            {
                if parities::compare(call, segment, &mut found, told)? {
                    break;
                }
                tries += 1;
                if tries == MAX_COMPARED {
                    let text = format!("segment {index} changes all the time: compare again later");
                    return Err(Error::new(ErrorKind::Busy, text));
                }
            }
        }
        Ok(found)
    }

    /// Flushes and closes.
    pub fn close(mut self, ctx: &Context) -> Result<()> {
        self.closed = true;
        let sizing = share_size(&self.inner, &self.state);
        let result = Writer::close(self.call(ctx));
        drop(sizing);
        self.inner.closed(&self.state);
        result
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.closed {
            if let Err(error) = self.flush_for_close(&Context::root()) {
                tracing::error!("file {}: data was lost at close: {error}", self.id());
            }
            self.inner.closed(&self.state);
        }
    }
}

/// The range of each region.
fn ranges(regions: &RegionList) -> Vec<Range<u64>> {
    regions.ranges().map(|(offset, len)| offset..offset.saturating_add(len)).collect()
}

/// A request that changes no attribute, to be filled in.
pub fn set_nothing(file: FileId) -> SetAttrRequest {
    SetAttrRequest { file, mode: None, uid: None, gid: None, size: None, atime: None, mtime: None }
}
