//! What can be waited for, what it is ready for, and pollers.

use crate::slab::Id;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{BitAnd, BitOr};
use weir_host::net::Interest;

/// What an object is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready(u8);

impl Ready {
    pub(crate) const NOTHING: Self = Self(0);
    pub(crate) const READABLE: Self = Self(1);
    pub(crate) const WRITABLE: Self = Self(2);
    /// The peer sends no more.
    pub(crate) const FINISHED: Self = Self(4);
    /// The same, which can be read, too.
    pub(crate) const HANGUP: Self = Self(4 | 1);
    /// Broken, or closed in both directions.
    pub(crate) const BROKEN: Self = Self(8);
    pub(crate) const ALL: Self = Self(15);

    /// What of it someone with this interest is told.
    pub(crate) fn wanted_by(interest: Interest) -> Self {
        let mut wanted = Self::BROKEN;
        if interest.readable {
            wanted = wanted | Self::READABLE;
        }
        if interest.writable {
            wanted = wanted | Self::WRITABLE;
        }
        if interest.edge {
            wanted = wanted | Self::FINISHED;
        }
        wanted
    }

    pub(crate) fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NOTHING }
    }

    pub(crate) fn has(self, other: Self) -> bool {
        self & other != Self::NOTHING
    }
}

impl BitAnd for Ready {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Ready {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

pub(crate) enum Kind {
    /// An end of a connection.
    Stream {
        connection: Id,
        end: usize,
    },
    /// The port, and sockets that were not accepted yet.
    Listener {
        port: u16,
        backlog: VecDeque<Id>,
    },
    Signal {
        raised: bool,
    },
}

/// A socket or signal.
pub(crate) struct Object {
    pub(crate) process: usize,
    pub(crate) node: usize,
    pub(crate) kind: Kind,
    /// Pollers that watch it.
    pub(crate) watchers: Vec<Id>,
    /// Threads that wait for it alone.
    pub(crate) waiters: Vec<Id>,
}

impl Object {
    pub(crate) fn new(process: usize, kind: Kind) -> Self {
        Self { process, node: 0, kind, watchers: Vec::new(), waiters: Vec::new() }
    }

    pub(crate) fn stream(process: usize, connection: Id, end: usize) -> Self {
        Self::new(process, Kind::Stream { connection, end })
    }

    pub(crate) fn listener(process: usize, node: usize, port: u16) -> Self {
        let kind = Kind::Listener { port, backlog: VecDeque::new() };
        Self { node, ..Self::new(process, kind) }
    }
}

pub(crate) struct Watch {
    pub(crate) token: u64,
    pub(crate) interest: Interest,
    /// It is in the list of what may be ready.
    pub(crate) listed: bool,
}

/// A poller.
pub(crate) struct PollerRecord {
    pub(crate) process: usize,
    pub(crate) watches: BTreeMap<Id, Watch>,
    /// What may be ready, in the order in which it became so.
    pub(crate) list: VecDeque<Id>,
    pub(crate) waiters: Vec<Id>,
}
