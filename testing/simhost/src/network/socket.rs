//! What programs do with sockets, and what becomes of them when one ends.

use crate::slab::Id;
use crate::world::World;
use crate::world::connection::Phase;
use crate::world::object::{Kind, Ready};
use rustix::io::{Errno, Result};
use std::io::{IoSlice, IoSliceMut};

/// How the sockets of a process end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// What was sent arrives, then the stream ends.
    Orderly,
    /// Of some connections that, others are reset.
    Abrupt,
    /// No one is told.
    Silent,
}

impl World {
    fn stream(&self, id: Id) -> Result<(Id, usize)> {
        match self.network.objects.get(id).map(|object| &object.kind) {
            Some(&Kind::Stream { connection, end }) => Ok((connection, end)),
            Some(_) => Err(Errno::NOTSOCK),
            None => Err(Errno::BADF),
        }
    }

    pub(super) fn stream_ready(&self, connection: Id, end: usize) -> Ready {
        let Some(connection) = self.network.connections.get(connection) else {
            return Ready::ALL;
        };
        let (this, peer) = (&connection.ends[end], &connection.ends[1 - end]);
        match this.phase {
            Phase::Connecting => Ready::NOTHING,
            Phase::Broken => Ready::ALL,
            Phase::Open => {
                Ready::READABLE.when(this.unread > 0)
                    | Ready::HANGUP.when(this.finished)
                    | Ready::BROKEN.when(this.finished && this.shut_down)
                    | Ready::WRITABLE.when(peer.has_room())
            }
        }
    }

    pub(super) fn send(&mut self, id: Id, slices: &[IoSlice<'_>]) -> Result<usize> {
        let (connection, end) = self.stream(id)?;
        let ends = &mut self.network.connections.get_mut(connection).ok_or(Errno::BADF)?.ends;
        let this = &mut ends[end];
        if let Some(error) = this.error.take() {
            return Err(error);
        }
        match this.phase {
            Phase::Connecting => return Err(Errno::AGAIN),
            Phase::Broken => return Err(Errno::PIPE),
            Phase::Open if this.shut_down => return Err(Errno::PIPE),
            Phase::Open => {}
        }
        if slices.iter().all(|slice| slice.is_empty()) {
            return Ok(0);
        }
        match self.send_data(connection, 1 - end, slices) {
            0 => Err(Errno::AGAIN),
            count => Ok(count),
        }
    }

    pub(super) fn receive(&mut self, id: Id, into: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let (connection, end) = self.stream(id)?;
        let ends = &mut self.network.connections.get_mut(connection).ok_or(Errno::BADF)?.ends;
        let this = &mut ends[end];
        if this.unread > 0 {
            return Ok(self.take_data(connection, end, into));
        }
        if let Some(error) = this.error.take() {
            return Err(error);
        }
        match this.phase {
            Phase::Broken => Ok(0),
            Phase::Open if this.finished => Ok(0),
            Phase::Open | Phase::Connecting => Err(Errno::AGAIN),
        }
    }

    pub(super) fn shut_down(&mut self, id: Id) -> Result<()> {
        let (connection, end) = self.stream(id)?;
        let phase = self.network.connections.get(connection).map(|c| c.ends[end].phase);
        match phase {
            Some(Phase::Open) => {
                self.finish(connection, end);
                Ok(())
            }
            _ => Err(Errno::NOTCONN),
        }
    }

    pub(super) fn accept(&mut self, id: Id) -> Result<Id> {
        let object = self.network.objects.get_mut(id).ok_or(Errno::BADF)?;
        let Kind::Listener { backlog, .. } = &mut object.kind else { return Err(Errno::INVAL) };
        backlog.pop_front().ok_or(Errno::AGAIN)
    }

    pub(super) fn push_backlog(&mut self, listener: Id, socket: Id, max: usize) -> bool {
        let Some(object) = self.network.objects.get_mut(listener) else { return false };
        let Kind::Listener { backlog, .. } = &mut object.kind else { return false };
        let room = backlog.len() < max;
        if room {
            backlog.push_back(socket);
        }
        room
    }

    pub(super) fn take_error(&mut self, id: Id) -> Option<Errno> {
        let Ok((connection, end)) = self.stream(id) else { return Some(Errno::BADF) };
        self.network.connections.get_mut(connection)?.ends[end].error.take()
    }

    /// A program closes a socket or signal, or has ended.
    pub(super) fn close(&mut self, id: Id, how: Closing) {
        let Some(object) = self.remove_object(id) else { return };
        match object.kind {
            Kind::Signal { .. } => {}
            Kind::Listener { port, backlog } => {
                self.network.listeners.remove(&(object.node, port));
                let how = if how == Closing::Silent { how } else { Closing::Abrupt };
                for socket in backlog {
                    self.close(socket, how);
                }
            }
            Kind::Stream { connection, end } => match how {
                Closing::Silent => self.silence_end(connection, end),
                Closing::Orderly => self.close_end(connection, end, false),
                Closing::Abrupt => {
                    let abort = self.rng.bool();
                    self.close_end(connection, end, abort);
                }
            },
        }
    }

    /// Closes all that a process has.
    pub(crate) fn close_all(&mut self, process: usize, how: Closing) {
        for id in self.network.pollers.find(|poller| poller.process == process) {
            self.remove_poller(id);
        }
        for id in self.network.objects.find(|object| object.process == process) {
            self.close(id, how);
        }
    }
}
