//! Receiving: from the bytes of a socket to complete, authentic frames.
//!
//! The beginning of a frame is received into the loop's scratch buffer: head, small payloads, and
//! any following small frames. The rest of a payload is received directly into a buffer of the
//! pool.

use super::connection::{Incoming, Part, Phase, Session};
use super::counters::ServerCounters;
use super::event_loop::EventLoop;
use super::outbox::keep_spare;
use super::peer::{ConnId, Peer};
use super::private::Private;
use super::service::{Frame, Service};
use crate::host::random_bytes;
use crate::link::LinkError;
use rustix::io::Errno;
use std::io::IoSliceMut;
use std::sync::Arc;
use weir_types::limits::MAX_BODY_BYTES;
use weir_types::{DecodeError, Error, ErrorKind};
use weir_wire::FrameKind;
use weir_wire::frame::{HEADER_BYTES, Header, VERSION, peer_version};
use weir_wire::handshake::{self, Accepted, ServerHandshake, version_mismatch};

/// Size of the scratch buffer: the most bytes of one call, not counting a payload.
pub(super) const SCRATCH_BYTES: usize = 16 << 10;
/// Larger heads are received into a buffer of the pool.
const SMALL_HEAD_BYTES: usize = 8 << 10;
/// The longest body from an unauthenticated peer.
const MAX_HANDSHAKE_BODY_BYTES: u32 = 4096;
/// The most frames of one connection in one turn.
const FRAMES_PER_TURN: usize = 32;
/// The most `recv` calls for one connection in one turn.
const RECEIVES_PER_TURN: usize = 32;

const _: () = assert!(SMALL_HEAD_BYTES < SCRATCH_BYTES);
const _: () = assert!(HEADER_BYTES + (MAX_HANDSHAKE_BODY_BYTES as usize) < SMALL_HEAD_BYTES);
const _: () = assert!(SMALL_HEAD_BYTES < MAX_BODY_BYTES);

/// Result of parsing received bytes.
enum Step {
    /// This many bytes were used.
    Used(usize),
    /// This many bytes were used, and a frame was delivered.
    Frame(usize),
    /// More bytes are needed.
    More,
    /// The frame has to wait until the connection may continue.
    Held,
    /// Nothing more is received from the connection.
    Ended,
}

impl<S: Service> EventLoop<S> {
    /// Receives from a connection and delivers its frames, up to a bound.
    pub(super) fn drive(&mut self, id: ConnId) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.drive_with(id, &mut scratch);
        self.scratch = scratch;
    }

    fn drive_with(&mut self, id: ConnId, scratch: &mut [u8]) {
        let mut budget = FRAMES_PER_TURN;
        for _ in 0..RECEIVES_PER_TURN {
            let Some(conn) = self.out.get_mut(id) else { return };
            if conn.is_closing() {
                self.discard(id, scratch);
                return;
            }
            if self.out.is_held(id) {
                return;
            }
            let Some(conn) = self.out.get_mut(id) else { return };
            if conn.held_back {
                conn.held_back = false;
                let mut bytes = std::mem::take(&mut conn.partial);
                self.consume(id, &mut bytes, &mut budget);
                keep_spare(&mut self.out.spare, bytes);
            } else if conn.readable {
                self.receive(id, scratch, &mut budget);
            } else {
                return;
            }
            if budget == 0 {
                break;
            }
        }
        self.out.attend(id);
    }

    /// Receives with one system call.
    fn receive(&mut self, id: ConnId, scratch: &mut [u8], budget: &mut usize) {
        let now_ms = self.out.now_ms;
        let Some(conn) = self.out.get_mut(id) else { return };
        let kept = conn.partial.len();
        let had_nothing = conn.private.as_ref().is_some_and(|private| private.is_empty());
        let (result, asked, want) = match (&mut conn.incoming, &mut conn.private) {
            (Some(incoming), private) => {
                let rest = &mut incoming.buf[incoming.have..];
                let want = rest.len();
                let mut iovecs = [IoSliceMut::new(rest), IoSliceMut::new(scratch)];
                let asked = want + iovecs[1].len();
                let result = match private {
                    None => conn.socket.read_vectored(&mut iovecs).map_err(LinkError::Socket),
                    Some(private) => private.receive(&conn.socket, &mut iovecs),
                };
                (result, asked, want)
            }
            (None, private) => {
                scratch[..kept].copy_from_slice(&conn.partial);
                let room = &mut scratch[kept..];
                let asked = room.len();
                let result = match private {
                    None => conn.socket.receive_one(room).map_err(LinkError::Socket),
                    Some(private) => private.receive(&conn.socket, &mut [IoSliceMut::new(room)]),
                };
                (result, asked, 0)
            }
        };
        let received = match result {
            Ok(0) => return self.out.release(id),
            Ok(n) => n,
            Err(LinkError::Socket(Errno::AGAIN)) => {
                conn.readable = false;
                // The first part of a record counts: the peer was idle before, and did not stall.
                if had_nothing && conn.private.as_ref().is_some_and(|private| !private.is_empty()) {
                    conn.received_ms = now_ms;
                }
                return;
            }
            Err(LinkError::Socket(Errno::INTR)) => return,
            Err(LinkError::Socket(e)) => {
                tracing::debug!("connection lost while receiving: {e}");
                return self.out.release(id);
            }
            Err(LinkError::Broken(error)) => {
                ServerCounters::add(&self.out.counters.closed_not_authentic);
                return self.out.fail(id, &error);
            }
        };
        conn.received_ms = now_ms;
        // Fewer bytes than asked for mean that the socket is empty, and the poller will report
        // more. Only the end of the stream has to be received now. What is private says when the
        // socket is empty.
        if received < asked && !conn.hangup && conn.private.is_none() {
            conn.readable = false;
        }
        if let Some(incoming) = &mut conn.incoming {
            let direct = received.min(want);
            incoming.have += direct;
            self.consume(id, &mut scratch[..received - direct], budget);
        } else {
            let partial = std::mem::take(&mut conn.partial);
            keep_spare(&mut self.out.spare, partial);
            self.consume(id, &mut scratch[..kept + received], budget);
        }
    }

    /// Delivers the frames in `bytes`, and keeps the remaining bytes.
    fn consume(&mut self, id: ConnId, bytes: &mut [u8], budget: &mut usize) {
        let mut at = 0;
        let was_private = self.out.get(id).is_some_and(|conn| conn.private.is_some());
        loop {
            let Some(conn) = self.out.get(id) else { return };
            if conn.is_closing() {
                return;
            }
            if conn.private.is_some() != was_private && at < bytes.len() {
                // Nobody can have known yet how to seal them.
                ServerCounters::add(&self.out.counters.closed_malformed);
                let what = "bytes came outside of the records of a private connection";
                return self.out.fail(id, &Error::new(ErrorKind::Protocol, what));
            }
            let complete = conn.incoming.as_ref().is_some_and(|i| i.have == i.buf.len());
            if at == bytes.len() && !complete {
                return;
            }
            let has_incoming = conn.incoming.is_some();
            let rest = &mut bytes[at..];
            let step = if *budget == 0 || self.out.is_held(id) {
                Step::Held
            } else if complete {
                self.complete(id)
            } else if has_incoming {
                self.fill(id, rest)
            } else {
                self.begin(id, rest)
            };
            match step {
                Step::Used(n) => at += n,
                Step::Frame(n) => {
                    at += n;
                    *budget -= 1;
                }
                Step::More => return self.keep(id, &bytes[at..], false),
                Step::Held => return self.keep(id, &bytes[at..], true),
                Step::Ended => return,
            }
        }
    }

    fn keep(&mut self, id: ConnId, rest: &[u8], held_back: bool) {
        let mut bytes = self.out.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(rest);
        if let Some(conn) = self.out.get_mut(id) {
            conn.partial = bytes;
            conn.held_back = held_back;
        }
    }

    /// Adds bytes to the incomplete payload or large head.
    fn fill(&mut self, id: ConnId, bytes: &[u8]) -> Step {
        let incoming = self.out.get_mut(id).and_then(|c| c.incoming.as_mut());
        let Some(incoming) = incoming else { return Step::Ended };
        let room = &mut incoming.buf[incoming.have..];
        let n = room.len().min(bytes.len());
        room[..n].copy_from_slice(&bytes[..n]);
        incoming.have += n;
        Step::Used(n)
    }

    /// Handles a payload or large head that is complete.
    fn complete(&mut self, id: ConnId) -> Step {
        let incoming = self.out.get_mut(id).and_then(|c| c.incoming.take());
        let Some(mut incoming) = incoming else { return Step::Ended };
        match incoming.part {
            Part::Payload { header, head } => {
                if let Err(step) = self.check_payload(id, &head, &incoming.buf) {
                    return step;
                }
                let step = self.deliver(id, header, &head, Some(incoming.buf));
                keep_spare(&mut self.out.spare, head);
                step
            }
            Part::Head => {
                let header = match self.header(id, &incoming.buf) {
                    Ok(header) => header,
                    Err(step) => return step,
                };
                match self.frame(id, header, &mut incoming.buf) {
                    Step::Held => {
                        if let Some(conn) = self.out.get_mut(id) {
                            conn.incoming = Some(incoming);
                        }
                        Step::Held
                    }
                    Step::Frame(_) => Step::Frame(0),
                    Step::Used(_) => Step::Used(0),
                    other => other,
                }
            }
        }
    }

    /// Checks the code of a payload, if it has one.
    fn check_payload(&mut self, id: ConnId, head: &[u8], payload: &[u8]) -> Result<(), Step> {
        let Some(conn) = self.out.get(id) else { return Err(Step::Ended) };
        let Phase::Open(session) = &conn.phase else { return Err(Step::Ended) };
        session.opener.check_payload(head, std::iter::once(payload)).map_err(|error| {
            ServerCounters::add(&self.out.counters.closed_not_authentic);
            self.out.fail(id, &error);
            Step::Ended
        })
    }

    /// Bytes of a frame between its header and its payload.
    fn meta_len(&self, id: ConnId, header: &Header) -> usize {
        match self.out.get(id).map(|conn| &conn.phase) {
            Some(Phase::Open(session)) => session.opener.meta_len(header),
            _ => header.meta_len(),
        }
    }

    /// Handles the frame, or the part of a frame, at the beginning of `bytes`.
    fn begin(&mut self, id: ConnId, bytes: &mut [u8]) -> Step {
        if bytes.len() < HEADER_BYTES {
            return Step::More;
        }
        let header = match self.header(id, bytes) {
            Ok(header) => header,
            Err(step) => return step,
        };
        let head_len = HEADER_BYTES + self.meta_len(id, &header);
        if bytes.len() >= head_len {
            return self.frame(id, header, &mut bytes[..head_len]);
        }
        if head_len <= SMALL_HEAD_BYTES {
            return Step::More;
        }
        let Some(buf) = self.out.take_buffer(id, head_len) else { return Step::Held };
        if let Some(conn) = self.out.get_mut(id) {
            conn.incoming = Some(Box::new(Incoming { part: Part::Head, buf, have: 0 }));
        }
        Step::Used(0)
    }

    /// Checks a header. Afterwards all its lengths are within the limits.
    fn header(&mut self, id: ConnId, bytes: &[u8]) -> Result<Header, Step> {
        let open = matches!(self.out.get(id).map(|c| &c.phase), Some(Phase::Open(_)));
        let parsed = bytes
            .first_chunk::<HEADER_BYTES>()
            .ok_or(DecodeError::Truncated)
            .and_then(Header::parse)
            .map_err(Error::from);
        let config = &self.out.config;
        let (max_body, max_payload) = match open {
            true => (config.max_body_bytes as u64, config.max_payload_bytes as u64),
            false => (u64::from(MAX_HANDSHAKE_BODY_BYTES), 0),
        };
        let error = match parsed {
            Ok(header)
                if u64::from(header.body_len) <= max_body
                    && u64::from(header.payload_len) <= max_payload
                    && (open || header.checks == 0)
                    && header.kind == FrameKind::Request =>
            {
                return Ok(header);
            }
            Ok(_) if !open => {
                Error::new(ErrorKind::AuthFailed, "the connection is not authenticated")
            }
            Ok(header) if header.kind != FrameKind::Request => {
                Error::new(ErrorKind::Protocol, "a reply came where a request was expected")
            }
            Ok(_) => Error::new(ErrorKind::Protocol, "a length in the message is over its limit"),
            Err(error) => match peer_version(bytes) {
                Some(version) if version != VERSION => {
                    ServerCounters::add(&self.out.counters.refused_version);
                    self.out.fail(id, &version_mismatch(version));
                    return Err(Step::Ended);
                }
                _ => error,
            },
        };
        ServerCounters::add(&self.out.counters.closed_malformed);
        self.out.fail(id, &error);
        Err(Step::Ended)
    }

    /// Handles a complete head: checks its MAC, then delivers the frame or begins to receive its
    /// payload.
    fn frame(&mut self, id: ConnId, header: Header, head: &mut [u8]) -> Step {
        let payload = match header.payload_len {
            0 => None,
            // Before the MAC is checked, because that can be done only once.
            len => match self.out.take_buffer(id, len as usize) {
                Some(buf) => Some(buf),
                None => return Step::Held,
            },
        };
        let Some(conn) = self.out.get_mut(id) else { return Step::Ended };
        if let Phase::Open(session) = &mut conn.phase
            && let Err(error) = session.opener.open(head)
        {
            ServerCounters::add(&self.out.counters.closed_not_authentic);
            self.out.fail(id, &error);
            return Step::Ended;
        }
        let Some(buf) = payload else {
            let used = head.len();
            return match self.deliver(id, header, head, None) {
                Step::Frame(_) => Step::Frame(used),
                other => other,
            };
        };
        let mut kept = self.out.spare.pop().unwrap_or_default();
        kept.extend_from_slice(head);
        let part = Part::Payload { header, head: kept };
        if let Some(conn) = self.out.get_mut(id) {
            conn.incoming = Some(Box::new(Incoming { part, buf, have: 0 }));
        }
        Step::Used(head.len())
    }

    fn deliver(
        &mut self,
        id: ConnId,
        header: Header,
        head: &[u8],
        payload: Option<crate::buffer::PooledBuf>,
    ) -> Step {
        ServerCounters::add(&self.out.counters.frames_received);
        let meta = &head[HEADER_BYTES..HEADER_BYTES + header.meta_len()];
        let (body, checks) = meta.split_at(header.body_len as usize);
        let Some(conn) = self.out.get_mut(id) else { return Step::Ended };
        if let Phase::Open(session) = &conn.phase {
            let peer = session.peer.clone();
            conn.in_flight += 1;
            let frame = Frame { conn: id, peer: &peer, header, body, checks, payload };
            self.service.on_frame(frame, &mut self.out);
            return Step::Frame(0);
        }
        match self.shake_hands(id, &header, body) {
            Ok(()) => Step::Frame(0),
            Err(error) => {
                let counters = &self.out.counters;
                match error.kind {
                    ErrorKind::VersionMismatch => ServerCounters::add(&counters.refused_version),
                    _ => ServerCounters::add(&counters.refused_handshake),
                }
                self.out.fail(id, &error);
                Step::Ended
            }
        }
    }

    fn shake_hands(&mut self, id: ConnId, header: &Header, body: &[u8]) -> Result<(), Error> {
        let Some(conn) = self.out.get_mut(id) else { return Ok(()) };
        match std::mem::replace(&mut conn.phase, Phase::Hello) {
            Phase::Hello => {
                let service = &mut self.service;
                let nonce = random_bytes()?;
                let key_for = |hello: &_| Ok((service.key_for(hello)?, service.protection()));
                let (shaking, challenge) = ServerHandshake::on_hello(header, body, nonce, key_for)?;
                conn.phase = Phase::Proof(Box::new(shaking));
                self.out.push_frame(id, challenge);
            }
            Phase::Proof(shaking) => {
                let accepted = shaking.on_proof(header, body, random_bytes)?;
                let Accepted { hello, mut sealer, opener, level, private } = accepted;
                conn.level = level;
                if let Some((first, records)) = private {
                    conn.private = Some(Box::new(Private::new(records, first)));
                }
                let welcome = match self.service.welcome(id, &hello) {
                    Ok(welcome) => welcome,
                    Err(error) => {
                        // The peer is authentic, so the refusal is sent sealed.
                        let peer = Arc::new(Peer {
                            identity: hello.identity,
                            session: hello.session,
                            name: hello.name,
                            level,
                        });
                        conn.phase = Phase::Open(Box::new(Session { sealer, opener, peer }));
                        return Err(error);
                    }
                };
                let bytes = handshake::welcome(&mut sealer, &welcome);
                let peer = Arc::new(Peer {
                    identity: hello.identity,
                    session: welcome.session,
                    name: hello.name,
                    level,
                });
                conn.phase = Phase::Open(Box::new(Session { sealer, opener, peer }));
                conn.welcomed = true;
                let counters = &self.out.counters;
                ServerCounters::add(&counters.authenticated);
                ServerCounters::add(&counters.connections);
                ServerCounters::add(counters.protected(level));
                ServerCounters::sub(&counters.unauthenticated);
                self.out.push_frame(id, bytes);
            }
            other => conn.phase = other,
        }
        Ok(())
    }

    /// Discards bytes from a connection that is being closed.
    fn discard(&mut self, id: ConnId, scratch: &mut [u8]) {
        for _ in 0..RECEIVES_PER_TURN {
            let Some(conn) = self.out.get_mut(id) else { return };
            if !conn.readable {
                return;
            }
            match conn.socket.receive_one(scratch) {
                Ok(0) => return self.out.release(id),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => conn.readable = false,
                Err(_) => return self.out.release(id),
            }
        }
        self.out.attend(id);
    }
}
