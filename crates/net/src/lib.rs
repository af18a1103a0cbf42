//! I/O on sockets for servers and clients. This crate does not know what a request means.
//!
//! - [`address`], [`socket`]: addresses, listening and connecting.
//! - [`buffer`]: page-aligned buffers that stay warm.
//! - [`server`]: a few event loops that serve many connections, each with the server's side of the
//!   handshake, for a [`server::Service`].
//! - [`tunnel`]: bytes that are forwarded between two sockets, unread.
//! - [`blocking`]: the client's side: one connection, used by one thread.
//!
//! Invariants
//! - Every length from the wire is checked before memory is allocated for it.
//! - Overload stops reading from connections; it never grows memory (`tests/overload.rs` of the
//!   data server).
//! - No frame reaches a service before its MAC and its sequence number were checked.

pub mod address;
pub mod blocking;
pub mod buffer;
pub mod host;
mod link;
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
