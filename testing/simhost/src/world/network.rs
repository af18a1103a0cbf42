//! The state of the network: names, links, listeners and connections.

use super::connection::Connection;
use super::object::{Object, PollerRecord};
use crate::options::{Options, Span};
use crate::slab::{Id, Slab};
use rustix::io::{Errno, Result};
use std::collections::BTreeMap;

/// Ports that listeners get who do not ask for one.
pub(crate) const FIRST_FREE_PORT: u16 = 20_000;

/// One way from a node to another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    /// Messages wait until it is healed.
    pub(crate) blocked: bool,
    /// Instead of that of the network.
    pub(crate) delay: Option<Span>,
    /// On top of that, nanoseconds.
    pub(crate) extra: u64,
}

/// Everything about the network.
pub(crate) struct NetworkState {
    pub(crate) delay: Span,
    pub(crate) loopback_delay: Span,
    pub(crate) split_ppm: u32,
    pub(crate) reset_ppm: u32,
    /// Those that differ from others, by the nodes that they lead from and to.
    pub(crate) links: BTreeMap<(usize, usize), Link>,
    pub(crate) names: BTreeMap<String, usize>,
    /// By node and port.
    pub(crate) listeners: BTreeMap<(usize, u16), Id>,
    pub(crate) next_port: u16,
    pub(crate) connections: Slab<Connection>,
    pub(crate) objects: Slab<Object>,
    pub(crate) pollers: Slab<PollerRecord>,
    pub(crate) sent_bytes: u64,
}

impl NetworkState {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            delay: Span::from(&options.delay),
            loopback_delay: Span::from(&options.loopback_delay),
            split_ppm: options.split_ppm,
            reset_ppm: options.reset_ppm,
            links: BTreeMap::new(),
            names: BTreeMap::new(),
            listeners: BTreeMap::new(),
            next_port: FIRST_FREE_PORT,
            connections: Slab::new(),
            objects: Slab::new(),
            pollers: Slab::new(),
            sent_bytes: 0,
        }
    }

    /// Gives a node its name.
    pub(crate) fn add_name(&mut self, name: &str, node: usize) {
        self.names.insert(name.to_owned(), node);
    }

    fn link(&self, from: usize, to: usize) -> Link {
        self.links.get(&(from, to)).copied().unwrap_or_default()
    }

    pub(crate) fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.links.get(&(from, to)).is_some_and(|link| link.blocked)
    }

    /// A time for one message.
    pub(crate) fn pick_delay(&self, from: usize, to: usize, rng: &mut fastrand::Rng) -> u64 {
        if from == to {
            return self.loopback_delay.pick(rng);
        }
        let link = self.link(from, to);
        link.delay.unwrap_or(self.delay).pick(rng).saturating_add(link.extra)
    }

    /// Node and port of an address, as `here` understands it.
    pub(crate) fn resolve(&self, here: usize, address: &str) -> Result<(usize, u16)> {
        let (host, port) = address.rsplit_once(':').ok_or(Errno::INVAL)?;
        let port = port.parse().map_err(|_| Errno::INVAL)?;
        let node = match host {
            "localhost" | "127.0.0.1" | "0.0.0.0" | "[::1]" | "[::]" | "" => here,
            name => *self.names.get(name).ok_or(Errno::HOSTUNREACH)?,
        };
        Ok((node, port))
    }
}
