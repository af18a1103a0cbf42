//! One event loop: waits for events and serves each connection in turn.

use super::config::ServerConfig;
use super::connection::Phase;
use super::counters::ServerCounters;
use super::mailbox::{Accepted, Mailbox};
use super::outbox::Outbox;
use super::peer::ConnId;
use super::receive::SCRATCH_BYTES;
use super::service::Service;
use crate::socket::{Listener, set_tcp_options, set_unix_options};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;
use weir_host::net::{Event, Events, Interest, Poller};
use weir_types::{Error, Result};
use weir_wire::Level;

const TICK_MS: u64 = 1_000;
/// Delay of the next turn when something waits for memory, milliseconds.
const SOON_MS: u64 = 1;
/// The most events of the poller in one turn.
const EVENTS_PER_TURN: usize = 256;
/// The most connections accepted in one turn.
const ACCEPTS_PER_TURN: usize = 64;
/// While buffers are short, a peer that accepts no data is disconnected after this time.
const SHORT_STALL_MS: u64 = 3_000;

/// Tokens that no connection has: its loop would be number 255.
const WAKE: u64 = u64::MAX;
const FIRST_LISTENER: u64 = u64::MAX - 256;

pub(super) struct EventLoop<S: Service> {
    pub(super) service: S,
    pub(super) out: Outbox,
    pub(super) scratch: Box<[u8]>,
    mailboxes: Vec<Arc<Mailbox<S::Event>>>,
    index: usize,
    listeners: Vec<Listener>,
    /// Whether accepting failed for lack of descriptors. It is tried again at the next tick.
    accept_blocked: bool,
    /// Index of the loop that gets the next connection.
    next_loop: usize,
    poller: Poller,
    next_tick_ms: u64,
}

impl<S: Service> EventLoop<S> {
    pub(super) fn new(
        service: S,
        config: Arc<ServerConfig>,
        mailboxes: Vec<Arc<Mailbox<S::Event>>>,
        index: usize,
        listeners: Vec<Listener>,
        counters: Arc<ServerCounters>,
    ) -> Result<Self> {
        let failed = |e: Errno| Error::from(std::io::Error::from(e)).context("set up epoll");
        let poller = Poller::new().map_err(failed)?;
        poller.add_signal(mailboxes[index].signal(), WAKE).map_err(failed)?;
        for (i, listener) in listeners.iter().enumerate() {
            let token = FIRST_LISTENER + i as u64;
            poller.add_socket(listener.socket(), token, Interest::READ).map_err(failed)?;
        }
        Ok(Self {
            service,
            out: Outbox::new(config, counters, index),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            mailboxes,
            index,
            listeners,
            accept_blocked: false,
            next_loop: 0,
            poller,
            next_tick_ms: TICK_MS,
        })
    }

    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        let mut posted = Vec::new();
        let mut accepted = Vec::new();
        while !self.mailboxes[self.index].stopped() {
            match self.poller.wait(&mut events, self.timeout()) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(e) => {
                    tracing::error!("polling failed, the event loop ends: {e}");
                    return;
                }
            }
            self.out.update_now();
            self.out.soon = false;
            self.out.service_waits = false;
            for event in events.list() {
                match event.token {
                    WAKE => self.mailboxes[self.index].take(&mut posted, &mut accepted),
                    token if token >= FIRST_LISTENER => {
                        self.accept((token - FIRST_LISTENER) as usize);
                    }
                    _ => self.note(*event),
                }
            }
            for new in accepted.drain(..) {
                self.adopt(new);
            }
            for event in posted.drain(..) {
                self.service.on_event(event, &mut self.out);
            }
            self.turn();
            if self.out.now_ms >= self.next_tick_ms {
                self.next_tick_ms = self.out.now_ms + TICK_MS;
                self.tick();
            }
        }
    }

    fn timeout(&self) -> Duration {
        let ms = if !self.out.ready.is_empty() || !self.out.dirty.is_empty() {
            0
        } else if self.out.soon || self.out.is_short_of_buffers() {
            SOON_MS
        } else {
            self.next_tick_ms.saturating_sub(self.out.now_ms).max(1)
        };
        Duration::from_millis(ms)
    }

    /// Receives, ends the turn of the service, sends.
    fn turn(&mut self) {
        // In order of arrival, each connection once. One that still finds no buffer queues again,
        // in the same order.
        self.out.serving_starved = true;
        for _ in 0..self.out.starved.len() {
            let Some(id) = self.out.starved.pop_front() else { break };
            if let Some(conn) = self.out.get_mut(id) {
                conn.starved = false;
                self.drive(id);
            }
        }
        self.out.serving_starved = false;
        for _ in 0..self.out.ready.len() {
            let Some(id) = self.out.ready.pop_front() else { break };
            if let Some(conn) = self.out.get_mut(id) {
                conn.queued = false;
                self.drive(id);
            }
        }
        self.service.on_turn_end(&mut self.out);
        let mut dirty = std::mem::take(&mut self.out.dirty);
        for id in dirty.drain(..) {
            if let Some(conn) = self.out.get_mut(id) {
                conn.dirty = false;
                self.out.flush(id);
            }
        }
        // Connections with new replies are served in the next turn.
        if self.out.dirty.is_empty() {
            self.out.dirty = dirty;
        }
        self.let_go();
        self.report_closed();
    }

    /// Hands over the connections whose replies are all sent.
    fn let_go(&mut self) {
        for id in std::mem::take(&mut self.out.leaving) {
            let Some(conn) = self.out.get(id) else { continue };
            if conn.unsent_bytes > 0 {
                self.out.leaving.push(id);
                continue;
            }
            let watched_no_more = self.poller.remove_socket(&conn.socket);
            let Some(conn) = self.out.take(id) else { continue };
            match (watched_no_more, conn.heir) {
                (Ok(()), Some(heir)) => heir(conn.socket),
                (Err(e), _) => tracing::warn!("a connection is closed, not let go: {e}"),
                (Ok(()), None) => {}
            }
        }
    }

    fn report_closed(&mut self) {
        for id in std::mem::take(&mut self.out.closed) {
            self.service.on_closed(id);
        }
    }

    /// Records an event of the poller on a connection.
    fn note(&mut self, event: Event) {
        let id = ConnId(event.token);
        let Some(conn) = self.out.get_mut(id) else { return };
        if event.hangup {
            conn.hangup = true;
            conn.readable = true;
        }
        conn.readable |= event.readable;
        if event.writable && !conn.writable {
            conn.writable = true;
            self.out.flush(id);
        }
        self.out.attend(id);
    }

    fn accept(&mut self, index: usize) {
        if self.accept_blocked {
            return;
        }
        for _ in 0..ACCEPTS_PER_TURN {
            let listener = &self.listeners[index];
            let socket = match listener.socket().accept() {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(e) => {
                    // Out of descriptors or memory: accepting stops until the next tick. Otherwise
                    // the level-triggered listener would keep the loop busy.
                    tracing::warn!("cannot accept a connection on {}: {e}", listener.address());
                    self.block_accept(true);
                    return;
                }
            };
            ServerCounters::add(&self.out.counters.accepted);
            if listener.is_tcp() {
                if let Err(e) = set_tcp_options(&socket) {
                    tracing::debug!("connection lost while it was being accepted: {e}");
                    continue;
                }
            } else {
                set_unix_options(&socket);
            }
            let target = self.next_loop % self.mailboxes.len();
            self.next_loop = self.next_loop.wrapping_add(1);
            let new = Accepted { socket };
            let handed_over = match target == self.index {
                true => Err(new),
                false => self.mailboxes[target].hand_over(new),
            };
            // A connection that the other loop cannot take is served here, within this loop's
            // limits.
            if let Err(new) = handed_over {
                self.adopt(new);
            }
        }
    }

    fn block_accept(&mut self, blocked: bool) {
        self.accept_blocked = blocked;
        let interest = if blocked { Interest::NONE } else { Interest::READ };
        for (i, listener) in self.listeners.iter().enumerate() {
            let token = FIRST_LISTENER + i as u64;
            if let Err(e) = self.poller.modify_socket(listener.socket(), token, interest) {
                tracing::error!("cannot change how {} is polled: {e}", listener.address());
            }
        }
    }

    fn adopt(&mut self, new: Accepted) {
        if !self.out.make_room() {
            return;
        }
        let id = self.out.insert(new.socket);
        if let Some(conn) = self.out.get(id)
            && let Err(e) = self.poller.add_socket(&conn.socket, id.0, Interest::EDGES)
        {
            tracing::warn!("cannot poll a new connection: {e}");
            self.out.release(id);
        }
    }

    fn tick(&mut self) {
        if self.accept_blocked {
            self.block_accept(false);
        }
        self.cut_off_stalled();
        self.cut_off_unprotected();
        self.service.on_tick(&mut self.out);
        self.report_closed();
    }

    /// Disconnects peers whose connections are protected less than required meanwhile. They come
    /// again.
    fn cut_off_unprotected(&mut self) {
        let least = self.service.protection();
        if least == Level::Args {
            return;
        }
        let is_below = |id: &ConnId| {
            let conn = self.out.get(*id);
            conn.is_some_and(|conn| matches!(conn.phase, Phase::Open(_)) && conn.level < least)
        };
        let ended: Vec<ConnId> = self.out.ids().filter(is_below).collect();
        for id in ended {
            ServerCounters::add(&self.out.counters.closed_unprotected);
            self.out.close(id);
        }
    }

    /// Disconnects peers that stall.
    fn cut_off_stalled(&mut self) {
        let now_ms = self.out.now_ms;
        let config = &self.out.config;
        let stall_ms = config.stall_timeout_ms;
        // Others wait for the buffers of its unsent replies.
        let short = self.out.is_short_of_buffers();
        let send_ms = if short { stall_ms.min(SHORT_STALL_MS) } else { stall_ms };
        let stalled = |id: &ConnId| {
            let Some(conn) = self.out.get(*id) else { return false };
            let silent_ms = now_ms.saturating_sub(conn.received_ms);
            let unsent_ms = now_ms.saturating_sub(conn.sent_ms);
            match conn.phase {
                // Progress does not matter here: a handshake is a few bytes.
                Phase::Hello | Phase::Proof(_) => unsent_ms > config.handshake_timeout_ms,
                Phase::Closing { until_ms } => now_ms > until_ms,
                Phase::Open(_) => {
                    (conn.is_mid_frame() && !self.out.is_held(*id) && silent_ms > stall_ms)
                        || (conn.unsent_bytes > 0 && unsent_ms > send_ms)
                }
            }
        };
        let ended: Vec<ConnId> = self.out.ids().filter(stalled).collect();
        for id in ended {
            ServerCounters::add(&self.out.counters.closed_stalled);
            self.out.release(id);
        }
    }
}
