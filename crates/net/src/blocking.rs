//! One connection in the hands of one thread: the client's side.
//!
//! Requests may be sent ahead; each reply is taken head first, then its
//! payload straight into the caller's memory. Where the sizes of a reply can
//! be told beforehand, [`BlockingConn::recv_expected`] takes head and payload
//! in one call of the kernel.

mod handshake;
mod receive;

pub use receive::{Arrival, DataReply};

use crate::address::Address;
use crate::wait::Wait;
use rustix::io::Errno;
use std::io::IoSlice;
use std::time::Duration;
use weir_host::net::{Interest, Socket};
use weir_types::{Encode, Error, ErrorKind, RequestId, Result};
use weir_wire::frame::encode_head;
use weir_wire::{Header, Opener, Sealer};

/// Pieces of memory given to the kernel in one call.
const MAX_IOVECS: usize = 1024;
/// A blocking call of the kernel returns at the latest after this time, so
/// that deadlines are seen.
const SLICE: Duration = Duration::from_secs(1);

/// What the reply to a read will look like if nothing unusual happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The request.
    pub request_id: RequestId,
    /// Bytes of body and checksums: see [`Header::meta_len`].
    pub meta_len: usize,
}

/// An authenticated connection to a server.
#[derive(Debug)]
pub struct BlockingConn {
    socket: Socket,
    address: Address,
    sealer: Sealer,
    opener: Opener,
    next_id: u64,
    /// An error left frames half sent or half received.
    broken: bool,
    /// The head being sent.
    head: Vec<u8>,
    received: receive::Received,
    /// Of the last payload.
    arrival: Option<Arrival>,
}

impl BlockingConn {
    /// Where it leads.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Its socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Whether the next request may be sent on it. An error that the server
    /// answered with leaves the connection usable; one of the connection itself
    /// does not.
    pub fn is_usable(&self) -> bool {
        !self.broken
    }

    /// A fresh id for a request, never used before on this connection.
    pub fn next_request_id(&mut self) -> RequestId {
        self.next_id += 1;
        RequestId(self.next_id)
    }

    /// Sends a request: `header` from [`Header::request`] (lengths are filled
    /// in), body, checksums, and the payload from wherever it is.
    ///
    /// Errors: `Unreachable`, `TimedOut`, `Interrupted`; the connection is not
    /// usable afterwards.
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
        self.sealer.seal(&mut self.head);
        let result = send_all(&self.socket, &self.head, payload, wait);
        self.broken |= result.is_err();
        result
    }

    /// Waits until something has come, or the connection is lost.
    ///
    /// Errors: `TimedOut`, after which it may be waited for again; `Interrupted`.
    pub fn readable(&self, wait: &Wait) -> Result<()> {
        wait.ready(&self.socket, Interest::READ)
    }

    fn check_usable(&self) -> Result<()> {
        if self.broken {
            return Err(Error::new(ErrorKind::Unreachable, "the connection was lost before"));
        }
        Ok(())
    }
}

/// Whether the kernel may be let wait in the call itself, which saves a `poll`.
fn may_block(wait: &Wait) -> bool {
    !wait.is_interruptible() && wait.remaining() > SLICE + SLICE / 2
}

fn send_all(socket: &Socket, head: &[u8], payload: &[IoSlice<'_>], wait: &Wait) -> Result<()> {
    let mut iovecs = Vec::with_capacity(1 + payload.len());
    iovecs.push(IoSlice::new(head));
    iovecs.extend(payload.iter().map(|p| IoSlice::new(p)));
    let mut rest = &mut iovecs[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let some = &rest[..rest.len().min(MAX_IOVECS)];
        match socket.send(some, may_block(wait)) {
            Ok(n) => IoSlice::advance_slices(&mut rest, n),
            Err(Errno::AGAIN) => {
                wait.ready(socket, Interest::WRITE).map_err(|e| e.context("send a request"))?;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(lost(e)),
        }
    }
    Ok(())
}

fn lost(e: Errno) -> Error {
    Error::new(ErrorKind::Unreachable, format!("connection lost: {}", std::io::Error::from(e)))
}
