//! What the event loops count.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// Numbers of connections and their ends, over all loops.
        #[derive(Debug, Default)]
        pub struct ServerCounters {
            $($(#[$meta])* pub $name: AtomicU64,)*
        }

        impl ServerCounters {
            /// Name and value of each.
            pub fn snapshot(&self) -> Vec<(String, u64)> {
                vec![$((concat!("net.", stringify!($name)).to_string(), self.$name.load(Relaxed)),)*]
            }
        }
    };
}

counters! {
    /// Connections accepted.
    accepted,
    /// Handshakes that succeeded.
    authenticated,
    /// Connections that are open and authenticated.
    connections,
    /// Connections that are open and not authenticated.
    unauthenticated,
    /// Refused, or ended before they were authenticated: there were too many.
    refused_too_many,
    /// Refused: the handshake failed (wrong key, bad ticket).
    refused_handshake,
    /// Refused: another protocol version.
    refused_version,
    /// Closed: a frame was malformed or a length over its limit.
    closed_malformed,
    /// Closed: a MAC or sequence number was wrong.
    closed_not_authentic,
    /// Closed: silent during the handshake or inside a frame, or took no data.
    closed_stalled,
    /// Frames received.
    frames_received,
    /// Frames sent.
    frames_sent,
    /// Times that a connection waited for a buffer.
    waits_for_buffer,
}

impl ServerCounters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }
    pub(crate) fn sub(counter: &AtomicU64) {
        counter.fetch_sub(1, Relaxed);
    }
}
