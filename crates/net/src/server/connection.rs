//! The state of one connection. An idle connection has no buffers and takes a few hundred bytes.

use super::peer::{ConnId, Peer};
use super::private::Private;
use crate::buffer::PooledBuf;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_host::net::Socket;
use weir_wire::handshake::ServerHandshake;
use weir_wire::{Header, Level, Opener, Sealer};

/// Function that receives the socket of a connection that leaves its loop.
pub type Heir = Box<dyn FnOnce(Socket) + Send>;

/// Phase of a connection.
pub(super) enum Phase {
    /// No frame has arrived yet.
    Hello,
    /// The challenge was sent.
    Proof(Box<ServerHandshake>),
    /// Authenticated.
    Open(Box<Session>),
    /// Unsent bytes are sent, then the peer gets a moment to read them. Closing at once would
    /// discard an error message that explains the end.
    Closing {
        /// Deadline, in the loop's time.
        until_ms: u64,
    },
}

/// Authenticates the frames of an open connection.
pub(super) struct Session {
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
    pub(super) peer: Arc<Peer>,
}

/// A partly received frame, in a buffer of the pool.
pub(super) struct Incoming {
    pub(super) part: Part,
    /// Buffer with the length of the expected bytes.
    pub(super) buf: PooledBuf,
    /// Number of received bytes.
    pub(super) have: usize,
}

/// Part of a frame that is being received.
pub(super) enum Part {
    /// A head too large for the scratch buffer.
    Head,
    /// The payload, after the head was checked.
    Payload { header: Header, head: Vec<u8> },
}

/// Bytes to send.
pub(super) enum Chunk {
    /// Sealed heads of frames, one after the other.
    Bytes(Vec<u8>),
    /// A payload.
    Payload(PooledBuf),
}

impl Chunk {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Bytes(bytes) => bytes,
            Chunk::Payload(buf) => buf,
        }
    }
}

pub(super) struct Connection {
    pub(super) id: ConnId,
    pub(super) socket: Socket,
    pub(super) phase: Phase,
    /// The records in which everything travels, if the connection is private.
    pub(super) private: Option<Box<Private>>,
    /// Whether the service was told of the connection.
    pub(super) welcomed: bool,
    /// How the connection is protected, once it is authenticated.
    pub(super) level: Level,

    /// Whether the socket may have received bytes.
    pub(super) readable: bool,
    /// Whether the peer has closed its end or is gone. The remaining bytes are still received.
    pub(super) hangup: bool,
    /// Received bytes that are not a complete frame yet, or had to wait.
    pub(super) partial: Vec<u8>,
    /// Whether `partial` (or a complete `incoming`) had to wait and has to be tried again.
    pub(super) held_back: bool,
    pub(super) incoming: Option<Box<Incoming>>,
    /// Time of the last reception, in the loop's time.
    pub(super) received_ms: u64,

    /// Number of requests that were delivered and not answered.
    pub(super) in_flight: usize,
    /// Whether the service has paused the connection.
    pub(super) paused: bool,
    /// Whether the connection is in the loop's queue for buffers.
    pub(super) starved: bool,
    /// Whether the connection is in the loop's queue for receiving.
    pub(super) queued: bool,

    pub(super) unsent: VecDeque<Chunk>,
    pub(super) unsent_bytes: usize,
    /// Sent bytes of the first chunk.
    pub(super) front_sent: usize,
    /// Whether the socket seems to accept bytes.
    pub(super) writable: bool,
    /// Whether the connection is in the loop's list for sending.
    pub(super) dirty: bool,
    /// Time of the last progress in sending, or at which nothing was left to send.
    pub(super) sent_ms: u64,

    /// Receives the socket when everything is sent.
    pub(super) heir: Option<Heir>,
}

const _: () = assert!(size_of::<Connection>() + size_of::<Session>() < 768);

impl Connection {
    pub(super) fn new(id: ConnId, socket: Socket, now_ms: u64) -> Box<Self> {
        Box::new(Self {
            id,
            socket,
            phase: Phase::Hello,
            private: None,
            welcomed: false,
            level: Level::Args,
            readable: true,
            hangup: false,
            partial: Vec::new(),
            held_back: false,
            incoming: None,
            received_ms: now_ms,
            in_flight: 0,
            paused: false,
            starved: false,
            queued: false,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            front_sent: 0,
            writable: true,
            dirty: false,
            sent_ms: now_ms,
            heir: None,
        })
    }

    /// Whether an unauthenticated peer has sent nothing valid yet.
    pub(super) fn is_silent(&self) -> bool {
        self.is_closing() || matches!(self.phase, Phase::Hello) && self.partial.is_empty()
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    /// Whether a frame is partly received.
    pub(super) fn is_mid_frame(&self) -> bool {
        let mid_record = || self.private.as_ref().is_some_and(|private| private.is_mid_record());
        (self.incoming.is_some() || !self.partial.is_empty() || mid_record()) && !self.held_back
    }

    /// Whether the loop has to receive or deliver something.
    pub(super) fn wants_attention(&self) -> bool {
        self.readable || self.held_back
    }

    /// Removes sent bytes from the queue. Emptied vectors go to `spare`.
    pub(super) fn advance(&mut self, mut sent: usize, spare: &mut Vec<Vec<u8>>) {
        self.unsent_bytes -= sent;
        while let Some(front) = self.unsent.front() {
            let left = front.bytes().len() - self.front_sent;
            if sent < left {
                self.front_sent += sent;
                return;
            }
            sent -= left;
            self.front_sent = 0;
            if let Some(Chunk::Bytes(bytes)) = self.unsent.pop_front() {
                super::outbox::keep_spare(spare, bytes);
            }
        }
    }
}
