//! The client: one session with a cluster.

mod closes;

use crate::accesses::Accesses;
use crate::allocated::Silent;
use crate::config::{ClientConfig, Consistency};
use crate::context::Context;
use crate::core::news::Found;
use crate::counters::Counters;
use crate::damage::Damage;
use crate::drive::Call;
use crate::events::EventQueue;
use crate::file::{File, OpenState};
use crate::holdings::Holdings;
use crate::leases::UpperCache;
use crate::pairs::Pairs;
use crate::presence::Peer;
use crate::presence::Watch;
use crate::servers::Servers;
use crate::session::MetaSession;
use crate::writer::Writer;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_host::thread::{self, JoinHandle};
use weir_layout::covered_bytes;
use weir_net::{BufferPool, Wait, raise_descriptor_limit};
use weir_types::{Attr, Caller, FileId, Result, SessionId, TargetId};
use weir_wire::Request;
use weir_wire::capability::Rights;
use weir_wire::data::{
    ListReadersRequest, PingRequest, ReaderEntry, ReadersPage, ServerStatus, StatusRequest,
};
use weir_wire::map::ClusterMap;
use weir_wire::meta::{
    GetAttrRequest, OpenFile, OpenRequest, PendingTruncate, ReassertRequest, SetAttrRequest,
};

/// The most bytes of buffers of a client.
const BUFFER_BYTES: usize = 256 << 20;
/// Wanted limit of open descriptors.
const MAX_DESCRIPTORS: u64 = 65_536;
/// Interval at which the background thread looks for old data.
const TICK: Duration = Duration::from_millis(100);
/// Buffers and connections that were unused for this long are freed.
const UNUSED: Duration = Duration::from_secs(20);
/// A session without requests sends a keepalive after this time.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// A server is pinged if calls have waited for this long without a reply.
const QUIET: Duration = Duration::from_secs(1);

/// Number of readers in one page of a target's readers.
const READERS_PAGE: u32 = 4096;
/// The most readers of one target.
const MAX_READERS: usize = 1 << 20;
/// Time that the end of a client waits for the metadata server, milliseconds.
const END_MS: u64 = 1_000;

/// State that all handles of a client share.
pub(crate) struct Inner {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) session: MetaSession,
    pub(crate) servers: Servers,
    pub(crate) buffers: BufferPool,
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) events: EventQueue,
    pub(crate) pairs: Pairs,
    pub(crate) damage: Damage,
    pub(crate) accesses: Accesses,
    /// Targets that gave no reply about allocated space.
    pub(crate) silent: Silent,
    /// The cache of the layer above.
    pub(crate) upper: Option<Arc<dyn UpperCache>>,
    stop: Arc<(Mutex<bool>, Condvar)>,
}

/// A session with a cluster. All calls may be made from many threads.
pub struct Client {
    pub(crate) inner: Arc<Inner>,
    background: Vec<JoinHandle>,
}

impl Client {
    /// Opens a session.
    ///
    /// # Errors
    /// `Unreachable` if nothing listens, `AuthFailed` if the key is wrong,
    /// `VersionMismatch`; the message says what to do.
    pub fn connect(config: ClientConfig) -> Result<Self> {
        Self::start(config, None)
    }

    /// Opens a session for a layer above that caches file contents itself, and drops them when it
    /// is told to.
    ///
    /// # Errors
    /// See [`Client::connect`].
    pub fn connect_with(config: ClientConfig, upper: Arc<dyn UpperCache>) -> Result<Self> {
        Self::start(config, Some(upper))
    }

    fn start(config: ClientConfig, upper: Option<Arc<dyn UpperCache>>) -> Result<Self> {
        // Every request on its way has a connection of its own.
        let descriptors = raise_descriptor_limit(MAX_DESCRIPTORS);
        let config =
            if config.consistency == Consistency::None { config.without_cache() } else { config };
        let (config, counters) = (Arc::new(config), Arc::new(Counters::default()));
        let holdings = Arc::new(Holdings { upper: upper.clone(), ..Holdings::default() });
        let session = MetaSession::open(config.clone(), counters.clone(), holdings.clone())?;
        let inner = Arc::new(Inner {
            servers: Servers::new(config.clone(), counters.clone(), descriptors)?,
            buffers: BufferPool::new(BUFFER_BYTES),
            stop: Arc::default(),
            events: EventQueue::new()?,
            pairs: Pairs::default(),
            damage: Damage::default(),
            accesses: Accesses::default(),
            silent: Silent::default(),
            session,
            holdings,
            upper,
            config,
            counters,
        });
        let spawn = |name: &str, run: fn(&Arc<Inner>)| {
            let inner = inner.clone();
            thread::spawn(name, move || run(&inner))
        };
        // Two, because the first may have to wait for a data server: the
        // session must not die of that.
        let mut background = vec![
            spawn("weir-flush", |inner| inner.flush_regularly())?,
            spawn("weir-alive", |inner| inner.keep_alive())?,
        ];
        if inner.config.consistency == Consistency::Strict {
            background.push(spawn("weir-poll", Inner::poll_events)?);
            if inner.upper.is_some() {
                inner.holdings.drops.serve();
                background.push(spawn("weir-drop", Inner::drop_lost)?);
            }
        }
        Ok(Self { inner, background })
    }

    /// Id of the session.
    pub fn session(&self) -> SessionId {
        self.inner.session.id()
    }

    /// Counters, sorted by name, and as `buffer_bytes` the memory that fetched data and data to be
    /// sent take now.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let mut all = self.inner.counters.list();
        all.push(("buffer_bytes".into(), self.inner.buffers.used_bytes() as u64));
        all.sort();
        all
    }

    /// Watches servers that go away and come back, and what was lost.
    pub fn watch(&self) -> Watch {
        Watch(self.inner.counters.clone())
    }

    /// The configuration.
    pub fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    /// The cluster map.
    pub fn cluster_map(&self) -> Result<ClusterMap> {
        self.inner.servers.map(&self.inner.session)
    }

    /// Counters and state of the metadata server.
    pub fn metadata_status(&self) -> Result<ServerStatus> {
        self.inner.session.call(&Context::root(), &StatusRequest {})
    }

    /// Counters and state of the data server that serves a target.
    pub fn data_status(&self, target: TargetId, timeout_ms: u64) -> Result<ServerStatus> {
        let wait = Wait::for_ms(timeout_ms);
        let mut conn = self.inner.servers.take(&self.inner.session, target, &wait)?;
        let header = weir_wire::Header::request(StatusRequest::OP, conn.conn.next_request_id());
        conn.conn.send(header, &StatusRequest {}, &[], &[], &wait)?;
        let status = conn.conn.recv_reply(&wait)?;
        conn.put_back();
        Ok(status)
    }

    /// The processes of jobs that read from a target, or did so lately, by job and rank.
    pub fn readers(&self, target: TargetId, timeout_ms: u64) -> Result<Vec<ReaderEntry>> {
        let wait = Wait::for_ms(timeout_ms);
        let mut conn = self.inner.servers.take(&self.inner.session, target, &wait)?;
        let mut all: Vec<ReaderEntry> = Vec::new();
        loop {
            let after = all.last().map(|entry| (entry.job, entry.rank));
            let request = ListReadersRequest { target, after, max_readers: READERS_PAGE };
            let id = conn.conn.next_request_id();
            let header = weir_wire::Header::request(ListReadersRequest::OP, id);
            conn.conn.send(header, &request, &[], &[], &wait)?;
            let page: ReadersPage = conn.conn.recv_reply(&wait)?;
            let more = !page.end && !page.readers.is_empty();
            all.extend(page.readers);
            if !more || all.len() > MAX_READERS {
                conn.put_back();
                return Ok(all);
            }
        }
    }

    /// Writes all buffered data, tells the metadata server which files are closed, and ends the
    /// session.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        let (stopped, wake) = &*self.inner.stop;
        *stopped.lock() = true;
        wake.notify_all();
        self.inner.holdings.drops.stop();
        self.inner.servers.stop_asking();
        let workers = self.inner.events.stop();
        for thread in self.background.drain(..).chain(workers) {
            if thread.join().is_err() {
                tracing::error!("a background thread of the client panicked");
            }
        }
        self.inner.send_accesses(END_MS);
        self.inner.send_closes();
        if self.inner.holdings.opened.lock().counts.is_empty() {
            self.inner.session.end(END_MS);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.background.is_empty() {
            self.stop();
        }
    }
}

/// Marks an open as under way until it is dropped.
pub(crate) struct OpenUnderWay<'a>(&'a Inner);

impl Drop for OpenUnderWay<'_> {
    fn drop(&mut self) {
        self.0.holdings.opened.lock().departed.end();
    }
}

impl Inner {
    /// To be held from before an open is requested until its reply is handled.
    pub(crate) fn begin_open(&self) -> OpenUnderWay<'_> {
        self.holdings.opened.lock().departed.begin();
        OpenUnderWay(self)
    }

    /// Makes a handle from the reply to an open or create. `emptied` says that this request has
    /// truncated the file.
    pub(crate) fn opened(
        self: &Arc<Self>,
        ctx: &Context,
        open: &OpenFile,
        found: Found,
        emptied: bool,
    ) -> Result<File> {
        let file = open.attr.file;
        *self.holdings.opened.lock().counts.entry(file).or_default() += 1;
        if !open.loads.is_empty() && self.servers.will_have_questions() {
            // Who asks is there before the first reads are over.
            self.stop.1.notify_all();
        }
        self.servers.is_going_to_be_used(&self.session);
        self.servers.told_loads(&open.loads);
        let mut fresh = None;
        let state = loop {
            if let Some(state) = self.enter_opened(open, &mut fresh, emptied) {
                break state;
            }
            // From before the last handle was closed.
            let state = OpenState::new(open);
            let asked = state
                .refresh(self, ctx)
                .and_then(|()| self.session.call(ctx, &GetAttrRequest { file }));
            match asked {
                Ok(attr) => state.saw_attr(&attr),
                Err(error) => {
                    self.holdings.opened.lock().closing.push(file);
                    return Err(error);
                }
            }
            fresh = Some(Arc::new(state));
        };
        state.saw_limits(found.keep, open.attr.size);
        let handle = File::new(state.clone(), self.clone());
        self.say_opened(ctx, file, found)?;
        let call = Call { inner: self, file: &state, ctx };
        if open.more_segments {
            let rights = open.capability.capability.rights;
            state.fetch_layout(self, ctx, covered_bytes(&open.layout), rights)?;
        }
        if let Some(pending) = &open.pending_truncate {
            let settled = self.settle_pending(call, pending);
            if settled.is_err() && emptied {
                state.leave_half_cut();
            }
            settled?;
            if state.generation() > pending.generation {
                // Cut since: whoever asks for a lease is told what is left of that.
                return Ok(handle);
            }
        }
        state.take_lease(self, found);
        Ok(handle)
    }

    /// Carries out a truncation that another client has left pending. A caller with read permission
    /// cannot; this program does it under its own identity.
    pub(crate) fn settle_pending(&self, call: Call<'_>, pending: &PendingTruncate) -> Result<()> {
        if call.file.is_writable() {
            return call.file.carry_out(call, pending);
        }
        self.settle_in_own_name(&Context::root(), call.file.id).map_err(|e| {
            e.context("a truncation that another client left pending has to be finished first")
        })?;
        call.file.refresh(self, call.ctx)
    }

    /// Opens a file for writing under this program's own identity, to carry out a pending
    /// truncation. `ctx` may interrupt it.
    pub(crate) fn settle_in_own_name(&self, ctx: &Context, file: FileId) -> Result<()> {
        // Opened and closed in any case: who is interrupted leaves nothing open.
        let own = Context::root();
        let request = OpenRequest { file, rights: Rights::READ_WRITE };
        let (open, found) = self.session.alter(&own, &request);
        let (open, _) = open?;
        // It counts like any other: a server that starts anew is told of it, and does
        // not take its close for another one's.
        *self.holdings.opened.lock().counts.entry(file).or_default() += 1;
        let state = OpenState::new(&open);
        let by = Context { interrupt: ctx.interrupt, ..Context::root() };
        let told = self.say_opened(&own, file, found);
        let done = told.and_then(|()| self.settle_truncate(&by, &state, &open));
        self.holdings.opened.lock().closing.push(file);
        done
    }

    /// Adds a handle of an opened file. Returns `None` if the reply is older than the close of the
    /// last handle, so that the file has to be opened again (`fresh`).
    fn enter_opened(
        &self,
        open: &OpenFile,
        fresh: &mut Option<Arc<OpenState>>,
        emptied: bool,
    ) -> Option<Arc<OpenState>> {
        let file = open.attr.file;
        let mut opened = self.holdings.opened.lock();
        let unconfirmed = opened.unconfirmed.contains(&file);
        let known = fresh.as_ref().map_or(open.attr.change, |state| state.newest_change());
        let outdated = opened.departed.is_newer(file, known);
        match opened.files.entry(file) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().1 += 1;
                let state = entry.get().0.clone();
                drop(opened);
                state.update(open);
                if emptied {
                    state.begin_resize();
                    state.end_resize(Some(open.attr.generation));
                    // What was written before is gone, sent or not.
                    state.writer().forget_objects();
                    state.resized(&open.attr);
                }
                Some(state)
            }
            Entry::Vacant(_) if outdated => None,
            Entry::Vacant(entry) => {
                let state = fresh.take().unwrap_or_else(|| Arc::new(OpenState::new(open)));
                if unconfirmed {
                    // Opened again before it was told: the file was not fenced.
                    state.leave_unconfirmed();
                }
                entry.insert((state.clone(), 1));
                Some(state)
            }
        }
    }

    /// Reports an open file again if the server has restarted, or the session has ended, since the
    /// reply: the report of open files may have been sent before this file was added.
    fn say_opened(&self, ctx: &Context, file: FileId, found: Found) -> Result<()> {
        if self.session.epoch() == found.epoch {
            return Ok(());
        }
        let (first, last) = (false, false);
        let (held, leases) = (Vec::new(), Vec::new());
        let request = ReassertRequest { first, files: vec![file], held, leases, last };
        self.session.call(ctx, &request).map(drop)
    }

    /// Counts a file without names as open, because the session holds it.
    pub(crate) fn is_held(&self, file: FileId, found: Found) {
        *self.holdings.opened.lock().counts.entry(file).or_default() += 1;
        if let Err(error) = self.say_opened(&Context::root(), file, found) {
            tracing::debug!("file {file}: cannot report again that it is held: {error}");
        }
    }

    /// The state of a file, if it is open in this client.
    pub(crate) fn open_state(&self, file: FileId) -> Option<Arc<OpenState>> {
        self.holdings.opened.lock().files.get(&file).map(|(state, _)| state.clone())
    }

    /// Attributes as this client sees them, with its own writes.
    pub(crate) fn seen(&self, mut attr: Attr) -> Attr {
        if let Some(state) = self.open_state(attr.file) {
            state.saw_attr(&attr);
            attr.size = state.size();
            state.correct_times(&mut attr);
            if let Some((_, mtime)) = state.uncommitted() {
                // As the metadata server will see it: times never go back.
                let older = mtime < attr.ctime;
                attr.mtime = if older { mtime.max(attr.mtime) } else { mtime };
                attr.ctime = attr.ctime.max(mtime);
            }
            attr.sparse |= state.has_gap();
        }
        self.accesses.show(&mut attr);
        attr
    }

    /// Changes attributes. A new size is also applied to the objects.
    pub(crate) fn set_attr(
        self: &Arc<Self>,
        ctx: &Context,
        request: &SetAttrRequest,
    ) -> Result<Attr> {
        let state = self.open_state(request.file);
        if let Some(state) = &state {
            // Times and size that are set now must not be overtaken by those
            // of earlier writes.
            let call = Call { inner: self, file: state, ctx };
            Writer::flush(call)?;
            // What others were told of before may still be under way.
            drop(state.reporting.lock());
            // By path it is the server that judges, in the name of who asks.
            if ctx.writer.is_some() {
                state.require_room(call, request.size.unwrap_or(0))?;
            }
        }
        // What was opened may be cut whatever the mode says now; but it grows in the name of whose
        // process does it, as far as quotas go.
        let writer = ctx
            .writer
            .filter(|_| is_of_size_only(request))
            .map(|uid| Context { caller: Caller { uid, ..ctx.caller.clone() }, ..ctx.clone() });
        let by = writer.as_ref().unwrap_or(ctx);
        if request.atime.is_some() {
            let longest = Duration::from_millis(self.config.request_timeout_ms);
            self.accesses.forget(request.file, longest);
        }
        let resized = state.as_ref().filter(|_| request.size.is_some());
        if let Some(state) = resized {
            state.begin_resize();
        }
        let (reply, changed) = self.alter(by, request, &[request.file], &[]);
        if let Some(state) = resized {
            // In this order: nobody sees the new generation and not whose it is.
            state.end_resize(reply.as_ref().ok().map(|reply| reply.attr.generation));
            if reply.is_err() {
                // It may have been done all the same: the next call asks for its
                // lease again, and learns of that.
                state.lease().lose();
            }
        }
        let reply = reply?;
        self.keep_changed(&changed, &reply.attr, None);
        match (&state, request.size) {
            (Some(state), Some(size)) => {
                state.update(&reply);
                if size == 0 {
                    state.writer().forget_objects();
                }
                state.resized(&reply.attr);
                state.saw_limits(changed.found.keep, size);
                state.forget_room(size);
                let _cutting = state.cutting();
                let cut = self.settle_truncate(ctx, state, &reply);
                if cut.is_err() && reply.pending_truncate.is_some() {
                    state.leave_half_cut();
                }
                cut?;
            }
            (None, Some(_)) if reply.pending_truncate.is_some() => {
                let state = OpenState::new(&reply);
                self.settle_truncate(ctx, &state, &reply)?;
            }
            _ => {}
        }
        Ok(reply.attr)
    }

    fn settle_truncate(&self, ctx: &Context, state: &OpenState, reply: &OpenFile) -> Result<()> {
        if reply.more_segments {
            let rights = reply.capability.capability.rights;
            state.fetch_layout(self, ctx, covered_bytes(&reply.layout), rights)?;
        }
        state.finish_truncate(Call { inner: self, file: state, ctx }, reply)
    }

    /// Waits for the next turn of a background thread. Returns false at the end.
    fn next_turn(&self) -> bool {
        let (stopped, wake) = &*self.stop;
        !*wake.wait_timeout(stopped.lock(), TICK)
    }

    fn flush_regularly(&self) {
        let ctx = Context::root();
        while self.next_turn() {
            let files: Vec<_> =
                self.holdings.opened.lock().files.values().map(|f| f.0.clone()).collect();
            for state in files {
                Writer::flush_old(Call { inner: self, file: &state, ctx: &ctx });
                state.reader().expire();
            }
        }
    }

    /// Frees buffers and connections that were unused lately. Returns whether there were any. `again`
    /// says that there were the last time: what others have freed since is given back, too.
    fn give_back_unused(&self, again: bool) -> bool {
        let bytes = self.buffers.trim();
        let connections = self.servers.close_unused(UNUSED) + self.session.close_unused(UNUSED);
        let some = bytes > 0 || connections > 0;
        if some {
            tracing::debug!(
                "freed {bytes} bytes of unused buffers and {connections} unused connections"
            );
        }
        if some || again {
            weir_host::memory::give_back();
        }
        some
    }

    fn keep_alive(self: &Arc<Self>) {
        let (mut trimmed, mut freed) = (clock::now(), false);
        // Nobody who reads no copies needs it.
        let mut asks_for_loads = None;
        while self.next_turn() {
            if asks_for_loads.is_none() && self.servers.has_questions() {
                let inner = self.clone();
                let ask = move || inner.servers.ask_for_loads(&inner.session);
                asks_for_loads = thread::spawn("weir-loads", ask)
                    .inspect_err(|error| tracing::warn!("a thread to ask for loads: {error}"))
                    .ok();
            }
            // What is open may be read, whoever reads it.
            self.send_accesses(self.config.request_timeout_ms);
            self.send_closes();
            if let Err(error) = self.settle_locks() {
                tracing::debug!("locks not released at the server: {error}");
            }
            // Who polls says so with every poll, unless one is late.
            let lease_ms = self.holdings.clock.lease_ms();
            let time = lease_ms.map_or(KEEPALIVE, |ms| Duration::from_millis(ms / 2));
            if self.session.idle_for(KEEPALIVE.min(time))
                && let Err(error) = self.session.call(&Context::root(), &PingRequest {})
            {
                tracing::warn!("metadata server: {error}");
            }
            if clock::elapsed(trimmed) >= UNUSED {
                freed = self.give_back_unused(freed);
                trimmed = clock::now();
            }
            self.servers.keep_map(&self.session);
            self.servers.try_direct(&self.session);
            // Calls that wait for other clients are not to be taken for its silence.
            if self.counters.presence.is_quiet(Peer::Metadata, QUIET)
                && let Err(error) = self.session.ping()
            {
                tracing::debug!("metadata server: {error}");
            }
        }
        // It ends when the client does.
        if asks_for_loads.is_some_and(|thread: JoinHandle| thread.join().is_err()) {
            tracing::error!("the thread that asks for loads panicked");
        }
    }
}

/// Whether the request changes the size alone, as `ftruncate` does.
fn is_of_size_only(request: &SetAttrRequest) -> bool {
    let SetAttrRequest { file: _, mode, uid, gid, size, atime, mtime } = request;
    let others = [mode.is_some(), uid.is_some(), gid.is_some(), atime.is_some(), mtime.is_some()];
    size.is_some() && others == [false; 5]
}
