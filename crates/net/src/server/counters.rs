//! Counters of the event loops.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_wire::Level;

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// Counters of connections and their ends, for all loops together.
        #[derive(Debug, Default)]
        pub struct ServerCounters {
            $($(#[$meta])* pub $name: AtomicU64,)*
        }

        impl ServerCounters {
            /// Name and value of each counter.
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
    /// Open, authenticated connections at the level `args`.
    protected_args,
    /// Open, authenticated connections at the level `data`.
    protected_data,
    /// Open, authenticated connections at the level `private`.
    protected_private,
    /// Connections that are open and not authenticated.
    unauthenticated,
    /// Connections refused, or closed before authentication, because there were too many.
    refused_too_many,
    /// Connections refused because the handshake failed (wrong key, bad ticket).
    refused_handshake,
    /// Connections refused because of another protocol version.
    refused_version,
    /// Connections closed because a frame was malformed or a length was over its limit.
    closed_malformed,
    /// Connections closed because a MAC, a record or a sequence number was wrong.
    closed_not_authentic,
    /// Connections closed because they are protected less than required meanwhile.
    closed_unprotected,
    /// Connections closed because the peer was silent during the handshake or inside a frame, or
    /// accepted no data.
    closed_stalled,
    /// Frames received.
    frames_received,
    /// Frames sent.
    frames_sent,
    /// Times that a connection had to wait for a buffer.
    waits_for_buffer,
}

impl ServerCounters {
    /// The counter of open connections at a level.
    pub(crate) fn protected(&self, level: Level) -> &AtomicU64 {
        match level {
            Level::Args => &self.protected_args,
            Level::Data => &self.protected_data,
            Level::Private => &self.protected_private,
        }
    }

    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }
    pub(crate) fn sub(counter: &AtomicU64) {
        counter.fetch_sub(1, Relaxed);
    }
}
