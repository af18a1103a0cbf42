//! Forwarding for clients that cannot reach the server of another copy: their connection becomes a
//! tunnel to that server ([`weir_net::Tunnels`]). Client and far server make a new handshake with
//! the client's own ticket. So the far server sees the client itself, its attempts
//! ([`crate::attempts`]) and its capabilities. All that the forwarding server can do is drop bytes.
//!
//! Separate threads connect. They and the tunnel thread wait for no change and hold no lock, so
//! that no circle of servers results.

use crate::counters::{Counters, add};
use crate::peers::Peers;
use crate::queue::Admission;
use crate::queue::backlog::Backlog;
use crate::queue::tasks::{Event, ForwardTask, Way};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};
use weir_host::net::Socket;
use weir_host::sync::Mutex;
use weir_host::thread::{self, JoinHandle};
use weir_net::{AbortOnPanic, Tunnels};
use weir_types::{Error, Result};

/// Number of connecting threads.
const THREADS: usize = 4;
/// The most tunnels. With the chunks of [`weir_net::tunnel`] they take at most 16 MiB.
const MAX_TUNNELS: usize = 128;
/// Timeout of the connection to the far server, milliseconds. It is less than clients wait for it.
const CONNECT_MS: u64 = 800;

/// The forwarder; see the top of the file. Threads are started when there is work for them.
pub(crate) struct Forwarder {
    backlog: Backlog<ForwardTask>,
    tunnels: Tunnels,
    peers: Arc<Peers>,
    counters: Arc<Counters>,
    started: AtomicBool,
    threads: Mutex<Vec<JoinHandle>>,
}

impl Forwarder {
    pub(crate) fn new(
        queue_limit: usize,
        peers: Arc<Peers>,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        let (backlog, tunnels) = (Backlog::new(queue_limit), Tunnels::new(MAX_TUNNELS)?);
        let (started, threads) = (AtomicBool::new(false), Mutex::default());
        Ok(Self { backlog, tunnels, peers, counters, started, threads })
    }

    /// Adds a client. Returns `Full` if its connection must pause.
    ///
    /// Errors: no threads can be started.
    pub(crate) fn submit(self: &Arc<Self>, task: ForwardTask) -> Result<Admission> {
        if !self.started.swap(true, AcqRel)
            && let Err(error) = self.start()
        {
            // Those that have begun go on; the next one tries again.
            self.started.store(false, Release);
            return Err(Error::from(error).context("start a thread"));
        }
        let (conn, resume) = (task.conn, task.reply_to.clone());
        Ok(self.backlog.submit(task, conn, resume, |_| ()))
    }

    fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let mut threads = self.threads.lock();
        if threads.is_empty() {
            let of = self.clone();
            let pass_on = move || {
                let _guard = AbortOnPanic("the thread that passes on");
                if let Err(error) = of.tunnels.run() {
                    tracing::error!("connections of clients are not forwarded any more: {error}");
                }
            };
            threads.push(thread::spawn("weir-tunnels", pass_on)?);
        }
        while threads.len() <= THREADS {
            let of = self.clone();
            let connect = move || {
                let _guard = AbortOnPanic("a thread that connects for clients");
                of.work_off();
            };
            let name = format!("weir-forward-{}", threads.len());
            threads.push(thread::spawn(&name, connect)?);
        }
        Ok(())
    }

    fn work_off(&self) {
        while let Some(ForwardTask { conn, header, to, reply_to }) = self.backlog.next(|_| ()) {
            let way = self.tunnels.room().and_then(|room| {
                let socket = self.peers.reach(to, &self.peers.wait(CONNECT_MS))?;
                add(&self.counters.forwarded, 1);
                Ok((room, socket))
            });
            reply_to.post(Event::Reached { conn, header, way });
        }
    }

    /// Begins to forward, after the client has its reply and its connection has left the loop.
    pub(crate) fn begin(&self, (room, server): Way, client: Socket) {
        self.tunnels.begin(room, client, server);
    }

    /// Ends the threads, and returns them to be joined.
    pub(crate) fn stop(&self) -> Vec<JoinHandle> {
        self.backlog.stop();
        self.tunnels.stop();
        std::mem::take(&mut *self.threads.lock())
    }
}
