//! A few event loops that serve many connections.
//!
//! A server implements [`Service`] (one instance for each loop, used by its
//! thread alone, so it needs no locks) and calls [`Server::start`]. The loop
//! accepts, runs the server's side of the handshake, receives frames, checks
//! length, MAC and sequence, and gives each to [`Service::on_frame`]. The
//! service answers through the [`Outbox`], at once or later: replies may come
//! in any order. Work done on other threads comes back with
//! [`LoopHandle::post`] as [`Service::on_event`].
//!
//! One turn of a loop:
//! 1. wait for sockets, posted events or the next tick;
//! 2. `on_event` for everything posted;
//! 3. receive from ready connections, `on_frame` for each frame (a bounded
//!    number for each connection and turn, so that none starves);
//! 4. `on_turn_end`: e.g. make what the turn did durable, once for all;
//! 5. send the replies, many in one call;
//! 6. each second, `on_tick`.
//!
//! Backpressure. A connection is not read from while it has
//! [`weir_types::limits::MAX_IN_FLIGHT_PER_CONNECTION`] requests unanswered, too many reply bytes
//! unsent, no buffer to receive into, or while the service says so
//! ([`Outbox::pause`]). A paused connection delivers no further frame, so a
//! service that queues the frame it could not begin and pauses its connection
//! has a queue of at most one frame for each connection.

mod config;
mod connection;
mod counters;
mod event_loop;
mod mailbox;
mod outbox;
mod peer;
mod private;
mod receive;
mod service;

pub use config::{MAX_LOOPS, ServerConfig};
pub use connection::Heir;
pub use counters::ServerCounters;
pub use mailbox::LoopHandle;
pub use outbox::Outbox;
pub use peer::{ConnId, Peer};
pub use service::{Frame, Service};

use crate::host::{AbortOnPanic, raise_descriptor_limit};
use crate::socket::Listener;
use event_loop::EventLoop;
use mailbox::Mailbox;
use std::sync::Arc;
use weir_host::thread::{self, JoinHandle};
use weir_types::{Error, ErrorKind, Result};

/// Running event loops. Dropping this stops them.
pub struct Server<E: Send + 'static> {
    handles: Vec<LoopHandle<E>>,
    threads: Vec<JoinHandle>,
    counters: Arc<ServerCounters>,
}

impl<E: Send + 'static> Server<E> {
    /// Starts the loops and serves the connections of the listeners. `service` makes the service of
    /// each loop from the handle that its events are posted to.
    ///
    /// Errors: the kernel has no descriptors or threads left.
    pub fn start<S: Service<Event = E>>(
        config: ServerConfig,
        listeners: Vec<Listener>,
        mut service: impl FnMut(LoopHandle<E>, &Arc<ServerCounters>) -> Result<S>,
    ) -> Result<Self> {
        let config = Arc::new(config);
        let counters = Arc::new(ServerCounters::default());
        // Descriptors are also needed for logs, objects and epoll.
        let wanted = config.max_connections as u64 + 4096;
        let allowed = raise_descriptor_limit(wanted);
        if allowed < wanted {
            tracing::warn!("at most {allowed} descriptors: fewer connections than configured");
        }
        let mailboxes: Vec<Arc<Mailbox<E>>> = (0..config.loop_count())
            .map(|index| Mailbox::new(index).map(Arc::new))
            .collect::<Result<_>>()?;
        let handles: Vec<_> = mailboxes.iter().cloned().map(LoopHandle::new).collect();
        let mut server = Self { handles, threads: Vec::new(), counters };
        let mut listeners = Some(listeners);
        for mailbox in &mailboxes {
            let service = service(LoopHandle::new(mailbox.clone()), &server.counters)?;
            // The first loop accepts connections for all.
            let event_loop = EventLoop::new(
                service,
                config.clone(),
                mailboxes.clone(),
                mailbox.index(),
                listeners.take().unwrap_or_default(),
                server.counters.clone(),
            )?;
            let thread = thread::spawn(&format!("weir-loop-{}", mailbox.index()), move || {
                let _guard = AbortOnPanic("an event loop");
                event_loop.run();
            });
            let thread = thread.map_err(|e| Error::from(e).context("start an event loop"))?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    /// Handles for posting events, one for each loop.
    pub fn handles(&self) -> &[LoopHandle<E>] {
        &self.handles
    }

    /// Counters of the loops.
    pub fn counters(&self) -> &Arc<ServerCounters> {
        &self.counters
    }

    /// Stops all loops, closes all connections and waits for the threads.
    ///
    /// Errors: `Internal` if a loop has panicked.
    pub fn stop(mut self) -> Result<()> {
        self.stop_all()
    }

    fn stop_all(&mut self) -> Result<()> {
        for handle in &self.handles {
            handle.stop();
        }
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                result = Err(Error::new(ErrorKind::Internal, "an event loop has panicked"));
            }
        }
        result
    }
}

impl<E: Send + 'static> Drop for Server<E> {
    fn drop(&mut self) {
        if let Err(e) = self.stop_all() {
            tracing::error!("{e}");
        }
    }
}
