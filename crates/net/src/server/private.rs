//! The server's end of a private connection: what waits to be sent is sealed only when the socket
//! may take it, so a connection holds no second copy of its replies.

use super::connection::Connection;
use crate::link::{Link, LinkError};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use weir_host::net::Socket;
use weir_types::{Error, ErrorKind};
use weir_wire::private::Records;

/// Bytes of replies that are sealed at once.
const BATCH_BYTES: usize = 128 << 10;

/// Both directions of a private connection.
pub(super) struct Private {
    link: Link,
    /// Sealed bytes that the socket has not taken, from `sent` on.
    sealed: Vec<u8>,
    sent: usize,
    /// Bytes of the connection's replies that `sealed` has. They count as sent when all of it is.
    replies: usize,
}

impl Private {
    /// Begins with bytes that are sent as they are, before all records.
    pub(super) fn new(records: Records, first: Vec<u8>) -> Self {
        Self { link: Link::new(records, &[]), sealed: first, sent: 0, replies: 0 }
    }

    /// Whether a record has arrived in part.
    pub(super) fn is_mid_record(&self) -> bool {
        !self.link.is_empty() && !self.link.has_some()
    }

    /// Whether everything that was received was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.link.is_empty()
    }

    /// As [`Link::receive`], without waiting.
    pub(super) fn receive(
        &mut self,
        socket: &Socket,
        into: &mut [IoSliceMut<'_>],
    ) -> Result<usize, LinkError> {
        self.link.receive(socket, into, false)
    }
}

/// Sends as many of a connection's replies as the socket takes, at `now_ms`. `spare` gets emptied
/// vectors, and `memory` is for records. Returns whether all is sent.
pub(super) fn send(
    conn: &mut Connection,
    spare: &mut Vec<Vec<u8>>,
    memory: &mut Vec<u8>,
    now_ms: u64,
) -> Result<bool, Error> {
    loop {
        let Connection { private, socket, unsent, unsent_bytes, front_sent, sent_ms, .. } = conn;
        let Some(private) = private else { return Err(ErrorKind::Internal.into()) };
        if private.sealed.is_empty() {
            if *unsent_bytes == 0 {
                return Ok(true);
            }
            let mut skip = *front_sent;
            let slices = unsent.iter().map(|chunk| {
                let bytes = &chunk.bytes()[skip..];
                skip = 0;
                bytes
            });
            memory.clear();
            private.replies = private.link.seal(slices, BATCH_BYTES, memory)?;
            private.sent = push(socket, memory)?;
            *sent_ms = if private.sent > 0 { now_ms } else { *sent_ms };
            if private.sent < memory.len() {
                private.sealed = memory[private.sent..].to_vec();
                private.sent = 0;
                return Ok(false);
            }
        } else {
            let sent = push(socket, &private.sealed[private.sent..])?;
            *sent_ms = if sent > 0 { now_ms } else { *sent_ms };
            private.sent += sent;
            if private.sent < private.sealed.len() {
                return Ok(false);
            }
            private.sealed = Vec::new();
        }
        private.sent = 0;
        let replies = std::mem::take(&mut private.replies);
        conn.advance(replies, spare);
    }
}

/// Sends bytes until the socket takes no more; returns how many.
fn push(socket: &Socket, bytes: &[u8]) -> Result<usize, Error> {
    let mut sent = 0;
    while sent < bytes.len() {
        match socket.send(&[IoSlice::new(&bytes[sent..])], false) {
            Ok(0) => return Err(ErrorKind::Unreachable.into()),
            Ok(n) => sent += n,
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(e) => return Err(std::io::Error::from(e).into()),
        }
    }
    Ok(sent)
}
