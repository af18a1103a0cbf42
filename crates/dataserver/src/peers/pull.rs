//! Reads of an object on another server, for a copy.

use super::Peers;
use std::io::IoSliceMut;
use weir_layout::{RegionList, segment_offset};
use weir_net::{BlockingConn, Wait};
use weir_types::limits::MAX_STRIPE_UNIT_BYTES;
use weir_types::{Error, ErrorKind, Result, StripeMap};
use weir_wire::Header;
use weir_wire::data::{
    Access, ObjectLen, ObjectStat, ReadFlags, ReadRequest, SeekRequest, StatObjectRequest,
};
use weir_wire::handshake::Attempt;
use weir_wire::message::Request;

/// Timeout of all waits of one copy for the other server, milliseconds.
const PULL_MS: u64 = 8_000;
/// Stripe unit of the requests. Any striping with the column will do; larger units need fewer
/// requests.
const UNIT: u64 = MAX_STRIPE_UNIT_BYTES as u64;

/// The attempt of connections that change nothing.
const READS_ONLY: Attempt = Attempt { run: 0, number: 0 };

/// An object of another server.
pub(crate) struct Pull<'a> {
    peers: &'a Peers,
    access: &'a Access,
    conn: Option<BlockingConn>,
    wait: Wait,
    /// See [`ReadFlags`].
    as_is: bool,
}

impl<'a> Pull<'a> {
    pub(crate) fn new(peers: &'a Peers, access: &'a Access) -> Self {
        Self { peers, access, conn: None, wait: peers.wait(PULL_MS), as_is: false }
    }

    /// For an object whose copy may have gaps: `access` names no other copies.
    pub(crate) fn as_is(peers: &'a Peers, access: &'a Access) -> Self {
        Self { as_is: true, ..Self::new(peers, access) }
    }

    /// Puts the connection back.
    pub(crate) fn end(self) {
        if let Some(conn) = self.conn {
            self.peers.put_back(self.access.target, conn);
        }
    }

    /// Finds data or a hole: see [`SeekRequest`].
    pub(crate) fn seek(&mut self, offset: u64, hole: bool) -> Result<Option<u64>> {
        let request = SeekRequest { access: self.access.clone(), offset, hole };
        self.ask(|conn, wait| {
            send(conn, &request, wait)?;
            conn.recv_reply(wait)
        })
    }

    /// State of the object.
    pub(crate) fn stat(&mut self) -> Result<ObjectStat> {
        let request = StatObjectRequest { access: self.access.clone() };
        self.ask(|conn, wait| {
            send(conn, &request, wait)?;
            conn.recv_reply(wait)
        })
    }

    /// Fills the buffer from `at` on, up to the end of the object, with a checksum for each cut.
    /// Returns the number of bytes.
    pub(crate) fn read(
        &mut self,
        at: u64,
        buffer: &mut [u8],
        checks: &mut Vec<u32>,
        locked: bool,
    ) -> Result<usize> {
        let column = self.access.object.column;
        let stripe = StripeMap { unit_bytes: MAX_STRIPE_UNIT_BYTES, columns: column.0 + 1 };
        let mut done = 0;
        while done < buffer.len() {
            let at = at + done as u64;
            let len = (buffer.len() - done).min((UNIT - at % UNIT) as usize);
            let start = segment_offset(stripe, column, at).ok_or(ErrorKind::InvalidArgument)?;
            let request = ReadRequest {
                access: self.access.clone(),
                stripe,
                flags: ReadFlags { locked, unchecked: false, as_is: self.as_is, near: false },
                regions: RegionList::contiguous(start, len as u64)?,
            };
            let room = &mut buffer[done..done + len];
            // Units are whole blocks: what comes apart is cut as if it came at once.
            let cuts = weir_layout::cut_count(&[weir_layout::Piece {
                object_offset: at,
                len: len as u64,
            }]);
            let reply = self.ask(|conn, wait| {
                send(conn, &request, wait)?;
                conn.recv_data::<ObjectLen>(cuts as usize, &mut [IoSliceMut::new(room)], wait)
            })?;
            let got = reply.header.payload_len as usize;
            if got > len {
                return Err(Error::new(ErrorKind::Protocol, "more came than was asked for"));
            }
            checks.extend(&reply.checks);
            done += got;
            if got < len {
                break;
            }
        }
        Ok(done)
    }

    /// Sends a request on the present connection, or on a new one. The kind of an error tells the
    /// client what to do: with `Unsupported` it has to copy itself.
    fn ask<T>(
        &mut self,
        mut exchange: impl FnMut(&mut BlockingConn, &Wait) -> Result<T>,
    ) -> Result<T> {
        let target = self.access.target;
        let used = self.conn.take().or_else(|| self.peers.idle(target));
        if let Some(mut conn) = used {
            let result = exchange(&mut conn, &self.wait);
            if conn.is_usable() {
                self.conn = Some(conn);
                return result.map_err(|e| self.told(e));
            }
            // The server may have been started anew since.
        }
        let mut fresh = || {
            let (mut conn, _) = self.peers.connect(target, READS_ONLY, &self.wait)?;
            let result = exchange(&mut conn, &self.wait);
            if !conn.is_usable() {
                self.peers.forget(target);
                return result.map(|answer| (conn, Ok(answer)));
            }
            Ok((conn, result))
        };
        match fresh() {
            Ok((conn, result)) => {
                self.conn = Some(conn).filter(BlockingConn::is_usable);
                result.map_err(|e| self.told(e))
            }
            Err(error) => Err(self.hopeless(error)),
        }
    }

    /// Converts an error reply of the other server.
    fn told(&self, error: Error) -> Error {
        match error.kind {
            ErrorKind::BadCapability | ErrorKind::Corrupt | ErrorKind::ChecksumMismatch => error,
            kind => {
                if kind == ErrorKind::TargetMissing {
                    self.peers.forget(self.access.target);
                }
                self.hopeless(error)
            }
        }
    }

    fn hopeless(&self, error: Error) -> Error {
        let what = format!("the server of target {} cannot be read from here", self.access.target);
        Error { kind: ErrorKind::Unsupported, ..error.context(what) }
    }
}

fn send<R: Request>(conn: &mut BlockingConn, request: &R, wait: &Wait) -> Result<()> {
    let header = Header::request(R::OP, conn.next_request_id());
    conn.send(header, request, &[], &[], wait)
}
