//! The bytes of a connection: those of its socket, or those in the records of a private one.

use super::receive::MAX_KEPT_BYTES;
use super::{MAX_IOVECS, lost, may_block};
use crate::link::{Link, LinkError};
use crate::wait::Wait;
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use weir_host::net::{Interest, Socket};
use weir_types::{Error, ErrorKind, Result};
use weir_wire::private::Records;

/// Bytes that are sealed and sent at once.
const BATCH_BYTES: usize = 128 << 10;

/// The bytes of a connection in both directions.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) socket: Socket,
    private: Option<Box<Private>>,
}

#[derive(Debug)]
struct Private {
    link: Link,
    /// Memory for records that are sent.
    sealed: Vec<u8>,
}

impl Stream {
    /// The bytes of a socket as they are.
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, private: None }
    }

    /// From now on everything travels in records. `early` has arrived already.
    pub(super) fn hide(&mut self, records: Records, early: &[u8]) {
        let link = Link::new(records, early);
        self.private = Some(Box::new(Private { link, sealed: Vec::new() }));
    }

    /// Whether something has been received that was not taken, so that waiting for the socket may
    /// be in vain.
    pub(super) fn has_some(&self) -> bool {
        self.private.as_ref().is_some_and(|private| private.link.has_some())
    }

    /// Whether everything that was received was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.private.as_ref().is_none_or(|private| private.link.is_empty())
    }

    /// Receives at least one byte, with one successful system call if the connection is not
    /// private.
    pub(super) fn receive(&mut self, into: &mut [IoSliceMut<'_>], wait: &Wait) -> Result<usize> {
        loop {
            let received = match &mut self.private {
                None => self.socket.receive(into, may_block(wait)).map_err(LinkError::Socket),
                Some(private) => private.link.receive(&self.socket, into, may_block(wait)),
            };
            match received {
                Ok(0) => {
                    return Err(Error::new(
                        ErrorKind::Unreachable,
                        "the server closed the connection",
                    ));
                }
                Ok(n) => return Ok(n),
                Err(LinkError::Socket(Errno::AGAIN)) => {
                    let ready = wait.ready(&self.socket, Interest::READ);
                    ready.map_err(|e| e.context("wait for an answer"))?;
                }
                Err(LinkError::Socket(Errno::INTR)) => {}
                Err(LinkError::Socket(e)) => return Err(lost(e)),
                Err(LinkError::Broken(error)) => return Err(error),
            }
        }
    }

    /// Sends a head and a payload.
    pub(super) fn send_all(
        &mut self,
        head: &[u8],
        payload: &[IoSlice<'_>],
        wait: &Wait,
    ) -> Result<()> {
        let mut iovecs = Vec::with_capacity(1 + payload.len());
        iovecs.push(IoSlice::new(head));
        iovecs.extend(payload.iter().map(|p| IoSlice::new(p)));
        let mut rest = &mut iovecs[..];
        IoSlice::advance_slices(&mut rest, 0);
        let Some(private) = &mut self.private else {
            return send_slices(&self.socket, rest, wait);
        };
        while !rest.is_empty() {
            private.sealed.clear();
            let slices = rest.iter().map(|slice| &**slice);
            let taken = private.link.seal(slices, BATCH_BYTES, &mut private.sealed)?;
            send_slices(&self.socket, &mut [IoSlice::new(&private.sealed)], wait)?;
            IoSlice::advance_slices(&mut rest, taken);
        }
        if private.sealed.capacity() > MAX_KEPT_BYTES {
            private.sealed = Vec::new();
        }
        Ok(())
    }
}

fn send_slices(socket: &Socket, mut rest: &mut [IoSlice<'_>], wait: &Wait) -> Result<()> {
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
