//! Receiving replies.

use super::stream::Stream;
use super::{BlockingConn, Expected, MAX_IOVECS};
use crate::wait::{Wait, Watch};
use std::io::IoSliceMut;
use std::time::Duration;
use weir_host::clock;
use weir_host::net::{Interest, Socket};
use weir_types::{Decode, DecodeError, Error, ErrorKind, RequestId, Result};
use weir_wire::frame::{HEADER_BYTES, VERSION, decode_checks, peer_version};
use weir_wire::handshake::version_mismatch;
use weir_wire::{FrameKind, Header, Op, Opener};

/// Bytes that one system call receives when the sizes of the reply are not known.
const CHUNK_BYTES: usize = 16 << 10;
/// The most bytes of memory that are kept for the next reply or request.
pub(super) const MAX_KEPT_BYTES: usize = 64 << 10;

pub(super) fn protocol_error(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, what)
}

/// Received bytes, in order: the last head, then bytes that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Received {
    bytes: Vec<u8>,
    /// First byte of the last head, which ends at `head_end`.
    head_start: usize,
    head_end: usize,
    /// Number of received bytes; the rest of the memory is free.
    end: usize,
}

impl Received {
    /// The last head.
    pub(super) fn head_bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.head_start..self.head_end]
    }

    /// The body of the last head.
    pub(super) fn body(&self, header: &Header) -> &[u8] {
        let start = self.head_start + HEADER_BYTES;
        &self.bytes[start..start + header.body_len as usize]
    }

    fn checks(&self, header: &Header) -> &[u8] {
        let start = self.head_start + HEADER_BYTES;
        &self.bytes[start + header.body_len as usize..start + header.meta_len()]
    }

    /// Received bytes that were not taken yet.
    pub(super) fn left(&self) -> usize {
        self.end - self.head_end
    }

    /// The bytes behind the last head.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.head_end..self.end]
    }

    /// Forgets the last head.
    fn forget_head(&mut self) {
        if self.left() == 0 {
            self.end = 0;
            if self.bytes.len() > MAX_KEPT_BYTES {
                self.bytes = Vec::new();
            }
        } else {
            self.bytes.copy_within(self.head_end..self.end, 0);
            self.end -= self.head_end;
        }
        self.head_start = 0;
        self.head_end = 0;
    }

    fn make_room(&mut self, bytes: usize) {
        if self.bytes.len() < self.end + bytes {
            self.bytes.resize(self.end + bytes, 0);
        }
    }

    /// Receives the next head, without checking its MAC. It has no payload.
    pub(super) fn plain_head(&mut self, stream: &mut Stream, wait: &Wait) -> Result<Header> {
        self.head(stream, wait, |header| header.meta_len())
    }

    /// Receives the next head, without checking its MAC. `meta_len` tells how many bytes it has
    /// between header and payload.
    fn head(
        &mut self,
        stream: &mut Stream,
        wait: &Wait,
        meta_len: impl FnOnce(&Header) -> usize,
    ) -> Result<Header> {
        self.forget_head();
        self.fill(stream, HEADER_BYTES, wait)?;
        let header = parse(&self.bytes[..self.end])?;
        let head_len = HEADER_BYTES + meta_len(&header);
        self.fill(stream, head_len, wait)?;
        self.head_end = head_len;
        Ok(header)
    }

    /// As [`Received::plain_head`], for a frame that `opener` will open.
    fn sealed_head(&mut self, stream: &mut Stream, opener: &Opener, wait: &Wait) -> Result<Header> {
        self.head(stream, wait, |header| opener.meta_len(header))
    }

    /// Receives until at least `want` bytes have arrived.
    fn fill(&mut self, stream: &mut Stream, want: usize, wait: &Wait) -> Result<()> {
        while self.end < want {
            self.make_room((want - self.end).max(CHUNK_BYTES));
            let end = self.end;
            let mut iovecs = [IoSliceMut::new(&mut self.bytes[end..])];
            self.end += stream.receive(&mut iovecs, wait)?;
        }
        Ok(())
    }
}

/// A reply with data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataReply<R> {
    /// The header, with the length of the data and the target's load.
    pub header: Header,
    /// The body.
    pub body: R,
    /// The checksums of the data.
    pub checks: Vec<u32>,
}

/// Arrival of the last part of a payload, after its first part had been received. The server had
/// all of the payload ready by then, so the duration is that of the network transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes of the last part.
    pub bytes: u64,
    /// Time at which its reception began ([`weir_host::clock::uptime`]).
    pub began: Duration,
    /// Time at which all of it had arrived.
    pub ended: Duration,
}

fn parse(bytes: &[u8]) -> Result<Header> {
    let first = bytes.first_chunk::<HEADER_BYTES>().ok_or(DecodeError::Truncated)?;
    match Header::parse(first) {
        Ok(header) if header.kind == FrameKind::Request && header.status.is_some() => {
            Err(protocol_error("a request came where a reply was expected"))
        }
        Ok(header) => Ok(header),
        Err(e) => Err(match peer_version(bytes) {
            Some(version) if version != VERSION => version_mismatch(version),
            Some(_) => e.into(),
            None => protocol_error("what answers there is no Weir server"),
        }),
    }
}

impl BlockingConn {
    /// Waits until some bytes of the next reply have arrived, or the connection is broken
    /// (receiving the reply then fails). The connection is unchanged.
    ///
    /// Errors: `TimedOut`, `Interrupted`.
    pub fn wait_for_reply(&self, wait: &Wait) -> Result<()> {
        if self.has_some() {
            return Ok(());
        }
        wait.ready(&self.stream.socket, Interest::READ).map_err(|e| e.context("wait for an answer"))
    }

    /// As [`BlockingConn::wait_for_reply`], for several connections. Returns the index of one that
    /// is ready.
    pub fn wait_for_any_reply(conns: &[&Self], wait: &Wait) -> Result<usize> {
        if let Some(at) = conns.iter().position(|conn| conn.has_some()) {
            return Ok(at);
        }
        let sockets: Vec<&Socket> = conns.iter().map(|conn| &conn.stream.socket).collect();
        wait.any_readable(&sockets).map_err(|e| e.context("wait for an answer"))
    }

    /// As [`BlockingConn::wait_for_reply`], with a watch that may end the wait.
    ///
    /// Errors: also those of the watch.
    pub fn watch_for_reply(&self, wait: &Wait, watch: Option<Watch<'_>>) -> Result<()> {
        match self.has_some() {
            false => wait.ready_watched(&self.stream.socket, Interest::READ, watch),
            true => Ok(()),
        }
    }

    /// Whether something of the next reply was received already.
    pub fn has_some(&self) -> bool {
        self.received.left() > 0 || self.stream.has_some()
    }

    /// Receives the reply to the only outstanding request. The reply has no payload.
    ///
    /// Errors: the error reply of the server; `Unreachable`, `TimedOut`, `Interrupted`, `Protocol`
    /// (also if something was changed on the way): see [`BlockingConn::is_usable`].
    pub fn recv_reply<R: Decode>(&mut self, wait: &Wait) -> Result<R> {
        let header = self.recv_answer(wait)?;
        self.reply(&header)
    }

    /// As [`BlockingConn::recv_reply`], but returns the header, which has more fields than the
    /// reply. [`BlockingConn::reply`] then decodes the body.
    pub fn recv_answer(&mut self, wait: &Wait) -> Result<Header> {
        let header = self.recv_head(wait)?;
        if header.request_id.0 != self.next_id || header.payload_len != 0 {
            self.broken = true;
            return Err(protocol_error("the answer belongs to another request"));
        }
        Ok(header)
    }

    /// Receives the reply to the only outstanding request. The reply has `checks` checksums and a
    /// payload that is at most as long as `destination`. Bytes of `destination` behind the payload
    /// are undefined. The slices are advanced: do not use them again.
    ///
    /// Errors: as for [`BlockingConn::recv_reply`].
    pub fn recv_data<R: Decode>(
        &mut self,
        checks: usize,
        destination: &mut [IoSliceMut<'_>],
        wait: &Wait,
    ) -> Result<DataReply<R>> {
        let request_id = RequestId(self.next_id);
        // The bodies of these replies are one or two numbers, encoded in as many bytes as they have
        // in memory.
        let expected = Expected { request_id, meta_len: size_of::<R>() + 4 * checks };
        let header = self.recv_expected(expected, destination, wait)?;
        if header.request_id != request_id {
            self.broken = true;
            return Err(protocol_error("the answer belongs to another request"));
        }
        let body = self.reply(&header)?;
        let mut checks = Vec::with_capacity(header.checks as usize);
        self.checks(&header, &mut checks);
        Ok(DataReply { header, body, checks })
    }

    /// Receives the head of the next reply. If its `payload_len` is not 0, the caller has to take
    /// the payload next, with [`BlockingConn::recv_payload`].
    ///
    /// Errors: those of the connection, after which it is not usable.
    pub fn recv_head(&mut self, wait: &Wait) -> Result<Header> {
        self.check_usable()?;
        let header = self.received.sealed_head(&mut self.stream, &self.opener, wait);
        let header = header.and_then(|header| self.opened(header));
        self.broken |= header.is_err();
        header
    }

    /// Decodes the reply whose head was received last, or returns the server's error.
    pub fn reply<R: Decode>(&mut self, header: &Header) -> Result<R> {
        let body = self.received.body(header);
        if header.status.is_some() {
            return Err(Error::from_bytes(body)?);
        }
        let reply = R::from_bytes(body);
        self.broken |= reply.is_err();
        Ok(reply?)
    }

    /// Appends the checksums of the reply whose head was received last.
    pub fn checks(&self, header: &Header, checks: &mut Vec<u32>) {
        decode_checks(self.received.checks(header), checks);
    }

    /// Arrival of the last part of the last payload. `None` if the payload arrived at once, or
    /// there was none.
    pub fn arrival(&self) -> Option<Arrival> {
        self.arrival
    }

    /// Receives the payload of the reply whose head was received last into `destination`, which
    /// must have enough space. The slices are advanced: do not use them again.
    ///
    /// Errors: as for [`BlockingConn::recv_head`].
    pub fn recv_payload(
        &mut self,
        header: &Header,
        destination: &mut [IoSliceMut<'_>],
        wait: &Wait,
    ) -> Result<()> {
        self.check_usable()?;
        let result = self.payload(header.payload_len as usize, destination, wait);
        self.broken |= result.is_err();
        result
    }

    /// Receives a payload with `receive`, which is told where to, and checks its code. Nothing of
    /// it counts as received before.
    fn checked_payload(
        &mut self,
        len: usize,
        destination: &mut [IoSliceMut<'_>],
        receive: impl FnOnce(&mut Self, &mut [IoSliceMut<'_>]) -> Result<()>,
    ) -> Result<()> {
        if len == 0 || !self.opener.has_payload_codes() {
            return receive(self, destination);
        }
        // `receive` advances its slices.
        let mut again: Vec<IoSliceMut<'_>> =
            destination.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        receive(self, &mut again)?;
        drop(again);
        let mut left = len;
        let parts = destination.iter().map(|part| {
            let n = left.min(part.len());
            left -= n;
            &part[..n]
        });
        self.opener.check_payload(self.received.head_bytes(), parts)
    }

    /// Receives the next reply, head and payload together if it is the expected one. The caller
    /// compares the id in the header. If another request was answered, its payload has to be taken
    /// next, with [`BlockingConn::recv_payload`]. Bytes of `destination` behind the payload are
    /// undefined. The slices are advanced: do not use them again.
    ///
    /// Errors: as for [`BlockingConn::recv_head`].
    pub fn recv_expected(
        &mut self,
        expected: Expected,
        destination: &mut [IoSliceMut<'_>],
        wait: &Wait,
    ) -> Result<Header> {
        self.check_usable()?;
        self.arrival = None;
        let result = self.expected(expected, destination, wait);
        self.broken |= result.is_err();
        result
    }

    fn expected(
        &mut self,
        expected: Expected,
        destination: &mut [IoSliceMut<'_>],
        wait: &Wait,
    ) -> Result<Header> {
        let head_len = HEADER_BYTES + expected.meta_len + self.opener.payload_code_len();
        self.received.forget_head();
        if self.received.end == 0 && destination.len() < MAX_IOVECS {
            let direct = self.guess(head_len, destination, wait)?;
            if let Some(header) = self.as_expected(expected, direct, destination)? {
                self.received.head_end = head_len;
                let header = self.opened(header)?;
                let len = header.payload_len as usize;
                self.checked_payload(len, destination, |conn, mut rest| {
                    IoSliceMut::advance_slices(&mut rest, direct);
                    conn.receive_rest(len - direct, rest, wait)
                })?;
                return Ok(header);
            }
            // Another frame has arrived than the expected one: sort the bytes.
            self.received.make_room(direct);
            let mut left = direct;
            for part in destination.iter() {
                let n = left.min(part.len());
                let end = self.received.end;
                self.received.bytes[end..end + n].copy_from_slice(&part[..n]);
                self.received.end += n;
                left -= n;
            }
        }
        let header = self.received.sealed_head(&mut self.stream, &self.opener, wait)?;
        let header = self.opened(header)?;
        if header.request_id == expected.request_id {
            self.payload(header.payload_len as usize, destination, wait)?;
        }
        Ok(header)
    }

    /// Receives a head of `head_len` bytes into the connection's memory and the following bytes
    /// into `destination`, with one system call. Returns the number of bytes in `destination`.
    fn guess(
        &mut self,
        head_len: usize,
        destination: &mut [IoSliceMut<'_>],
        wait: &Wait,
    ) -> Result<usize> {
        self.received.make_room(head_len.max(CHUNK_BYTES));
        let mut iovecs = Vec::with_capacity(1 + destination.len());
        iovecs.push(IoSliceMut::new(&mut self.received.bytes[..head_len]));
        iovecs.extend(destination.iter_mut().map(|part| IoSliceMut::new(part)));
        let n = self.stream.receive(&mut iovecs, wait)?;
        self.received.end = n.min(head_len);
        Ok(n - self.received.end)
    }

    /// Returns the header if it is the expected one and `destination` has no bytes of a following
    /// frame.
    fn as_expected(
        &self,
        expected: Expected,
        direct: usize,
        destination: &[IoSliceMut<'_>],
    ) -> Result<Option<Header>> {
        let code_len = self.opener.payload_code_len();
        let head_len = HEADER_BYTES + expected.meta_len + code_len;
        if self.received.end < head_len {
            return Ok(None);
        }
        let header = parse(&self.received.bytes[..head_len])?;
        let payload_len = header.payload_len as usize;
        let room: usize = destination.iter().map(|d| d.len()).sum();
        let fits = header.meta_len() == expected.meta_len
            && header.request_id == expected.request_id
            // Without a payload there is no code, and bytes of the next frame in its place.
            && (payload_len > 0 || code_len == 0)
            && (direct..=room).contains(&payload_len);
        Ok(fits.then_some(header))
    }

    /// Checks the MAC of the head that was received last.
    fn opened(&mut self, header: Header) -> Result<Header> {
        self.opener.open(self.received.head_bytes())?;
        if header.kind != FrameKind::Reply {
            return Err(protocol_error("a request came where a reply was expected"));
        }
        if header.op == Op::Challenge && header.status.is_some() {
            // The last message of a server before it closes the connection.
            return Err(Error::from_bytes(self.received.body(&header))?);
        }
        Ok(header)
    }

    fn payload(
        &mut self,
        len: usize,
        destination: &mut [IoSliceMut<'_>],
        wait: &Wait,
    ) -> Result<()> {
        self.checked_payload(len, destination, |conn, destination| {
            conn.unchecked_payload(len, destination, wait)
        })
    }

    fn unchecked_payload(
        &mut self,
        len: usize,
        destination: &mut [IoSliceMut<'_>],
        wait: &Wait,
    ) -> Result<()> {
        let room: usize = destination.iter().map(|d| d.len()).sum();
        if len > room {
            let what = format!("the answer brings {len} bytes, at most {room} were expected");
            return Err(protocol_error(&what));
        }
        let early = len.min(self.received.left());
        let mut from = self.received.head_end;
        let mut left = early;
        for part in destination.iter_mut() {
            let n = left.min(part.len());
            part[..n].copy_from_slice(&self.received.bytes[from..from + n]);
            from += n;
            left -= n;
        }
        // Bytes are removed from the middle; the head before them stays.
        let (head_end, end) = (self.received.head_end, self.received.end);
        self.received.bytes.copy_within(head_end + early..end, head_end);
        self.received.end -= early;
        let mut rest = destination;
        IoSliceMut::advance_slices(&mut rest, early);
        self.receive_rest(len - early, rest, wait)
    }

    /// Receives the missing bytes of a payload, and records their arrival.
    fn receive_rest(
        &mut self,
        len: usize,
        destination: &mut [IoSliceMut<'_>],
        wait: &Wait,
    ) -> Result<()> {
        self.arrival = None;
        if len == 0 {
            return Ok(());
        }
        let began = clock::uptime();
        self.receive_exactly(len, destination, wait)?;
        self.arrival = Some(Arrival { bytes: len as u64, began, ended: clock::uptime() });
        Ok(())
    }

    /// Receives exactly `len` bytes.
    fn receive_exactly(
        &mut self,
        mut len: usize,
        mut destination: &mut [IoSliceMut<'_>],
        wait: &Wait,
    ) -> Result<()> {
        while len > 0 {
            let n = receive_at_most(&mut self.stream, destination, len, wait)?;
            len -= n;
            IoSliceMut::advance_slices(&mut destination, n);
        }
        Ok(())
    }
}

/// Receives at most `len` bytes. The bytes behind them belong to another frame.
fn receive_at_most(
    stream: &mut Stream,
    destination: &mut [IoSliceMut<'_>],
    len: usize,
    wait: &Wait,
) -> Result<usize> {
    let mut before = 0;
    let mut whole = 0;
    while whole < destination.len().min(MAX_IOVECS) && before + destination[whole].len() <= len {
        before += destination[whole].len();
        whole += 1;
    }
    if whole > 0 {
        return stream.receive(&mut destination[..whole], wait);
    }
    let Some(first) = destination.first_mut() else {
        return Err(ErrorKind::Internal.into());
    };
    stream.receive(&mut [IoSliceMut::new(&mut first[..len])], wait)
}
