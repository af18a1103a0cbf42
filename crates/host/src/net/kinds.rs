//! What a poller is asked for, and what it tells.

/// What to wait for. Broken connections are always told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Bytes to receive, a connection to accept, the end of the stream.
    pub readable: bool,
    /// Room to send.
    pub writable: bool,
    /// Of a poller: tell once when it becomes so, not as long as it is so.
    pub edge: bool,
}

impl Interest {
    /// Something to receive or accept.
    pub const READ: Self = Self { readable: true, writable: false, edge: false };
    /// Room to send.
    pub const WRITE: Self = Self { readable: false, writable: true, edge: false };
    /// Every change.
    pub const EDGES: Self = Self { readable: true, writable: true, edge: true };
    /// Nothing.
    pub const NONE: Self = Self { readable: false, writable: false, edge: false };
}

/// What a poller tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Given with [`crate::net::Poller::add_socket`].
    pub token: u64,
    /// There is something to receive.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// The peer sends no more, or the connection is broken.
    pub hangup: bool,
}
