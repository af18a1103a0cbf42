//! The limits of a server.

use crate::buffer::BufferPool;
use weir_types::limits::MAX_IN_FLIGHT_PER_CONNECTION;

/// The most event loops.
pub const MAX_LOOPS: usize = 64;

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
