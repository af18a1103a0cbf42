//! Sends the reply to a request: one `writev` of header and payload.

use std::cell::Cell;
use std::io::IoSlice;
use std::os::fd::AsFd;

use rustix::io::{Errno as OsErrno, writev};
use zerocopy::{Immutable, IntoBytes};

use crate::protocol::abi;
use crate::protocol::errno::Errno;

/// The reply to one request. It is sent once.
pub(crate) struct Answer<D> {
    device: D,
    unique: u64,
    given: Cell<bool>,
    heard: Cell<bool>,
}

impl<D: AsFd> Answer<D> {
    /// A reply to be sent through the descriptor that the request was read from.
    pub(crate) fn new(device: D, unique: u64) -> Self {
        Self { device, unique, given: Cell::new(false), heard: Cell::new(true) }
    }

    /// Whether the caller received the reply. If not, what it was given (an open file) has to be
    /// taken back.
    pub(crate) fn was_heard(&self) -> bool {
        self.heard.get()
    }

    /// Success without a payload.
    pub(crate) fn empty(&self) {
        self.parts(&[], &[]);
    }

    /// Success with one struct of the ABI.
    pub(crate) fn value(&self, value: &(impl IntoBytes + Immutable)) {
        self.parts(value.as_bytes(), &[]);
    }

    /// Success with these bytes.
    pub(crate) fn bytes(&self, bytes: &[u8]) {
        self.parts(bytes, &[]);
    }

    /// Success with a payload of two parts.
    pub(crate) fn parts(&self, first: &[u8], second: &[u8]) {
        if let Err(errno) = self.send(0, first, second) {
            // The caller waits until it hears something.
            tracing::warn!(unique = self.unique, %errno, "the kernel refused a reply");
            self.given.set(false);
            self.error(Errno::EIO);
        }
    }

    /// Failure. Does nothing if a reply was sent already.
    pub(crate) fn error(&self, errno: Errno) {
        if let Err(refused) = self.send(errno.on_wire(), &[], &[]) {
            tracing::warn!(unique = self.unique, errno = %refused, "the kernel refused an error");
        }
    }

    fn send(&self, error: i32, first: &[u8], second: &[u8]) -> Result<(), OsErrno> {
        if self.given.replace(true) {
            return Ok(());
        }
        let length = size_of::<abi::OutHeader>() + first.len() + second.len();
        let header = abi::OutHeader { len: length as u32, error, unique: self.unique };
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(first), IoSlice::new(second)];
        let used = if second.is_empty() { &parts[..2] } else { &parts[..] };
        match writev(&self.device, used) {
            // The mount is gone.
            Ok(_) | Err(OsErrno::NODEV) => Ok(()),
            // The caller was killed, and has its answer.
            Err(OsErrno::NOENT) => {
                self.heard.set(false);
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }
}
