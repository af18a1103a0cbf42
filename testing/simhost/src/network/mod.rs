//! The simulated network: names, links and what can go wrong on them.
//!
//! A connection is two ordered streams of messages. Each message takes a time
//! of its own from the range of its link, but never overtakes another of its
//! connection; those of different connections overtake each other freely.

mod connection;
pub(crate) mod handles;
mod poller;
pub(crate) mod socket;

use crate::options::{Span, nanos};
use crate::slab::Id;
use crate::world::network::FIRST_FREE_PORT;
use crate::world::object::Object;
use crate::world::{Shared, World};
use rustix::io::{Errno, Result};
use std::ops::Range;
use std::time::Duration;

impl World {
    /// Listens on `host:port` of `node`; port 0 is any.
    pub(crate) fn listen(&mut self, process: usize, node: usize, address: &str) -> Result<Id> {
        let (host, mut port) = self.network.resolve(node, address)?;
        if host != node {
            return Err(Errno::ADDRNOTAVAIL);
        }
        if port == 0 {
            port = self.free_port(node)?;
        }
        if self.network.listeners.contains_key(&(node, port)) {
            return Err(Errno::ADDRINUSE);
        }
        let id = self.network.objects.insert(Object::listener(process, node, port));
        self.network.listeners.insert((node, port), id);
        Ok(id)
    }

    fn free_port(&mut self, node: usize) -> Result<u16> {
        for _ in FIRST_FREE_PORT..u16::MAX {
            let port = self.network.next_port;
            self.network.next_port = port.checked_add(1).unwrap_or(FIRST_FREE_PORT);
            if !self.network.listeners.contains_key(&(node, port)) {
                return Ok(port);
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// Where a listener listens.
    pub(crate) fn local_address(&self, id: Id) -> String {
        let found = self.network.listeners.iter().find(|(_, listener)| **listener == id);
        let Some((&(node, port), _)) = found else { return String::new() };
        format!("{}:{port}", self.nodes[node].name)
    }

    /// Lets held messages go on.
    fn heal(&mut self, from: usize, to: usize) {
        for id in self.network.connections.find(|_| true) {
            let Some(connection) = self.network.connections.get(id) else { continue };
            let nodes = connection.nodes;
            if let Some(end) = (0..2).find(|&end| nodes[1 - end] == from && nodes[end] == to) {
                self.release_held(id, end);
            }
        }
    }

    fn connections_between(&self, a: usize, b: usize) -> Vec<Id> {
        self.network.connections.find(|c| c.nodes == [a, b] || c.nodes == [b, a])
    }
}

/// What a driver can do to the network. Nodes are given by their numbers in
/// [`crate::NodeId`].
pub struct Network<'a> {
    pub(crate) world: &'a Shared,
}

impl Network<'_> {
    /// How long messages between nodes take from now on.
    pub fn set_delay(&self, delay: Range<Duration>) {
        self.world.enter().network.delay = Span::from(&delay);
    }

    /// How long messages from one node to another take, whatever others take;
    /// `None`: as the others again.
    pub fn set_link_delay(&self, from: NodeId, to: NodeId, delay: Option<Range<Duration>>) {
        let mut world = self.world.enter();
        world.network.links.entry((from.0, to.0)).or_default().delay =
            delay.as_ref().map(Span::from);
    }

    /// How much longer than otherwise messages from one node to another take.
    pub fn set_extra_delay(&self, from: NodeId, to: NodeId, extra: Duration) {
        let mut world = self.world.enter();
        world.network.links.entry((from.0, to.0)).or_default().extra = nanos(extra);
    }

    /// Of how many million messages one breaks its connection.
    pub fn set_reset_rate(&self, ppm: u32) {
        self.world.enter().network.reset_ppm = ppm;
    }

    /// Holds all messages between two nodes, or lets them go on.
    pub fn partition(&self, a: NodeId, b: NodeId, on: bool) {
        self.partition_one_way(a, b, on);
        self.partition_one_way(b, a, on);
    }

    /// Holds all messages from one node to another, or lets them go on.
    pub fn partition_one_way(&self, from: NodeId, to: NodeId, on: bool) {
        let mut world = self.world.enter();
        world.network.links.entry((from.0, to.0)).or_default().blocked = on;
        world.note_fault(if on { "partition" } else { "heal" }, from.0, to.0);
        if !on {
            world.heal(from.0, to.0);
        }
    }

    /// Holds all messages from and to a node, or lets them go on.
    pub fn isolate(&self, node: NodeId, on: bool) {
        let nodes = self.world.enter().nodes.len();
        for other in (0..nodes).filter(|&other| other != node.0) {
            self.partition(node, NodeId(other), on);
        }
    }

    /// Ends every partition.
    pub fn heal_all(&self) {
        let mut world = self.world.enter();
        let links: Vec<_> = world.network.links.keys().copied().collect();
        for (from, to) in links {
            if let Some(link) = world.network.links.get_mut(&(from, to)) {
                link.blocked = false;
            }
            world.heal(from, to);
        }
        world.note_fault("heal all", 0, 0);
    }

    /// Breaks every connection between two nodes: both ends see a reset.
    /// Returns how many there were.
    pub fn break_connections(&self, a: NodeId, b: NodeId) -> usize {
        let mut world = self.world.enter();
        let broken = world.connections_between(a.0, b.0);
        for id in &broken {
            world.break_connection(*id);
        }
        world.note_fault("break", a.0, b.0);
        broken.len()
    }

    /// Breaks every connection between two nodes at the end of the first: it
    /// sees a reset, while what it had sent still arrives. Returns how many
    /// there were.
    pub fn give_up_connections(&self, at: NodeId, peer: NodeId) -> usize {
        let mut world = self.world.enter();
        let given_up = world.connections_between(at.0, peer.0);
        for id in &given_up {
            let Some(connection) = world.network.connections.get(*id) else { continue };
            let end = usize::from(connection.nodes[0] != at.0);
            world.give_up(*id, end);
        }
        world.note_fault("give up", at.0, peer.0);
        given_up.len()
    }

    /// Makes every connection that now stands between two nodes swallow what
    /// is sent on it, for ever and without a word; new ones work. Returns how
    /// many there were.
    pub fn black_hole(&self, a: NodeId, b: NodeId) -> usize {
        let mut world = self.world.enter();
        let lost = world.connections_between(a.0, b.0);
        for id in &lost {
            world.black_hole(*id);
        }
        world.note_fault("black hole", a.0, b.0);
        lost.len()
    }

    /// Connections that at least one end has open.
    pub fn connections(&self) -> usize {
        self.world.enter().network.connections.iter().count()
    }

    /// Bytes that programs have sent.
    pub fn sent_bytes(&self) -> u64 {
        self.world.enter().network.sent_bytes
    }
}

/// A machine of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) usize);
