//! The shells around sockets that servers and clients share. Nothing here
//! knows what a request means.
//!
//! - [`address`], [`socket`]: where to listen and connect, and how.
//! - [`buffer`]: page-aligned buffers that stay warm.
//! - [`server`]: a few event loops that serve many connections, each with the
//!   server's side of the handshake, for a [`server::Service`].
//! - [`tunnel`]: bytes that are passed on between two sockets, unread.
//! - [`blocking`]: one connection in the hands of one thread: the client's side.
//!
//! Invariants
//! - Every length from the wire is checked before memory is set aside for it.
//! - Overload stops reading from connections; it never grows memory
//!   (`tests/overload.rs` of the data server).
//! - No frame reaches a service whose MAC and sequence number were not checked.

pub mod address;
pub mod blocking;
pub mod buffer;
pub mod host;
pub mod server;
pub mod socket;
pub mod tunnel;
pub mod wait;

pub use address::Address;
pub use blocking::{Arrival, BlockingConn, DataReply, Expected};
pub use buffer::{BufferPool, PooledBuf};
pub use host::{AbortOnPanic, host_name, raise_descriptor_limit, random_bytes};
pub use server::{ConnId, Frame, LoopHandle, Outbox, Peer, Server, ServerConfig, Service};
pub use socket::Listener;
pub use tunnel::{Tunnel, Tunnels};
pub use wait::{Wait, Watch};
