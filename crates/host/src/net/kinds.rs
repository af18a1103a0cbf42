//! Interests and events of a poller.

/// What to watch a socket for. Broken connections are always reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Bytes to receive, a connection to accept, the end of the stream.
    pub readable: bool,
    /// Space in the send buffer.
    pub writable: bool,
    /// Pollers: report a change once, instead of as long as the state lasts.
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
    /// The token given to [`crate::net::Poller::add_socket`].
    pub token: u64,
    /// Bytes have arrived, or a connection waits.
    pub readable: bool,
    /// The send buffer has space.
    pub writable: bool,
    /// The peer has closed its sending direction, or the connection is broken.
    pub hangup: bool,
}
