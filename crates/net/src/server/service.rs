//! The interface between event loops and the request handler of a server.

use super::outbox::Outbox;
use super::peer::{ConnId, Peer};
use crate::buffer::PooledBuf;
use weir_types::Result;
use weir_wire::handshake::{Hello, Welcome};
use weir_wire::{Header, Key, Level};

/// A complete, authentic request.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Connection of the request and its reply.
    pub conn: ConnId,
    /// The sender.
    pub peer: &'a Peer,
    /// The header. All its lengths agree with the following fields.
    pub header: Header,
    /// The body.
    pub body: &'a [u8],
    /// The checksums as received, 4 bytes each: see `weir_wire::frame::decode_checks`.
    pub checks: &'a [u8],
    /// The payload, if there is one.
    pub payload: Option<PooledBuf>,
}

/// The request handler of a server. All calls of one instance come from one thread.
///
/// No method may block: that would stall every connection of the loop.
pub trait Service: Send + 'static {
    /// Type of the events that other threads post to the loop.
    type Event: Send + 'static;

    /// Returns the key of an identity, or an error. The peer has proved nothing yet.
    fn key_for(&mut self, hello: &Hello) -> Result<Key>;

    /// The lowest level of protection of connections. Each of a lower level is closed within about a
    /// second.
    fn protection(&self) -> Level {
        Level::Args
    }

    /// Called when the peer has proved its identity. An error still refuses the connection.
    fn welcome(&mut self, conn: ConnId, hello: &Hello) -> Result<Welcome>;

    /// Handles a request. Every request needs exactly one reply, now or later, unless the
    /// connection closes first.
    fn on_frame(&mut self, frame: Frame<'_>, out: &mut Outbox);

    /// Handles an event that another thread has posted.
    fn on_event(&mut self, event: Self::Event, out: &mut Outbox);

    /// Called after all events and frames of this turn. No reply of this turn has been sent, except
    /// by [`Outbox::flush`].
    fn on_turn_end(&mut self, _out: &mut Outbox) {}

    /// Called about once each second.
    fn on_tick(&mut self, _out: &mut Outbox) {}

    /// Called when a welcomed connection is gone. Later replies to it are dropped.
    fn on_closed(&mut self, _conn: ConnId) {}
}
