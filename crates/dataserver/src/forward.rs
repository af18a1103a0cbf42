//! Clients that do not reach the server of another copy are helped there: their connection
//! becomes one to that server ([`weir_net::Tunnels`]). The two shake hands anew, with the
//! client's own ticket, so the other server sees the client itself, its attempts
//! ([`crate::attempts`]) and its capabilities, and this one can do no more than not to pass
//! something on.
//!
//! Threads of their own connect; they and the one that passes on wait for no change and hold
//! no lock, so no circle of servers comes of it.

use crate::backlog::Backlog;
use crate::counters::add;
use crate::peers::Peers;
use crate::queue::Admission;
use crate::service::{Event, Shared};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};
use weir_host::net::Socket;
use weir_host::sync::Mutex;
use weir_host::thread::{self, JoinHandle};
use weir_net::{AbortOnPanic, ConnId, LoopHandle, Tunnel, Tunnels};
use weir_types::{Error, Result, TargetId};
use weir_wire::Header;

/// Threads that connect.
const THREADS: usize = 4;
/// Connections that are passed on at once: with [`weir_net::tunnel`]'s chunks 16 MiB at the
/// most.
const MAX_TUNNELS: usize = 128;
/// So long the other server is tried: less than clients wait for it.
const CONNECT_MS: u64 = 800;

/// A client that wants to be helped.
pub(crate) struct ForwardTask {
    pub(crate) conn: ConnId,
    /// Of the answer.
    pub(crate) header: Header,
    pub(crate) to: TargetId,
    pub(crate) reply_to: LoopHandle<Event>,
}

/// A way to another server, and room to use it.
pub(crate) type Way = (Tunnel, Socket);

/// See the top of the file. Threads are started when there is work for them.
pub(crate) struct Forwarder {
    backlog: Backlog<ForwardTask>,
    tunnels: Tunnels,
    peers: Arc<Peers>,
    started: AtomicBool,
    threads: Mutex<Vec<JoinHandle>>,
}

impl Forwarder {
    pub(crate) fn new(queue_limit: usize, peers: Arc<Peers>) -> Result<Self> {
        let (backlog, tunnels) = (Backlog::new(queue_limit), Tunnels::new(MAX_TUNNELS)?);
        let (started, threads) = (AtomicBool::new(false), Mutex::default());
        Ok(Self { backlog, tunnels, peers, started, threads })
    }

    /// Takes a client; `Full` if its connection must pause.
    ///
    /// Errors: if no threads can be started.
    pub(crate) fn submit(&self, shared: &Arc<Shared>, task: ForwardTask) -> Result<Admission> {
        if !self.started.swap(true, AcqRel)
            && let Err(error) = self.start(shared)
        {
            // Those that have begun go on; the next one tries again.
            self.started.store(false, Release);
            return Err(Error::from(error).context("start a thread"));
        }
        let (conn, resume) = (task.conn, task.reply_to.clone());
        Ok(self.backlog.submit(task, conn, resume, |_| ()))
    }

    fn start(&self, shared: &Arc<Shared>) -> std::io::Result<()> {
        let mut threads = self.threads.lock();
        if threads.is_empty() {
            let of = shared.clone();
            let pass_on = move || {
                let _guard = AbortOnPanic("the thread that passes on");
                if let Err(error) = of.forwarder.tunnels.run() {
                    tracing::error!("no client is helped to other servers any more: {error}");
                }
            };
            threads.push(thread::spawn("weir-tunnels", pass_on)?);
        }
        while threads.len() <= THREADS {
            let of = shared.clone();
            let connect = move || {
                let _guard = AbortOnPanic("a thread that connects for clients");
                of.forwarder.work_off(&of);
            };
            let name = format!("weir-forward-{}", threads.len());
            threads.push(thread::spawn(&name, connect)?);
        }
        Ok(())
    }

    fn work_off(&self, shared: &Shared) {
        while let Some(ForwardTask { conn, header, to, reply_to }) = self.backlog.next(|_| ()) {
            let way = self.tunnels.room().and_then(|room| {
                let socket = self.peers.reach(to, &self.peers.wait(CONNECT_MS))?;
                add(&shared.counters.forwarded, 1);
                Ok((room, socket))
            });
            reply_to.post(Event::Reached { conn, header, way });
        }
    }

    /// The client has been told, and its connection let go.
    pub(crate) fn begin(&self, (room, server): Way, client: Socket) {
        self.tunnels.begin(room, client, server);
    }

    /// Ends the threads, and gives them to be waited for.
    pub(crate) fn stop(&self) -> Vec<JoinHandle> {
        self.backlog.stop();
        self.tunnels.stop();
        std::mem::take(&mut *self.threads.lock())
    }
}
