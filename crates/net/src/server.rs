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
//! [`MAX_IN_FLIGHT_PER_CONNECTION`] requests unanswered, too many reply bytes
//! unsent, no buffer to receive into, or while the service says so
//! ([`Outbox::pause`]). A paused connection delivers no further frame, so a
//! service that queues the frame it could not begin and pauses its connection
//! has a queue of at most one frame for each connection.

mod connection;
mod counters;
mod event_loop;
mod mailbox;
mod outbox;
mod receive;

pub use connection::Heir;
pub use counters::ServerCounters;
pub use mailbox::LoopHandle;
pub use outbox::Outbox;

use crate::buffer::{BufferPool, PooledBuf};
use crate::host::{AbortOnPanic, raise_descriptor_limit};
use crate::socket::Listener;
use event_loop::EventLoop;
use mailbox::Mailbox;
use std::sync::Arc;
use weir_host::thread::{self, JoinHandle};
use weir_types::limits::MAX_IN_FLIGHT_PER_CONNECTION;
use weir_types::{Error, ErrorKind, Result, SessionId};
use weir_wire::handshake::{Hello, Identity, Welcome};
use weir_wire::{Header, Key};

/// The most event loops.
pub const MAX_LOOPS: usize = 64;

/// Id of a connection. Never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(u64);

impl ConnId {
    const SLOT_BITS: u32 = 24;
    const GENERATION_BITS: u32 = 32;

    fn new(loop_index: usize, generation: u32, slot: usize) -> Self {
        let upper = (loop_index as u64) << (Self::SLOT_BITS + Self::GENERATION_BITS);
        Self(upper | u64::from(generation) << Self::SLOT_BITS | slot as u64)
    }

    /// Index of the event loop that serves the connection.
    pub fn loop_index(self) -> usize {
        (self.0 >> (Self::SLOT_BITS + Self::GENERATION_BITS)) as usize
    }

    fn slot(self) -> usize {
        (self.0 & ((1 << Self::SLOT_BITS) - 1)) as usize
    }
}

/// The peer of an authenticated connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The identity that the peer has proved.
    pub identity: Identity,
    /// The session that the peer has joined.
    pub session: SessionId,
    /// The name that the peer gives itself, for messages.
    pub name: String,
}

/// A complete, authentic request.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Connection of the request and its reply.
    pub conn: ConnId,
    /// The sender.
    pub peer: &'a Peer,
    /// The header. All its lengths agree with the following fields.
    pub header: Header,
    /// The body.
    pub body: &'a [u8],
    /// The checksums as received, 4 bytes each: see `weir_wire::frame::decode_checks`.
    pub checks: &'a [u8],
    /// The payload, if there is one.
    pub payload: Option<PooledBuf>,
}

/// The request handler of a server. All calls of one instance come from one thread.
///
/// No method may block: that would stall every connection of the loop.
pub trait Service: Send + 'static {
    /// Type of the events that other threads post to the loop.
    type Event: Send + 'static;

    /// Returns the key of an identity, or an error. The peer has proved nothing yet.
    fn key_for(&mut self, hello: &Hello) -> Result<Key>;

    /// Called when the peer has proved its identity. An error still refuses the connection.
    fn welcome(&mut self, conn: ConnId, hello: &Hello) -> Result<Welcome>;

    /// Handles a request. Every request needs exactly one reply, now or later, unless the
    /// connection closes first.
    fn on_frame(&mut self, frame: Frame<'_>, out: &mut Outbox);

    /// Handles an event that another thread has posted.
    fn on_event(&mut self, event: Self::Event, out: &mut Outbox);

    /// Called after all events and frames of this turn. No reply of this turn has been sent, except
    /// by [`Outbox::flush`].
    fn on_turn_end(&mut self, _out: &mut Outbox) {}

    /// Called about once each second.
    fn on_tick(&mut self, _out: &mut Outbox) {}

    /// Called when a welcomed connection is gone. Later replies to it are dropped.
    fn on_closed(&mut self, _conn: ConnId) {}
}

/// The limits of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Number of event loops, 1 to 64; 0 stands for half the processors, at most 4. A simulated
    /// machine has one processor.
    pub loops: usize,
    /// Pool of the buffers for payloads and large bodies.
    pub pool: BufferPool,
    /// The most connections.
    pub max_connections: usize,
    /// The most unauthenticated connections. Beyond it the oldest are closed.
    pub max_unauthenticated: usize,
    /// The most outstanding requests of one connection.
    pub max_in_flight: usize,
    /// While a connection has more unsent reply bytes than this, nothing is received from it.
    pub max_unsent_bytes: usize,
    /// The longest body of a request, bytes.
    pub max_body_bytes: usize,
    /// The longest payload of a request, bytes.
    pub max_payload_bytes: usize,
    /// A handshake must end within this time.
    pub handshake_timeout_ms: u64,
    /// A peer is disconnected if it is silent for this long in the middle of a frame, or accepts no
    /// data for this long.
    pub stall_timeout_ms: u64,
}

impl ServerConfig {
    /// The default limits with this pool.
    pub fn new(pool: BufferPool) -> Self {
        Self {
            loops: 0,
            pool,
            max_connections: 65_536,
            max_unauthenticated: 1024,
            max_in_flight: MAX_IN_FLIGHT_PER_CONNECTION,
            max_unsent_bytes: 4 << 20,
            max_body_bytes: weir_types::limits::MAX_BODY_BYTES,
            max_payload_bytes: weir_types::limits::MAX_PAYLOAD_BYTES,
            handshake_timeout_ms: 10_000,
            stall_timeout_ms: 30_000,
        }
    }

    /// The resulting number of event loops.
    pub fn loop_count(&self) -> usize {
        if weir_host::net::is_simulated() {
            return 1;
        }
        let half = || std::thread::available_parallelism().map_or(1, |n| (n.get() / 2).min(4));
        let wanted = if self.loops == 0 { half() } else { self.loops };
        wanted.clamp(1, MAX_LOOPS)
    }
}

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
        // Besides connections: logs, objects, epoll.
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
            // The first loop accepts for all.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_id_keeps_its_parts() {
        let id = ConnId::new(63, u32::MAX, (1 << 24) - 1);
        assert_eq!((id.loop_index(), id.slot()), (63, (1 << 24) - 1));
        let id = ConnId::new(0, 1, 2);
        assert_eq!((id.loop_index(), id.slot()), (0, 2));
        assert_ne!(id, ConnId::new(0, 2, 2));
    }
}
