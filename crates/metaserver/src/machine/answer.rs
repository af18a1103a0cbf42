//! Who asks, and how a request is answered.

use weir_metastore::Sequence;
use weir_types::codec::Reader;
use weir_types::{Encode, Error, ErrorKind, Result, ServerId, SessionId};
use weir_wire::message::Request;

/// The authenticated sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client, in a session.
    Client(SessionId),
    /// A data server.
    Server(ServerId),
    /// A metadata server that stands by.
    Metadata,
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// `None` for success.
    pub status: Option<ErrorKind>,
    /// The message, or the encoded [`Error`].
    pub body: Vec<u8>,
    /// For clients: number of the session's last event at the time of the reply.
    pub events: u64,
    /// For clients: what may be cached of the reply (the flags in [`weir_wire::lease`]).
    pub keep: u8,
}

impl Reply {
    /// Success, with this message.
    pub(super) fn ok(message: &impl Encode) -> Self {
        Self::encoded(None, message.to_bytes())
    }

    /// A refusal.
    pub(crate) fn error(error: &Error) -> Self {
        Self::encoded(Some(error.kind), error.to_bytes())
    }

    /// A message that is encoded already.
    pub(super) fn encoded(status: Option<ErrorKind>, body: Vec<u8>) -> Self {
        Self { status, body, events: 0, keep: 0 }
    }
}

/// A request that is answered later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParkedTicket(pub u64);

/// How a request is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Send this reply after the flush of this turn.
    Now(Reply),
    /// Send this reply once [`synced`](crate::MetaMachine::synced) has reached this sequence.
    AfterSync(Sequence, Reply),
    /// The request waits for other sessions. [`take_ready`](crate::MetaMachine::take_ready) returns
    /// its reply later.
    Parked(ParkedTicket),
}

impl Answer {
    /// The reply, unless the request waits for other sessions.
    pub(super) fn reply_mut(&mut self) -> Option<&mut Reply> {
        match self {
            Answer::Now(reply) | Answer::AfterSync(_, reply) => Some(reply),
            Answer::Parked(_) => None,
        }
    }
}

/// Decodes the rest of a message as a request.
pub(super) fn request<R: Request>(mut rest: Reader<'_>) -> Result<R> {
    let request = R::decode(&mut rest)?;
    rest.finish()?;
    Ok(request)
}
