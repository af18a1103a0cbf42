//! Open files. All handles of a file in one client share its [`OpenState`]:
//! layout, capabilities, size, read-ahead and write-behind.

use crate::client::Inner;
use crate::config::Consistency;
use crate::context::Context;
use crate::control::{Control, run_control};
use crate::core::lease::{CallKind, FileLease};
use crate::core::plan::{MAX_CALL_BYTES, Part, Plan, objects, plan_range, plan_regions};
use crate::counters::add;
use crate::drive::Call;
use crate::leases::{Entered, enter, span};
use crate::read::ReadOp;
use crate::reader::Reader;
use crate::write::WriteData;
use crate::writer::Writer;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use weir_host::sync::{Condvar, Mutex, MutexGuard, RwLock};
use weir_layout::{RegionList, covered_bytes};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{
    Attr, Error, ErrorKind, FileId, FileLayout, Generation, Result, TargetId, Timestamp,
};
use weir_wire::capability::{Capability, Rights, SignedCapability};
use weir_wire::data::Access;
use weir_wire::key::Mac;
use weir_wire::lease::{LeaseMode, RecoveredRequest, TO_THE_END};
use weir_wire::meta::{
    ExtendRequest, GetAttrRequest, GetLayoutRequest, LayoutPage, OpenFile, PendingTruncate,
    SetAttrRequest, TruncateDoneRequest,
};

/// What the metadata server granted.
#[derive(Clone, Debug)]
struct Granted {
    layout: FileLayout,
    generation: Generation,
    read: Capabilities,
    write: Capabilities,
}

/// What may be done on each target. Pages of a layout bring capabilities of
/// their own, for their targets.
type Capabilities = BTreeMap<TargetId, (Arc<Capability>, Mac)>;

/// How long the file is.
#[derive(Debug, Default)]
struct Extent {
    /// As far as this client knows, its own writes included.
    size: u64,
    /// End and time of writes that the metadata server does not know of.
    uncommitted: Option<(u64, Timestamp)>,
    /// The same of writes that it was told of while this client holds leases:
    /// after a power cut it may not remember.
    reported: Option<(u64, Timestamp)>,
    /// The newest change of the file that was heard of: older news are ignored.
    change: u64,
    /// Its times, of the contents and of anything.
    times: (Timestamp, Timestamp),
}

impl Extent {
    fn saw(&mut self, attr: &Attr) {
        if attr.change >= self.change {
            self.change = attr.change;
            self.times = (attr.mtime, attr.ctime);
            let written = self.uncommitted.map_or(0, |(end, _)| end);
            self.size = attr.size.max(written);
        }
    }

    /// An answer that was on its way while a newer one came must not show
    /// times from before.
    fn correct_times(&self, attr: &mut Attr) {
        if attr.change < self.change {
            (attr.mtime, attr.ctime) = self.times;
        }
    }
}

/// End and time of all of these writes.
fn later(a: Option<(u64, Timestamp)>, b: Option<(u64, Timestamp)>) -> Option<(u64, Timestamp)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.max(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

impl Extent {
    /// The metadata server was told.
    fn take_uncommitted(&mut self) {
        self.reported = later(self.reported, self.uncommitted.take());
    }
}

/// What all handles of a file share.
pub(crate) struct OpenState {
    pub(crate) id: FileId,
    granted: RwLock<Arc<Granted>>,
    /// Apart from the writer, whose lock may be held while servers are waited for.
    extent: Mutex<Extent>,
    pub(crate) writer: Mutex<Writer>,
    /// Whether the writer holds anything: spares readers its lock.
    pub(crate) dirty: AtomicBool,
    pub(crate) reader: Mutex<Reader>,
    pub(crate) lease: Mutex<FileLease>,
    /// Something changed that calls or a recall may wait for.
    pub(crate) lease_changed: Condvar,
    /// How often leases were lost.
    pub(crate) losses: AtomicU64,
    /// With writes that nobody was told of.
    pub(crate) lost_writes: AtomicBool,
    /// The generation after the last truncation by this client.
    own_generation: AtomicU64,
    /// Truncations by this client under way.
    resizing: AtomicU32,
    /// Somebody has written without leases.
    pub(crate) unleased: AtomicBool,
    /// What the file said when it was opened first: what is kept of it is kept
    /// one way by all handles.
    hint: Option<Consistency>,
}

impl OpenState {
    /// From the reply to an open or create.
    pub(crate) fn new(open: &OpenFile) -> Self {
        let granted = Granted {
            layout: open.layout.clone(),
            generation: open.attr.generation,
            read: Capabilities::new(),
            write: Capabilities::new(),
        };
        let made_empty = open.attr.size == 0;
        let state = Self {
            id: open.attr.file,
            granted: RwLock::new(Arc::new(granted)),
            extent: Mutex::new(Extent {
                size: open.attr.size,
                change: open.attr.change,
                times: (open.attr.mtime, open.attr.ctime),
                ..Extent::default()
            }),
            writer: Mutex::default(),
            dirty: AtomicBool::new(false),
            reader: Mutex::default(),
            lease: Mutex::default(),
            lease_changed: Condvar::new(),
            losses: AtomicU64::new(0),
            lost_writes: AtomicBool::new(false),
            own_generation: AtomicU64::new(0),
            resizing: AtomicU32::new(0),
            unleased: AtomicBool::new(false),
            hint: open.consistency,
        };
        state.take_capability(&open.capability);
        if made_empty {
            state.writer().forget_objects();
        }
        state
    }

    /// Takes over what a later open, create or setattr of the file returned.
    pub(crate) fn update(&self, open: &OpenFile) {
        self.change(|granted| {
            let end = covered_bytes(&open.layout);
            let old = std::mem::replace(&mut granted.layout, open.layout.clone());
            // The reply has the first page only: what is known of the others
            // stays, if it is of the same layout.
            if open.more_segments && old.epoch == open.layout.epoch {
                granted.layout.segments.extend(old.segments.into_iter().filter(|s| s.start >= end));
            }
            granted.generation = open.attr.generation;
        });
        self.take_capability(&open.capability);
        self.saw_attr(&open.attr);
        self.reader().clear();
    }

    fn take_capability(&self, capability: &SignedCapability) {
        let rights = capability.capability.rights;
        self.change(|granted| {
            let shared = Arc::new(capability.capability.clone());
            let entries = || capability.macs.iter().map(|(t, mac)| (*t, (shared.clone(), *mac)));
            if rights.allow(Rights::READ) {
                granted.read.extend(entries());
            }
            if rights.allow(Rights::WRITE) {
                granted.write.extend(entries());
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Granted)) {
        let mut slot = self.granted.write();
        change(Arc::make_mut(&mut slot));
    }

    fn granted(&self) -> Arc<Granted> {
        self.granted.read().clone()
    }

    /// The layout as last seen.
    pub(crate) fn layout(&self) -> FileLayout {
        self.granted().layout.clone()
    }

    /// Which servers a call concerns.
    pub(crate) fn plan(&self, offset: u64, len: u64) -> Result<Plan> {
        plan_range(self.id, &self.granted().layout, offset, len)
    }

    pub(crate) fn generation(&self) -> Generation {
        self.granted().generation
    }

    /// This client truncates the file.
    pub(crate) fn begin_resize(&self) {
        self.resizing.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether a truncation by this client is under way.
    pub(crate) fn is_resizing(&self) -> bool {
        self.resizing.load(Ordering::Acquire) > 0
    }

    /// It has, if there is a generation.
    pub(crate) fn end_resize(&self, generation: Option<Generation>) {
        if let Some(generation) = generation {
            self.own_generation.fetch_max(generation.0, Ordering::AcqRel);
        }
        self.resizing.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether somebody else has fenced off what was written under a generation.
    /// Under leases that means that they were lost: who truncates a file asks
    /// everybody to give them up first, and so does the server before it cuts a
    /// dead writer off.
    pub(crate) fn is_fenced_off(&self, inner: &Inner, written_under: Generation) -> bool {
        inner.config.consistency == Consistency::Strict
            && self.generation() > written_under
            && self.generation().0 > self.own_generation.load(Ordering::Acquire)
            && !self.is_resizing()
            && !self.unleased.load(Ordering::Acquire)
    }

    fn extent(&self) -> MutexGuard<'_, Extent> {
        self.extent.lock()
    }

    pub(crate) fn size(&self) -> u64 {
        self.extent().size
    }

    /// A write of this client reached so far, at this time (the writer's lock
    /// is held).
    pub(crate) fn wrote(&self, end: u64, time: Timestamp) {
        let mut extent = self.extent();
        extent.size = extent.size.max(end);
        extent.uncommitted = later(extent.uncommitted, Some((end, time)));
    }

    /// End and time of writes that the metadata server does not know of.
    pub(crate) fn uncommitted(&self) -> Option<(u64, Timestamp)> {
        self.extent().uncommitted
    }

    /// The metadata server knows of all writes (the writer's lock is held).
    pub(crate) fn committed(&self) {
        self.extent().take_uncommitted();
    }

    /// The metadata server knows of the writes up to here.
    pub(crate) fn committed_if(&self, reported: (u64, Timestamp)) {
        let mut extent = self.extent();
        if extent.uncommitted == Some(reported) {
            extent.take_uncommitted();
        }
    }

    /// A lease was given up: others may change what was reported.
    pub(crate) fn forget_reported(&self) {
        self.extent().reported = None;
    }

    /// The metadata server has started anew, and may not remember the last that
    /// it was told: it is told again, and what it says counts as new.
    pub(crate) fn server_is_new(&self) {
        let mut extent = self.extent();
        extent.change = 0;
        extent.uncommitted = later(extent.uncommitted, extent.reported.take());
    }

    /// Writes that the metadata server does not know of are lost; whether
    /// there were any.
    pub(crate) fn forget_uncommitted(&self) -> bool {
        let mut extent = self.extent();
        extent.reported = None;
        extent.uncommitted.take().is_some()
    }

    /// The metadata server has set the size (the writer has nothing left).
    pub(crate) fn resized(&self, attr: &Attr) {
        let mut extent = self.extent();
        extent.uncommitted = None;
        extent.reported = None;
        extent.saw(attr);
        extent.size = attr.size;
    }

    /// The metadata server said this of the file.
    pub(crate) fn saw_attr(&self, attr: &Attr) {
        self.extent().saw(attr);
    }

    /// Puts newer times into what the metadata server has said, if they are known.
    pub(crate) fn correct_times(&self, attr: &mut Attr) {
        self.extent().correct_times(attr);
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }

    pub(crate) fn reader(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock()
    }

    /// What a request to a part's object shows. `Rights::NONE`: any right will do.
    pub(crate) fn access(&self, part: &Part, needed: Rights) -> Result<Access> {
        let granted = self.granted();
        let held = match needed {
            Rights::READ => &granted.read,
            Rights::WRITE => &granted.write,
            _ if granted.write.is_empty() => &granted.read,
            _ => &granted.write,
        };
        if held.is_empty() {
            let what = "the file is not open for this kind of access";
            return Err(Error::new(ErrorKind::BadHandle, what));
        }
        // Known for other targets only: a page of the layout is missing.
        let (capability, mac) = held.get(&part.target).ok_or(ErrorKind::BadCapability)?;
        Ok(Access {
            target: part.target,
            object: part.object,
            generation: granted.generation,
            capability: Capability::clone(capability),
            mac: *mac,
        })
    }

    /// Whether this client may write to it.
    pub(crate) fn is_writable(&self) -> bool {
        !self.granted().write.is_empty()
    }

    /// Gets layout, generation and capabilities anew, and the cluster map.
    pub(crate) fn refresh(&self, inner: &Inner, ctx: &Context) -> Result<()> {
        inner.servers.refresh_map(&inner.session, false)?;
        let attr = inner.session.call(ctx, &GetAttrRequest { file: self.id })?;
        let granted = self.granted();
        for rights in [Rights::READ, Rights::WRITE] {
            let had = if rights == Rights::READ { &granted.read } else { &granted.write };
            if !had.is_empty() {
                self.fetch_layout(inner, ctx, 0, rights)?;
            }
        }
        self.change(|granted| granted.generation = attr.generation);
        Ok(())
    }

    /// Fetches the layout page by page from `offset` on.
    pub(crate) fn fetch_layout(
        &self,
        inner: &Inner,
        ctx: &Context,
        mut offset: u64,
        rights: Rights,
    ) -> Result<()> {
        loop {
            let request = GetLayoutRequest { file: self.id, offset, rights };
            let page = inner.session.call(ctx, &request)?;
            let end = covered_bytes(&page.layout);
            self.take_page(&page, offset);
            if !page.more_segments || end <= offset {
                return Ok(());
            }
            offset = end;
        }
    }

    fn take_page(&self, page: &LayoutPage, asked: u64) {
        self.change(|granted| {
            let from = page.layout.segments.first().map_or(asked, |s| s.start);
            granted.layout.kind = page.layout.kind;
            granted.layout.base = page.layout.base;
            granted.layout.epoch = page.layout.epoch;
            granted.layout.segments.retain(|s| s.start < from);
            granted.layout.segments.extend(page.layout.segments.iter().cloned());
        });
        self.take_capability(&page.capability);
    }

    /// Sees to it that the layout covers what is about to be written.
    pub(crate) fn cover(&self, call: Call<'_>, end: u64) -> Result<()> {
        if end > MAX_FILE_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let mut covered = covered_bytes(&self.granted().layout);
        while covered < end {
            // The first byte that is missing, not the last: the reply begins
            // with the segment that holds it, and no gap may be left.
            let request = ExtendRequest { file: self.id, offset: covered };
            self.take_page(&call.inner.session.change(call.ctx, &request)?, covered);
            let now = covered_bytes(&self.granted().layout);
            if now <= covered {
                return Err(Error::new(ErrorKind::Internal, "the layout was not extended"));
            }
            covered = now;
        }
        Ok(())
    }

    /// Carries a truncation to the objects and reports it.
    pub(crate) fn finish_truncate(&self, call: Call<'_>, open: &OpenFile) -> Result<()> {
        let Some(pending) = &open.pending_truncate else { return Ok(()) };
        self.carry_out(call, pending)
    }

    /// Carries out what a client left undone.
    pub(crate) fn carry_out(&self, call: Call<'_>, pending: &PendingTruncate) -> Result<()> {
        if pending.size == TO_THE_END {
            return self.recover(call, pending.generation);
        }
        let list = objects(self.id, &self.layout(), pending.size)
            .into_iter()
            .map(|(object, target, len)| {
                let cut = Control::Truncate { len, generation: pending.generation };
                (Part { chunk: 0, object, target }, cut)
            })
            .collect();
        match run_control(call, list) {
            Err(error) if error.kind == ErrorKind::Stale => {
                self.refresh(call.inner, call.ctx)?;
                // Overtaken by one that cuts at least as much, and is carried
                // out by whoever made it, or by the next to ask.
                return if self.generation() > pending.generation { Ok(()) } else { Err(error) };
            }
            result => drop(result?),
        }
        let done = TruncateDoneRequest { file: self.id, generation: pending.generation };
        call.inner.session.change(call.ctx, &done)
    }
}

impl OpenState {
    /// Ends the writes of a client that was cut off: its generation is fenced
    /// off, and the size is what the objects make.
    fn recover(&self, call: Call<'_>, generation: Generation) -> Result<()> {
        // To find the size, all of the layout is needed.
        self.fetch_layout(call.inner, call.ctx, 0, Rights::READ_WRITE)?;
        let fenced = self.fence_objects(call, generation)?;
        let request = RecoveredRequest { file: self.id, generation, size: fenced.size };
        let (result, _) = call.inner.alter(call.ctx, &request, &[self.id], &[]);
        self.saw_attr(&result?);
        self.refresh(call.inner, call.ctx)
    }
}

/// An open file. Close it to learn of errors; dropped, it is closed silently.
pub struct File {
    pub(crate) state: Arc<OpenState>,
    pub(crate) inner: Arc<Inner>,
    consistency: AtomicU8,
    closed: bool,
}

impl File {
    pub(crate) fn new(state: Arc<OpenState>, inner: Arc<Inner>) -> Self {
        let consistency = inner.config.consistency.with_hint(state.hint);
        let consistency = AtomicU8::new(consistency as u8);
        Self { state, inner, consistency, closed: false }
    }

    /// The file's id.
    pub fn id(&self) -> FileId {
        self.state.id
    }

    /// The size as far as this client knows, its own writes included.
    pub fn size(&self) -> u64 {
        self.state.size()
    }

    /// The layout.
    pub fn layout(&self) -> FileLayout {
        self.state.layout()
    }

    /// How far this handle sees other clients' changes, and they its own, from
    /// now on.
    pub fn set_consistency(&self, consistency: Consistency) {
        self.consistency.store(consistency as u8, Ordering::Relaxed);
    }

    /// See [`File::set_consistency`].
    pub fn consistency(&self) -> Consistency {
        let now = self.consistency.load(Ordering::Relaxed);
        let all = [Consistency::Relaxed, Consistency::None];
        let hint = all.into_iter().find(|c| *c as u8 == now);
        // A client that hears of no events cannot be stricter than it is.
        hint.unwrap_or(self.inner.config.consistency)
    }

    /// The lease that this client holds on the whole file: as long as it does,
    /// nobody else changes it (`Read`) or has any of it (`Write`).
    pub fn lease_on_whole(&self) -> Option<LeaseMode> {
        self.state.lease().on_whole()
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
        enter(self.call(ctx), self.consistency(), ranges, kind)
    }

    /// Begins a call that changes the file as a whole.
    pub(crate) fn enter_whole<'a>(&'a self, ctx: &'a Context) -> Result<Entered<'a>> {
        self.enter(ctx, 0..TO_THE_END, CallKind::Write)
    }

    /// Sees to it that the size is right, if it matters to a read that ends
    /// there: who has leases from the end on knows, others ask.
    pub(crate) fn learn_size(&self, call: Call<'_>, end: u64) -> Result<()> {
        let size = self.size();
        let known = match self.consistency() {
            Consistency::Strict => {
                end <= size || self.state.lease().held().reach(size, LeaseMode::Read) == TO_THE_END
            }
            Consistency::Relaxed => true,
            Consistency::None => false,
        };
        if !known {
            self.inner.getattr(call.ctx, self.id())?;
        }
        Ok(())
    }

    /// Without any cache: nothing may wait here.
    pub(crate) fn pass_on(&self, call: Call<'_>) -> Result<()> {
        if self.consistency() == Consistency::None {
            Writer::flush_and_keep_error(call)?;
        }
        Ok(())
    }

    /// Reads at `offset` until `buffer` is full or the file ends; returns the
    /// bytes read. One request goes to each server that holds any of a call's
    /// bytes (calls of up to 4 MiB).
    pub fn read_at(&self, ctx: &Context, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read_entering(ctx, offset, buffer, &|| ())
    }

    /// As [`File::read_at`]; `entered` is called when the lease is there. A layer
    /// above whose pages the read fills, and has locked, need not drop them before:
    /// what they will hold is seen under that lease.
    pub fn read_entering(
        &self,
        ctx: &Context,
        offset: u64,
        buffer: &mut [u8],
        entered: &dyn Fn(),
    ) -> Result<usize> {
        let call = self.call(ctx);
        if buffer.is_empty() {
            return Ok(0);
        }
        let range = offset..offset.saturating_add(buffer.len() as u64);
        let _entered = self.enter(ctx, range.clone(), CallKind::Read)?;
        entered();
        Writer::settle(call)?;
        self.learn_size(call, range.end)?;
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
            done += Reader::read(call, consistency, offset + done as u64, dest)?;
        }
        Ok(len)
    }

    /// Reads strided regions into `buffer`, one after another, with one
    /// request to each server (up to 4 MiB in all). Bytes beyond the end of
    /// the file read as zeros.
    pub fn read_regions(
        &self,
        ctx: &Context,
        regions: &RegionList,
        buffer: &mut [u8],
    ) -> Result<()> {
        let call = self.call(ctx);
        if regions.total_bytes() != buffer.len() as u64 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "buffer and regions differ in size",
            ));
        }
        let _entered = self.enter_all(ctx, &ranges(regions), CallKind::Read)?;
        Writer::settle(call)?;
        add(&self.inner.counters.read_bytes, buffer.len() as u64);
        let layout = &self.state.granted().layout;
        let mut op = ReadOp::start(call, plan_regions(self.id(), layout, regions)?, buffer.len());
        op.finish(call, buffer)
    }

    /// Writes all of `data` at `offset`. With write-behind the data may still
    /// be on its way on return; an error then comes with a later write, sync,
    /// flush or close.
    pub fn write_at(&self, ctx: &Context, offset: u64, data: &[u8]) -> Result<()> {
        let range = span(offset, data.len() as u64)?;
        let _entered = self.enter(ctx, range, CallKind::Write)?;
        Writer::write(self.call(ctx), offset, data)?;
        self.pass_on(self.call(ctx))
    }

    /// As [`File::write_at`] for a page of a shared mapping that is written
    /// back: goes on under a lease that is being given up, which waits for it.
    pub fn write_page(&self, ctx: &Context, offset: u64, data: &[u8]) -> Result<()> {
        let range = span(offset, data.len() as u64)?;
        let _entered = self.enter(ctx, range, CallKind::Page)?;
        Writer::write(self.call(ctx), offset, data)?;
        self.pass_on(self.call(ctx))
    }

    /// As [`File::write_at`] with a buffer that is given away: not copied.
    pub fn write_owned(
        &self,
        ctx: &Context,
        offset: u64,
        data: Box<dyn AsRef<[u8]> + Send>,
    ) -> Result<()> {
        let range = span(offset, (*data).as_ref().len() as u64)?;
        let _entered = self.enter(ctx, range, CallKind::Write)?;
        Writer::write_owned(self.call(ctx), offset, WriteData::Owned(data))?;
        self.pass_on(self.call(ctx))
    }

    /// Writes all of `data` at the true end of the file, whoever else appends;
    /// returns where that was. (Not so with [`Consistency::Relaxed`] and
    /// [`Consistency::None`]: two clients may find the same end.)
    pub fn append(&self, ctx: &Context, data: &[u8]) -> Result<u64> {
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
        let offset = Writer::append(call, data)?;
        self.pass_on(call)?;
        Ok(offset)
    }

    /// Writes strided regions from `data`, with one request to each server (up
    /// to 4 MiB in all); returns when the servers have confirmed.
    pub fn write_regions(&self, ctx: &Context, regions: &RegionList, data: &[u8]) -> Result<()> {
        if regions.total_bytes() != data.len() as u64 {
            return Err(Error::new(ErrorKind::InvalidArgument, "data and regions differ in size"));
        }
        let _entered = self.enter_all(ctx, &ranges(regions), CallKind::Write)?;
        Writer::write_regions(self.call(ctx), regions, data)?;
        self.pass_on(self.call(ctx))
    }

    /// Sends what is gathered and waits until the servers have it: the next
    /// reader who opens the file sees it. An error of an earlier write is
    /// reported, and again by the next write, sync or close: a mount flushes
    /// whenever any copy of a descriptor is closed, and whoever closed that one
    /// may not be who wrote.
    pub fn flush(&self, ctx: &Context) -> Result<()> {
        Writer::flush_and_keep_error(self.call(ctx))
    }

    /// Makes data and metadata durable.
    pub fn sync(&self, ctx: &Context) -> Result<()> {
        Writer::sync(self.call(ctx))
    }

    /// Cuts or extends the file.
    pub fn truncate(&self, ctx: &Context, size: u64) -> Result<Attr> {
        let request = SetAttrRequest { size: Some(size), ..set_nothing(self.id()) };
        self.inner.clone().set_attr(ctx, &request)
    }

    /// Flushes and closes.
    pub fn close(mut self, ctx: &Context) -> Result<()> {
        self.closed = true;
        let result = Writer::flush(self.call(ctx));
        self.inner.closed(&self.state);
        result
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.closed {
            if let Err(error) = self.flush(&Context::root()) {
                tracing::error!("file {}: data was lost at close: {error}", self.id());
            }
            self.inner.closed(&self.state);
        }
    }
}

/// What each region covers.
fn ranges(regions: &RegionList) -> Vec<Range<u64>> {
    regions.ranges().map(|(offset, len)| offset..offset.saturating_add(len)).collect()
}

/// A request that changes no attribute.
pub fn set_nothing(file: FileId) -> SetAttrRequest {
    SetAttrRequest { file, mode: None, uid: None, gid: None, size: None, atime: None, mtime: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::FileKind;

    fn attr(change: u64, size: u64) -> Attr {
        let time = Timestamp(change as i64 * 10);
        Attr {
            file: FileId(7),
            kind: FileKind::File,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size,
            atime: time,
            mtime: time,
            ctime: time,
            change,
            generation: Generation(0),
            preferred_io_bytes: 4096,
        }
    }

    /// As when a size is committed in the background while `stat` asks.
    #[test]
    fn a_late_answer_takes_back_neither_size_nor_times() {
        let mut extent = Extent::default();
        extent.saw(&attr(5, 100));
        extent.saw(&attr(8, 200));
        let mut late = attr(6, 150);
        extent.saw(&late);
        extent.correct_times(&mut late);
        assert_eq!((extent.size, late.mtime, late.ctime), (200, Timestamp(80), Timestamp(80)));
        // A newer one counts, also with an older time that somebody has set.
        let mut set = Attr { mtime: Timestamp(1), ..attr(9, 200) };
        extent.saw(&set);
        extent.correct_times(&mut set);
        assert_eq!(set.mtime, Timestamp(1));
    }
}
