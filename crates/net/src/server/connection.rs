//! The state of one connection. While it is idle it has no buffers: all of it
//! is a few hundred bytes.

use super::{ConnId, Peer};
use crate::buffer::PooledBuf;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_host::net::Socket;
use weir_wire::handshake::ServerHandshake;
use weir_wire::{Header, Opener, Sealer};

/// What becomes of the socket of a connection that the loop lets go.
pub type Heir = Box<dyn FnOnce(Socket) + Send>;

/// How far a connection has come.
pub(super) enum Phase {
    /// Nothing has come yet.
    Hello,
    /// The challenge has been sent.
    Proof(Box<ServerHandshake>),
    /// Authenticated.
    Open(Box<Session>),
    /// What is unsent is sent, then the peer has a moment to read it: closing
    /// at once would throw away an error message that explains the end.
    Closing {
        /// When to give up, in the loop's time.
        until_ms: u64,
    },
}

/// What authenticates the frames of an open connection.
pub(super) struct Session {
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
    pub(super) peer: Arc<Peer>,
}

/// A frame of which a part has come, in a buffer of the pool.
pub(super) struct Incoming {
    pub(super) part: Part,
    /// As long as what is to come.
    pub(super) buf: PooledBuf,
    /// Bytes of it that have come.
    pub(super) have: usize,
}

/// Which part of a frame is coming.
pub(super) enum Part {
    /// A head too large for the scratch buffer.
    Head,
    /// The payload; the head has been checked.
    Payload { header: Header, head: Vec<u8> },
}

/// Something to send.
pub(super) enum Chunk {
    /// Heads of frames, sealed, one after the other.
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
    /// The service knows it.
    pub(super) welcomed: bool,

    /// The socket may have bytes for us.
    pub(super) readable: bool,
    /// The peer will send no more, or is gone: read until that shows.
    pub(super) hangup: bool,
    /// Bytes that came and are not a whole frame yet, or had to wait.
    pub(super) partial: Vec<u8>,
    /// `partial` (or a complete `incoming`) had to wait and should be tried again.
    pub(super) held_back: bool,
    pub(super) incoming: Option<Box<Incoming>>,
    /// When something last came, in the loop's time.
    pub(super) received_ms: u64,

    /// Requests delivered and not answered.
    pub(super) in_flight: usize,
    /// The service wants no frames from it.
    pub(super) paused: bool,
    /// It waits for a buffer (it is in the loop's queue for that).
    pub(super) starved: bool,
    /// It is in the loop's queue of connections to receive from.
    pub(super) queued: bool,

    pub(super) unsent: VecDeque<Chunk>,
    pub(super) unsent_bytes: usize,
    /// Bytes of the first chunk that have been sent.
    pub(super) front_sent: usize,
    /// The socket takes bytes, as far as we know.
    pub(super) writable: bool,
    /// It is in the loop's list of connections to send to.
    pub(super) dirty: bool,
    /// When something was last sent, or there was nothing to send.
    pub(super) sent_ms: u64,

    /// Who gets the socket when all is sent.
    pub(super) heir: Option<Heir>,
}

const _: () = assert!(size_of::<Connection>() + size_of::<Session>() < 768);

impl Connection {
    pub(super) fn new(id: ConnId, socket: Socket, now_ms: u64) -> Box<Self> {
        Box::new(Self {
            id,
            socket,
            phase: Phase::Hello,
            welcomed: false,
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

    /// Whether nothing that counts has come from a peer that has to say who it is.
    pub(super) fn is_silent(&self) -> bool {
        self.is_closing() || matches!(self.phase, Phase::Hello) && self.partial.is_empty()
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    /// Whether a frame has begun to come and its rest is awaited.
    pub(super) fn is_mid_frame(&self) -> bool {
        (self.incoming.is_some() || !self.partial.is_empty()) && !self.held_back
    }

    /// Whether there is anything to do for receiving.
    pub(super) fn wants_attention(&self) -> bool {
        self.readable || self.held_back
    }

    /// Takes sent bytes off the queue. Empty vectors go to `spare`.
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
