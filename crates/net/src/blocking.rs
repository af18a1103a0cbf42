//! The client's side: one connection, used by one thread.
//!
//! Requests may be pipelined. Each reply is received head first, then its payload directly into the
//! caller's memory. If the sizes of a reply are known beforehand, [`BlockingConn::recv_expected`]
//! receives head and payload with one system call.

mod handshake;
mod receive;
mod stream;

pub use receive::{Arrival, DataReply};

use crate::address::Address;
use crate::wait::Wait;
use rustix::io::Errno;
use std::io::IoSlice;
use std::time::Duration;
use stream::Stream;
use weir_host::net::{Interest, Socket};
use weir_types::{Encode, Error, ErrorKind, RequestId, Result};
use weir_wire::frame::encode_head;
use weir_wire::{Header, Level, Opener, Sealer};

/// Number of buffers in one system call.
const MAX_IOVECS: usize = 1024;
/// A blocking system call returns at the latest after this time, so that deadlines are checked.
const SLICE: Duration = Duration::from_secs(1);

/// The sizes of the expected reply to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Id of the request.
    pub request_id: RequestId,
    /// Bytes of body and checksums: see [`Header::meta_len`].
    pub meta_len: usize,
}

/// An authenticated connection to a server.
#[derive(Debug)]
pub struct BlockingConn {
    stream: Stream,
    address: Address,
    level: Level,
    sealer: Sealer,
    opener: Opener,
    next_id: u64,
    /// Whether an error has left a frame half sent or half received.
    broken: bool,
    /// Buffer for the head of the frame being sent.
    head: Vec<u8>,
    received: receive::Received,
    /// Arrival of the last payload.
    arrival: Option<Arrival>,
}

impl BlockingConn {
    /// Address of the server.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The socket.
    pub fn socket(&self) -> &Socket {
        &self.stream.socket
    }

    /// How the connection is protected.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Whether the connection can take the next request. An error reply from the server leaves the
    /// connection usable; an error of the connection itself does not.
    pub fn is_usable(&self) -> bool {
        !self.broken
    }

    /// Returns a request id that was never used before on this connection.
    pub fn next_request_id(&mut self) -> RequestId {
        self.next_id += 1;
        RequestId(self.next_id)
    }

    /// Sends a request: `header` from [`Header::request`] (its lengths are filled in here), body,
    /// checksums, and payload. The payload is not copied.
    ///
    /// Errors: `Unreachable`, `TimedOut`, `Interrupted`; the connection is not usable afterwards.
    pub fn send(
        &mut self,
        header: Header,
        body: &impl Encode,
        checks: &[u32],
        payload: &[IoSlice<'_>],
        wait: &Wait,
    ) -> Result<()> {
        self.check_usable()?;
        let payload_len = payload.iter().map(|p| p.len()).sum();
        self.head.clear();
        encode_head(&mut self.head, header, body, checks, payload_len);
        self.sealer.seal_with(&mut self.head, 0, payload.iter().map(|part| &**part));
        let result = self.stream.send_all(&self.head, payload, wait);
        self.broken |= result.is_err();
        result
    }

    /// Waits until bytes have arrived or the connection is lost.
    ///
    /// Errors: `TimedOut`, after which the caller may wait again; `Interrupted`.
    pub fn readable(&self, wait: &Wait) -> Result<()> {
        match self.stream.has_some() {
            true => Ok(()),
            false => wait.ready(&self.stream.socket, Interest::READ),
        }
    }

    fn check_usable(&self) -> Result<()> {
        if self.broken {
            return Err(Error::new(ErrorKind::Unreachable, "the connection was lost before"));
        }
        Ok(())
    }
}

/// Whether a system call may block instead of a separate `poll`.
fn may_block(wait: &Wait) -> bool {
    !wait.is_interruptible() && wait.remaining() > SLICE + SLICE / 2
}

fn lost(e: Errno) -> Error {
    Error::new(ErrorKind::Unreachable, format!("connection lost: {}", std::io::Error::from(e)))
}
