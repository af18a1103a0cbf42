//! The connections of one loop, and what is to be sent on them.

use super::connection::{Chunk, Connection, Heir, Phase};
use super::{ConnId, Peer, ServerConfig, ServerCounters};
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

/// Heads are gathered into one piece of memory up to about this size.
const MERGE_BYTES: usize = 32 << 10;
/// Pieces given to the kernel in one call.
const MAX_IOVECS: usize = 32;
/// Vectors kept for reuse, and how large they may be.
const MAX_SPARE: usize = 64;
const MAX_SPARE_BYTES: usize = 64 << 10;
/// How long a peer has to read why it was cut off.
const LINGER_MS: u64 = 2_000;

struct Slot {
    generation: u32,
    conn: Option<Box<Connection>>,
}

/// The connections of one loop: where a service leaves its replies.
pub struct Outbox {
    pub(super) config: Arc<ServerConfig>,
    pub(super) counters: Arc<ServerCounters>,
    loop_index: usize,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// To receive from, in this order.
    pub(super) ready: VecDeque<ConnId>,
    /// Those whose peers had not proved who they are, in the order in which they came. Some may
    /// have done so since, or be gone.
    unproved: VecDeque<ConnId>,
    /// Waiting for a buffer of the pool, in this order.
    pub(super) starved: VecDeque<ConnId>,
    /// A connection from the front of `starved` is being served.
    pub(super) serving_starved: bool,
    /// To send to at the end of the turn.
    pub(super) dirty: Vec<ConnId>,
    /// Gone since the service was last told.
    pub(super) closed: Vec<ConnId>,
    /// To be let go when all is sent on them.
    pub(super) leaving: Vec<ConnId>,
    pub(super) spare: Vec<Vec<u8>>,
    start: Instant,
    pub(super) now_ms: u64,
    /// The service wants another turn within a millisecond.
    pub(super) soon: bool,
    /// The service waits for a buffer.
    pub(super) service_waits: bool,
}

/// Keeps an emptied vector for reuse.
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
            start: clock::now(),
            now_ms: 0,
            soon: false,
            service_waits: false,
        }
    }

    /// Answers a request: `header` from [`Header::reply_to`] (lengths are
    /// filled in), then body, checksums and payload. Sent at the end of the
    /// turn, or by [`Outbox::flush`]. Dropped if the connection is gone.
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
            session.sealer.seal(&mut bytes[start..]);
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

    /// Sends now what is to be sent on this connection, as far as the socket
    /// takes it, instead of at the end of the turn: for large payloads, which
    /// would grow cold.
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

    /// Delivers no more frames of this connection until [`Outbox::resume`].
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

    /// Sends what is to be sent, then lets the connection go: `heir` gets its socket, which
    /// does not block. For connections whose peer has waited for that before it sends
    /// anything else; one that has not is closed.
    pub fn let_go(&mut self, conn: ConnId, heir: Heir) {
        let Some(c) = self.get_mut(conn) else { return };
        let waits = c.partial.is_empty() && c.incoming.is_none() && c.in_flight == 0;
        if !waits || c.is_closing() {
            self.close(conn);
            return;
        }
        (c.paused, c.heir) = (true, Some(heir));
        self.leaving.push(conn);
    }

    /// Sends what is to be sent, then closes the connection.
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

    /// Who is on the other end, while the connection is open.
    pub fn peer(&self, conn: ConnId) -> Option<&Arc<Peer>> {
        match &self.get(conn)?.phase {
            Phase::Open(session) => Some(&session.peer),
            _ => None,
        }
    }

    /// The connections that are authenticated and open on this loop.
    pub fn peers(&self) -> impl Iterator<Item = (ConnId, &Arc<Peer>)> {
        self.slots.iter().filter_map(|slot| {
            let conn = slot.conn.as_ref()?;
            Some((conn.id, self.peer(conn.id)?))
        })
    }

    /// Asks for another turn within about a millisecond, although nothing may
    /// have happened.
    pub fn turn_again_soon(&mut self) {
        self.soon = true;
    }

    /// The service waits for a buffer of the pool: another turn follows within
    /// about a millisecond, and peers that hold buffers because they take no
    /// data are cut off sooner.
    pub fn wait_for_buffer(&mut self) {
        self.service_waits = true;
    }

    /// Whether anyone waits for a buffer.
    pub(super) fn is_short_of_buffers(&self) -> bool {
        self.service_waits || !self.starved.is_empty()
    }

    /// The pool that payloads are received into.
    pub fn pool(&self) -> &BufferPool {
        &self.config.pool
    }

    /// Time since the loop started, as of the beginning of this turn.
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

    /// Makes room for one more connection. If there are too many, one of those goes whose peer has
    /// not proved who it is: the oldest from which nothing has come, or else the oldest. Whether
    /// there is room.
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

    /// Whether frames of the connection have to wait.
    pub(super) fn is_held(&self, id: ConnId) -> bool {
        self.get(id).is_none_or(|c| {
            c.paused
                || c.starved
                || c.in_flight >= self.config.max_in_flight
                || c.unsent_bytes > self.config.max_unsent_bytes
        })
    }

    /// Sees to it that the connection is received from, if it has something.
    pub(super) fn attend(&mut self, id: ConnId) {
        if let Some(c) = self.get_mut(id)
            && c.wants_attention()
            && !c.queued
        {
            c.queued = true;
            self.ready.push_back(id);
        }
    }

    /// A buffer to receive into, or the connection waits for one.
    pub(super) fn take_buffer(&mut self, id: ConnId, len: usize) -> Option<PooledBuf> {
        // Nobody overtakes those who wait already.
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

    /// Queues a frame of the handshake, which is sealed already or never is.
    pub(super) fn push_frame(&mut self, id: ConnId, bytes: Vec<u8>) {
        if let Some(c) = self.get_mut(id) {
            c.unsent_bytes += bytes.len();
            c.unsent.push_back(Chunk::Bytes(bytes));
            self.mark_dirty(id);
        }
    }

    /// Tells the peer why, then closes the connection.
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

    /// Forgets the connection; its descriptor is closed.
    pub(super) fn release(&mut self, id: ConnId) {
        drop(self.take(id));
    }

    /// Takes the connection out.
    pub(super) fn take(&mut self, id: ConnId) -> Option<Box<Connection>> {
        let slot = self.slots.get_mut(id.slot())?;
        let conn = slot.conn.take_if(|c| c.id == id)?;
        self.free.push(id.slot());
        if conn.welcomed {
            self.closed.push(id);
            ServerCounters::sub(&self.counters.connections);
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

    /// Everything is sent on a closing connection: say so to the peer, who
    /// closes; what it still sends is thrown away.
    fn finish_sending(&mut self, id: ConnId) {
        let Some(c) = self.get_mut(id) else { return };
        let done = c.hangup || c.socket.shut_down().is_err();
        if done {
            self.release(id);
        } else {
            self.attend(id);
        }
    }

    /// Sends as much as the socket takes.
    fn send(&mut self, id: ConnId) -> Result<(), Error> {
        let Self { slots, spare, .. } = self;
        let Some(c) = slots.get_mut(id.slot()).and_then(|s| s.conn.as_mut()) else {
            return Ok(());
        };
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
                        // The kernel tells us when there is room again.
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
