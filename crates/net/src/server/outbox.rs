//! The connections of one loop, and the replies to be sent on them.

use super::config::ServerConfig;
use super::connection::{Chunk, Connection, Heir, Phase};
use super::counters::ServerCounters;
use super::peer::{ConnId, Peer};
use super::private;
use crate::buffer::{BufferPool, PooledBuf};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::net::Socket;
use weir_types::{Encode, Error, ErrorKind, RequestId};
use weir_wire::frame::encode_head;
use weir_wire::handshake::refusal;
use weir_wire::{Header, Op};

/// Heads are gathered into one buffer up to about this size.
const MERGE_BYTES: usize = 32 << 10;
/// Number of buffers in one system call.
const MAX_IOVECS: usize = 32;
/// The most vectors that are kept for reuse.
const MAX_SPARE: usize = 64;
const MAX_SPARE_BYTES: usize = 64 << 10;
/// Time that a disconnected peer has for reading the error.
const LINGER_MS: u64 = 2_000;

struct Slot {
    generation: u32,
    conn: Option<Box<Connection>>,
}

/// The connections of one loop. A service sends its replies through it.
pub struct Outbox {
    pub(super) config: Arc<ServerConfig>,
    pub(super) counters: Arc<ServerCounters>,
    loop_index: usize,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Queue of connections to receive from.
    pub(super) ready: VecDeque<ConnId>,
    /// Connections that were unauthenticated when they arrived, the oldest first. Some may be
    /// authenticated or gone by now.
    unproved: VecDeque<ConnId>,
    /// Queue of connections that wait for a buffer.
    pub(super) starved: VecDeque<ConnId>,
    /// Whether a connection from the front of `starved` is being served.
    pub(super) serving_starved: bool,
    /// Connections with replies to send at the end of the turn.
    pub(super) dirty: Vec<ConnId>,
    /// Connections that have closed since the service was last told.
    pub(super) closed: Vec<ConnId>,
    /// Connections to be handed over when everything on them is sent.
    pub(super) leaving: Vec<ConnId>,
    pub(super) spare: Vec<Vec<u8>>,
    /// Memory for the records of private connections that are sent.
    records: Vec<u8>,
    start: Instant,
    pub(super) now_ms: u64,
    /// Whether the service wants another turn within a millisecond.
    pub(super) soon: bool,
    /// Whether the service waits for a buffer.
    pub(super) service_waits: bool,
}

/// Keeps an empty vector for reuse.
pub(super) fn keep_spare(spare: &mut Vec<Vec<u8>>, mut bytes: Vec<u8>) {
    if spare.len() < MAX_SPARE && (1..=MAX_SPARE_BYTES).contains(&bytes.capacity()) {
        bytes.clear();
        spare.push(bytes);
    }
}

impl Outbox {
    pub(super) fn new(
        config: Arc<ServerConfig>,
        counters: Arc<ServerCounters>,
        loop_index: usize,
    ) -> Self {
        Self {
            config,
            counters,
            loop_index,
            slots: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            unproved: VecDeque::new(),
            starved: VecDeque::new(),
            serving_starved: false,
            dirty: Vec::new(),
            closed: Vec::new(),
            leaving: Vec::new(),
            spare: Vec::new(),
            records: Vec::new(),
            start: clock::now(),
            now_ms: 0,
            soon: false,
            service_waits: false,
        }
    }

    /// Answers a request: `header` from [`Header::reply_to`] (its lengths are filled in here),
    /// body, checksums and payload. The reply is sent at the end of the turn, or by
    /// [`Outbox::flush`]. It is dropped if the connection is gone.
    pub fn reply(
        &mut self,
        conn: ConnId,
        header: Header,
        body: &impl Encode,
        checks: &[u32],
        payload: Option<PooledBuf>,
    ) {
        let (max_in_flight, now_ms) = (self.config.max_in_flight, self.now_ms);
        let Some(c) = self.slots.get_mut(conn.slot()).and_then(|s| s.conn.as_mut()) else { return };
        let Phase::Open(session) = &mut c.phase else { return };
        if c.id != conn {
            return;
        }
        if c.unsent_bytes == 0 {
            c.sent_ms = now_ms;
        }
        if !matches!(c.unsent.back(), Some(Chunk::Bytes(bytes)) if bytes.len() < MERGE_BYTES) {
            c.unsent.push_back(Chunk::Bytes(self.spare.pop().unwrap_or_default()));
        }
        if let Some(Chunk::Bytes(bytes)) = c.unsent.back_mut() {
            let start = bytes.len();
            let payload_len = payload.as_ref().map_or(0, |p| p.len());
            encode_head(bytes, header, body, checks, payload_len);
            session.sealer.seal_with(bytes, start, payload.iter().map(|payload| &payload[..]));
            c.unsent_bytes += bytes.len() - start + payload_len;
        }
        c.unsent.extend(payload.filter(|p| !p.is_empty()).map(Chunk::Payload));
        let was_full = c.in_flight >= max_in_flight;
        c.in_flight = c.in_flight.saturating_sub(1);
        self.counters.frames_sent.fetch_add(1, Relaxed);
        self.mark_dirty(conn);
        if was_full {
            self.attend(conn);
        }
    }

    /// Answers a request with an error.
    pub fn reply_error(&mut self, conn: ConnId, request: &Header, error: &Error) {
        self.reply(conn, Header::reply_to(request, Some(error.kind)), error, &[], None);
    }

    /// Sends the replies of this connection now, as far as the socket accepts them, instead of at
    /// the end of the turn. For large payloads, which would leave the CPU caches meanwhile.
    pub fn flush(&mut self, conn: ConnId) {
        let Some(c) = self.get_mut(conn) else { return };
        let before = c.unsent_bytes;
        if !c.writable || before == 0 {
            return;
        }
        if let Err(e) = self.send(conn) {
            tracing::debug!("connection lost while sending: {e}");
            self.release(conn);
            return;
        }
        let cap = self.config.max_unsent_bytes;
        let now_ms = self.now_ms;
        let Some(c) = self.get_mut(conn) else { return };
        if c.unsent_bytes < before {
            c.sent_ms = now_ms;
        }
        let (empty, closing) = (c.unsent_bytes == 0, c.is_closing());
        if before > cap && c.unsent_bytes <= cap {
            self.attend(conn);
        }
        if empty && closing {
            self.finish_sending(conn);
        }
    }

    /// Stops delivering frames of this connection until [`Outbox::resume`].
    pub fn pause(&mut self, conn: ConnId) {
        if let Some(c) = self.get_mut(conn) {
            c.paused = true;
        }
    }

    /// Ends [`Outbox::pause`].
    pub fn resume(&mut self, conn: ConnId) {
        if let Some(c) = self.get_mut(conn) {
            c.paused = false;
            self.attend(conn);
        }
    }

    /// Sends the replies of this connection, then takes it out of the loop: `heir` gets its
    /// non-blocking socket. The peer must have waited for this before sending anything else;
    /// otherwise the connection is closed.
    pub fn let_go(&mut self, conn: ConnId, heir: Heir) {
        let Some(c) = self.get_mut(conn) else { return };
        let took_all = c.private.as_ref().is_none_or(|private| private.is_empty());
        let waits = c.partial.is_empty() && c.incoming.is_none() && c.in_flight == 0 && took_all;
        if !waits || c.is_closing() {
            self.close(conn);
            return;
        }
        (c.paused, c.heir) = (true, Some(heir));
        self.leaving.push(conn);
    }

    /// Sends the replies of this connection, then closes it.
    pub fn close(&mut self, conn: ConnId) {
        let until_ms = self.now_ms + LINGER_MS;
        if let Some(c) = self.get_mut(conn) {
            if !c.is_closing() {
                c.phase = Phase::Closing { until_ms };
                c.incoming = None;
                c.partial = Vec::new();
            }
            if c.unsent_bytes == 0 {
                self.finish_sending(conn);
            } else {
                self.mark_dirty(conn);
            }
        }
    }

    /// The peer, while the connection is open.
    pub fn peer(&self, conn: ConnId) -> Option<&Arc<Peer>> {
        match &self.get(conn)?.phase {
            Phase::Open(session) => Some(&session.peer),
            _ => None,
        }
    }

    /// The open, authenticated connections of this loop.
    pub fn peers(&self) -> impl Iterator<Item = (ConnId, &Arc<Peer>)> {
        self.slots.iter().filter_map(|slot| {
            let conn = slot.conn.as_ref()?;
            Some((conn.id, self.peer(conn.id)?))
        })
    }

    /// Requests another turn within about a millisecond, even without an event.
    pub fn turn_again_soon(&mut self) {
        self.soon = true;
    }

    /// Tells the loop that the service waits for a buffer of the pool. Another turn follows within
    /// about a millisecond, and peers that hold buffers because they accept no data are
    /// disconnected sooner.
    pub fn wait_for_buffer(&mut self) {
        self.service_waits = true;
    }

    /// Whether the service or a connection waits for a buffer.
    pub(super) fn is_short_of_buffers(&self) -> bool {
        self.service_waits || !self.starved.is_empty()
    }

    /// The pool of payload buffers.
    pub fn pool(&self) -> &BufferPool {
        &self.config.pool
    }

    /// Time from the start of the loop to the beginning of this turn.
    pub fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms)
    }

    pub(super) fn update_now(&mut self) {
        self.now_ms = clock::elapsed(self.start).as_millis() as u64;
    }

    pub(super) fn insert(&mut self, socket: Socket) -> ConnId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, conn: None });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1);
        let id = ConnId::new(self.loop_index, slot.generation, index);
        slot.conn = Some(Connection::new(id, socket, self.now_ms));
        self.counters.unauthenticated.fetch_add(1, Relaxed);
        self.unproved.push_back(id);
        id
    }

    /// Makes space for one more connection. If there are too many, closes an unauthenticated one:
    /// the oldest from which nothing was received, or else the oldest. Returns whether there is
    /// space.
    pub(super) fn make_room(&mut self) -> bool {
        let unauthenticated = self.counters.unauthenticated.load(Relaxed) as usize;
        let all = unauthenticated + self.counters.connections.load(Relaxed) as usize;
        let config = &self.config;
        if unauthenticated < config.max_unauthenticated && all < config.max_connections {
            if self.unproved.len() > 2 * config.max_unauthenticated {
                self.forget_proved();
            }
            return true;
        }
        ServerCounters::add(&self.counters.refused_too_many);
        self.forget_proved();
        let is_silent = |id: &ConnId| self.get(*id).is_some_and(Connection::is_silent);
        let at = self.unproved.iter().position(is_silent).unwrap_or(0);
        let Some(id) = self.unproved.remove(at) else { return false };
        self.release(id);
        true
    }

    fn forget_proved(&mut self) {
        let mut unproved = std::mem::take(&mut self.unproved);
        unproved.retain(|id| self.get(*id).is_some_and(|conn| !conn.welcomed));
        self.unproved = unproved;
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&Connection> {
        self.slots.get(id.slot())?.conn.as_deref().filter(|c| c.id == id)
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.slots.get_mut(id.slot())?.conn.as_deref_mut().filter(|c| c.id == id)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.slots.iter().filter_map(|slot| slot.conn.as_ref().map(|c| c.id))
    }

    /// Whether the connection may not deliver frames now.
    pub(super) fn is_held(&self, id: ConnId) -> bool {
        self.get(id).is_none_or(|c| {
            c.paused
                || c.starved
                || c.in_flight >= self.config.max_in_flight
                || c.unsent_bytes > self.config.max_unsent_bytes
        })
    }

    /// Queues the connection for receiving, if it may have received bytes.
    pub(super) fn attend(&mut self, id: ConnId) {
        if let Some(c) = self.get_mut(id)
            && c.wants_attention()
            && !c.queued
        {
            c.queued = true;
            self.ready.push_back(id);
        }
    }

    /// Takes a buffer to receive into, or queues the connection for one.
    pub(super) fn take_buffer(&mut self, id: ConnId, len: usize) -> Option<PooledBuf> {
        // A connection does not overtake those that are waiting.
        let my_turn = self.starved.is_empty() || self.serving_starved;
        let buf = if my_turn { self.config.pool.take(len) } else { None };
        if buf.is_none()
            && let Some(c) = self.get_mut(id)
            && !c.starved
        {
            c.starved = true;
            self.starved.push_back(id);
            self.counters.waits_for_buffer.fetch_add(1, Relaxed);
        }
        buf
    }

    /// Queues a frame of the handshake. It is sealed already, or is sent unsealed.
    pub(super) fn push_frame(&mut self, id: ConnId, bytes: Vec<u8>) {
        if let Some(c) = self.get_mut(id) {
            c.unsent_bytes += bytes.len();
            c.unsent.push_back(Chunk::Bytes(bytes));
            self.mark_dirty(id);
        }
    }

    /// Sends the error to the peer, then closes the connection.
    pub(super) fn fail(&mut self, id: ConnId, error: &Error) {
        let Some(c) = self.get_mut(id) else { return };
        tracing::debug!("connection closed: {error}");
        let mut bytes = refusal(error);
        if let Phase::Open(session) = &mut c.phase {
            let mut header = Header::request(Op::Challenge, RequestId(0));
            header = Header::reply_to(&header, Some(error.kind));
            bytes.clear();
            encode_head(&mut bytes, header, error, &[], 0);
            session.sealer.seal(&mut bytes);
        }
        self.push_frame(id, bytes);
        self.close(id);
    }

    /// Removes the connection and closes its descriptor.
    pub(super) fn release(&mut self, id: ConnId) {
        drop(self.take(id));
    }

    /// Removes the connection.
    pub(super) fn take(&mut self, id: ConnId) -> Option<Box<Connection>> {
        let slot = self.slots.get_mut(id.slot())?;
        let conn = slot.conn.take_if(|c| c.id == id)?;
        self.free.push(id.slot());
        if conn.welcomed {
            self.closed.push(id);
            ServerCounters::sub(&self.counters.connections);
            ServerCounters::sub(self.counters.protected(conn.level));
        } else {
            ServerCounters::sub(&self.counters.unauthenticated);
        }
        Some(conn)
    }

    fn mark_dirty(&mut self, id: ConnId) {
        if let Some(c) = self.get_mut(id)
            && !c.dirty
        {
            c.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Ends sending on a closing connection after all its bytes are sent. The peer then closes;
    /// bytes that it still sends are discarded.
    fn finish_sending(&mut self, id: ConnId) {
        let Some(c) = self.get_mut(id) else { return };
        let done = c.hangup || c.socket.shut_down().is_err();
        if done {
            self.release(id);
        } else {
            self.attend(id);
        }
    }

    /// Sends as much as the socket accepts.
    fn send(&mut self, id: ConnId) -> Result<(), Error> {
        let Self { slots, spare, records, now_ms, .. } = self;
        let Some(c) = slots.get_mut(id.slot()).and_then(|s| s.conn.as_mut()) else {
            return Ok(());
        };
        if c.private.is_some() {
            c.writable = private::send(c, spare, records, *now_ms)?;
            return Ok(());
        }
        while c.unsent_bytes > 0 {
            let mut iovecs = [IoSlice::new(&[]); MAX_IOVECS];
            let mut asked = 0;
            let mut count = 0;
            let mut skip = c.front_sent;
            for (iovec, chunk) in iovecs.iter_mut().zip(&c.unsent) {
                let bytes = &chunk.bytes()[skip..];
                skip = 0;
                asked += bytes.len();
                count += 1;
                *iovec = IoSlice::new(bytes);
            }
            match c.socket.send(&iovecs[..count], false) {
                Ok(0) => return Err(ErrorKind::Unreachable.into()),
                Ok(sent) => {
                    c.advance(sent, spare);
                    if sent < asked {
                        // The poller reports when the socket accepts bytes again.
                        c.writable = false;
                        return Ok(());
                    }
                }
                Err(Errno::AGAIN) => {
                    c.writable = false;
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(std::io::Error::from(e).into()),
            }
        }
        Ok(())
    }
}
