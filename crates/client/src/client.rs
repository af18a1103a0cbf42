//! The client: one session with a cluster.

pub(crate) mod admin;
pub(crate) mod locations;
pub(crate) mod namespace;

mod background;
mod locks;
mod opens;

use crate::config::{ClientConfig, Consistency};
use crate::context::Context;
use crate::presence::Watch;
use crate::rpc::servers::DataConn;
use crate::state::{Inner, UpperCache};
use std::sync::Arc;
use std::time::Duration;
use weir_host::thread::{self, JoinHandle};
use weir_net::Wait;
use weir_types::{ErrorKind, Result, SessionId, TargetId};
use weir_wire::data::{ListReadersRequest, ReaderEntry, ReadersPage, ServerStatus, StatusRequest};
use weir_wire::map::ClusterMap;
use weir_wire::{Level, Request};

/// Number of readers in one page of a target's readers.
const READERS_PAGE: u32 = 4096;
/// The most readers of one target.
const MAX_READERS: usize = 1 << 20;
/// Pause between attempts to connect to a data server that has just started.
const STARTING: Duration = Duration::from_millis(20);
/// Time that the end of a client waits for the metadata server, milliseconds.
const END_MS: u64 = 1_000;

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
        let inner = Arc::new(Inner::open(config, upper)?);
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

    /// How the last connection to the metadata server was protected: at least as servers of the
    /// cluster require.
    pub fn protection(&self) -> Level {
        self.inner.session.level()
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

    /// The targets of servers on this machine.
    pub fn local_targets(&self) -> Result<Vec<TargetId>> {
        let map = self.cluster_map()?;
        Ok(self.inner.servers.local_targets(&map))
    }

    /// Counters and state of the metadata server.
    pub fn metadata_status(&self) -> Result<ServerStatus> {
        self.inner.session.call(&Context::root(), &StatusRequest {})
    }

    /// Counters and state of the data server that serves a target.
    pub fn data_status(&self, target: TargetId, timeout_ms: u64) -> Result<ServerStatus> {
        let wait = Wait::for_ms(timeout_ms);
        let mut conn = self.connection(target, &wait)?;
        let header = weir_wire::Header::request(StatusRequest::OP, conn.conn.next_request_id());
        conn.conn.send(header, &StatusRequest {}, &[], &[], &wait)?;
        let status = conn.conn.recv_reply(&wait)?;
        conn.put_back();
        Ok(status)
    }

    /// A connection to the server of a target. A server that has just started takes none until it
    /// has heard from the metadata server.
    fn connection(&self, target: TargetId, wait: &Wait) -> Result<DataConn> {
        loop {
            match self.inner.servers.take(&self.inner.session, target, wait) {
                Err(error)
                    if error.kind == ErrorKind::NotCurrent && wait.remaining() > STARTING =>
                {
                    wait.sleep(STARTING)?;
                }
                taken => return taken,
            }
        }
    }

    /// The processes of jobs that read from a target, or did so lately, by job and rank.
    pub fn readers(&self, target: TargetId, timeout_ms: u64) -> Result<Vec<ReaderEntry>> {
        let wait = Wait::for_ms(timeout_ms);
        let mut conn = self.connection(target, &wait)?;
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
        self.inner.turns.end();
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
