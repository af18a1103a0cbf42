//! Messages of connections: how they are sent, held, delivered and lost.
//!
//! Invariants
//! - Messages to an end arrive in the order in which they were sent.
//! - At most one arrival for each end is in the queue of events.
//! - A connection is forgotten when no end has a socket.

use crate::options::chance;
use crate::slab::Id;
use crate::world::connection::{Connection, End, Message, Phase};
use crate::world::object::{Object, Ready};
use crate::world::{Event, World};
use rustix::io::{Errno, Result};

/// Larger pieces are sent as several messages.
const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// Into so many pieces a split message falls at most.
const MAX_PIECES: u32 = 4;
/// Connections that a listener holds for its program.
const MAX_BACKLOG: usize = 1024;
/// A node without power is asked again after so long.
const CONNECT_RETRY_NANOS: u64 = 1_000_000_000;

impl World {
    /// Begins to connect from a node.
    pub(crate) fn connect(&mut self, process: usize, node: usize, address: &str) -> Result<Id> {
        let (to, port) = self.network.resolve(node, address)?;
        let limits = self.options.send_buffer_bytes.clone();
        let mut limit = || {
            let max = limits.end.max(limits.start + 1);
            self.rng.usize(limits.start..max).max(1)
        };
        let ends = [End::new(None, limit()), End::new(None, limit())];
        let connection = Connection { nodes: [node, to], ends, black_hole: false };
        let id = self.network.connections.insert(connection);
        let socket = self.network.objects.insert(Object::stream(process, id, 0));
        self.end_mut(id, 0).socket = Some(socket);
        self.post(id, 1, Message::Connect(port));
        Ok(socket)
    }

    fn end_mut(&mut self, id: Id, end: usize) -> &mut End {
        match self.network.connections.get_mut(id) {
            Some(connection) => &mut connection.ends[end],
            None => unreachable!("the connection is there as long as an end is"),
        }
    }

    /// Puts a message on its way to an end.
    fn post(&mut self, id: Id, to: usize, message: Message) {
        let Some(connection) = self.network.connections.get_mut(id) else { return };
        if connection.black_hole {
            return;
        }
        let [from_node, to_node] = [connection.nodes[1 - to], connection.nodes[to]];
        let delay = self.network.pick_delay(from_node, to_node, &mut self.rng);
        let end = self.end_mut(id, to);
        let idle = end.arriving.is_empty() && !end.scheduled;
        let last = end.last_arrival;
        let time = last.max(self.now.saturating_add(delay));
        let end = self.end_mut(id, to);
        end.last_arrival = time;
        end.arriving.push_back((time, message));
        if idle {
            end.scheduled = true;
            self.schedule(time, Event::Arrival(id, to));
        }
    }

    /// Sends as much as there is room for; returns the bytes.
    pub(super) fn send_data(
        &mut self,
        id: Id,
        to: usize,
        slices: &[std::io::IoSlice<'_>],
    ) -> usize {
        let end = self.end_mut(id, to);
        let total: usize = slices.iter().map(|s| s.len()).sum();
        let count = total.min(end.limit - end.on_the_way);
        if count == 0 {
            return 0;
        }
        end.on_the_way += count;
        self.network.sent_bytes += count as u64;
        self.trace.mix(id.number() << 1 | to as u64);
        let mut bytes = Vec::with_capacity(count);
        for slice in slices {
            let wanted = slice.len().min(count - bytes.len());
            bytes.extend_from_slice(&slice[..wanted]);
        }
        self.trace.mix_bytes(&bytes);
        self.trace.line(self.now, || format!("network: {count} bytes on {}", id.number()));
        if chance(&mut self.rng, self.network.reset_ppm) {
            self.post(id, to, Message::Break);
        }
        for piece in self.pieces(bytes) {
            self.post(id, to, Message::Data(piece));
        }
        count
    }

    /// Cuts what is sent at once into messages.
    fn pieces(&mut self, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let split = bytes.len() > 1 && chance(&mut self.rng, self.network.split_ppm);
        if !split && bytes.len() <= MAX_MESSAGE_BYTES {
            return vec![bytes];
        }
        let mut cuts: Vec<usize> =
            (1..).map(|i| i * MAX_MESSAGE_BYTES).take_while(|&c| c < bytes.len()).collect();
        if split {
            let count = self.rng.u32(1..MAX_PIECES);
            cuts.extend((0..count).map(|_| self.rng.usize(1..bytes.len())));
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts.push(bytes.len());
        let mut start = 0;
        let piece = |end| bytes[std::mem::replace(&mut start, end)..end].to_vec();
        cuts.into_iter().map(piece).collect()
    }

    /// A message may have arrived at an end.
    pub(crate) fn arrive(&mut self, id: Id, to: usize) {
        let Some(connection) = self.network.connections.get_mut(id) else { return };
        connection.ends[to].scheduled = false;
        let nodes = connection.nodes;
        if self.network.is_blocked(nodes[1 - to], nodes[to]) {
            // `heal` will schedule the next arrival.
            return;
        }
        self.trace.mix(self.now);
        self.trace.mix(id.number() << 1 | to as u64);
        loop {
            let Some(connection) = self.network.connections.get_mut(id) else { return };
            let end = &mut connection.ends[to];
            match end.arriving.front() {
                None => return,
                Some(&(time, _)) if time > self.now => {
                    end.scheduled = true;
                    self.schedule(time, Event::Arrival(id, to));
                    return;
                }
                Some(_) => {}
            }
            if let Some((_, message)) = end.arriving.pop_front() {
                self.deliver(id, to, message);
            }
        }
    }

    /// Messages that were held go on, after the time that one takes.
    pub(super) fn release_held(&mut self, id: Id, to: usize) {
        let Some(connection) = self.network.connections.get(id) else { return };
        let end = &connection.ends[to];
        if end.scheduled || end.arriving.is_empty() {
            return;
        }
        let nodes = connection.nodes;
        let delay = self.network.pick_delay(nodes[1 - to], nodes[to], &mut self.rng);
        let time = self.now.saturating_add(delay);
        let end = self.end_mut(id, to);
        end.scheduled = true;
        end.last_arrival = end.last_arrival.max(time);
        self.schedule(time, Event::Arrival(id, to));
    }

    fn deliver(&mut self, id: Id, to: usize, message: Message) {
        match message {
            Message::Connect(port) => self.deliver_connect(id, port),
            Message::Reset(error) => self.reset_end(id, to, error),
            Message::Break => self.break_connection(id),
            Message::Accepted | Message::Data(_) | Message::Finish => {
                let end = self.end_mut(id, to);
                match end.socket {
                    Some(socket) if end.phase != Phase::Broken => {
                        let mask = Self::take_in(end, message);
                        self.notify(socket, mask);
                    }
                    _ => self.answer_unexpected(id, to, &message),
                }
            }
        }
    }

    /// Changes the state of an end; returns what its program is told.
    fn take_in(end: &mut End, message: Message) -> Ready {
        match message {
            Message::Accepted => {
                end.phase = Phase::Open;
                Ready::WRITABLE
            }
            Message::Data(bytes) => {
                end.unread += bytes.len();
                end.received.push_back(bytes);
                Ready::READABLE
            }
            _ => {
                end.finished = true;
                Ready::HANGUP
            }
        }
    }

    /// Something arrived where nobody is: a node that is up says so.
    fn answer_unexpected(&mut self, id: Id, to: usize, message: &Message) {
        let Some(connection) = self.network.connections.get_mut(id) else { return };
        let end = &mut connection.ends[to];
        end.arriving.clear();
        // The end of a stream is no surprise to one who closed after his own.
        let told = matches!(message, Message::Data(_)) || end.silent;
        if told && self.nodes[connection.nodes[to]].up {
            self.post(id, 1 - to, Message::Reset(Errno::CONNRESET));
        }
    }

    fn deliver_connect(&mut self, id: Id, port: u16) {
        let Some(connection) = self.network.connections.get_mut(id) else { return };
        let node = connection.nodes[1];
        if !self.nodes[node].up {
            // The kernel of the other side tries again and again.
            let end = &mut connection.ends[1];
            end.arriving.push_front((self.now, Message::Connect(port)));
            let time = self.now + CONNECT_RETRY_NANOS;
            for (arrival, _) in &mut end.arriving {
                *arrival = time.max(*arrival);
            }
            end.last_arrival = end.last_arrival.max(time);
            return;
        }
        let listener = self.network.listeners.get(&(node, port)).copied();
        let owner = listener.and_then(|l| self.network.objects.get(l)).map(|l| l.process);
        let (Some(listener), Some(owner)) = (listener, owner) else {
            self.post(id, 0, Message::Reset(Errno::CONNREFUSED));
            return;
        };
        let socket = self.network.objects.insert(Object::stream(owner, id, 1));
        if !self.push_backlog(listener, socket, MAX_BACKLOG) {
            self.network.objects.remove(socket);
            self.post(id, 0, Message::Reset(Errno::CONNREFUSED));
            return;
        }
        let end = self.end_mut(id, 1);
        end.socket = Some(socket);
        end.phase = Phase::Open;
        self.post(id, 0, Message::Accepted);
        self.notify(listener, Ready::READABLE);
    }

    /// An end learns that its connection is no more.
    fn reset_end(&mut self, id: Id, to: usize, error: Errno) {
        let Some(connection) = self.network.connections.get_mut(id) else { return };
        // What it had sent finds nobody.
        connection.ends[1 - to].arriving.clear();
        let end = &mut connection.ends[to];
        end.arriving.clear();
        end.discard_received();
        if end.phase != Phase::Broken {
            end.phase = Phase::Broken;
            end.error = Some(error);
        }
        match end.socket {
            Some(socket) => self.notify(socket, Ready::ALL),
            None => self.forget_if_closed(id),
        }
    }

    /// Both ends see a reset at once.
    pub(super) fn break_connection(&mut self, id: Id) {
        self.reset_end(id, 0, Errno::CONNRESET);
        self.reset_end(id, 1, Errno::CONNRESET);
    }

    /// One end loses patience and sees a reset; the other hears nothing. What
    /// is on its way to that still arrives.
    pub(super) fn give_up(&mut self, id: Id, end: usize) {
        let this = self.end_mut(id, end);
        if this.phase != Phase::Open {
            return;
        }
        this.phase = Phase::Broken;
        this.error = Some(Errno::CONNRESET);
        this.arriving.clear();
        this.discard_received();
        if let Some(socket) = this.socket {
            self.notify(socket, Ready::ALL);
        }
    }

    pub(super) fn black_hole(&mut self, id: Id) {
        let Some(connection) = self.network.connections.get_mut(id) else { return };
        connection.black_hole = true;
        for end in &mut connection.ends {
            end.arriving.clear();
        }
    }

    /// The program of an end takes received bytes; returns how many.
    pub(super) fn take_data(
        &mut self,
        id: Id,
        to: usize,
        into: &mut [std::io::IoSliceMut<'_>],
    ) -> usize {
        let Some(connection) = self.network.connections.get_mut(id) else { return 0 };
        let end = &mut connection.ends[to];
        let had_room = end.has_room();
        let mut taken = 0;
        for piece in into {
            taken += end.take_received(piece);
        }
        if !had_room
            && end.has_room()
            && let Some(sender) = connection.ends[1 - to].socket
        {
            self.notify(sender, Ready::WRITABLE);
        }
        taken
    }

    /// The program of an end sends no more.
    pub(super) fn finish(&mut self, id: Id, end: usize) {
        if !std::mem::replace(&mut self.end_mut(id, end).shut_down, true) {
            self.post(id, 1 - end, Message::Finish);
        }
    }

    /// An end has no socket any more. `abort`: what it has sent may be lost.
    pub(super) fn close_end(&mut self, id: Id, end: usize, abort: bool) {
        let Some(connection) = self.network.connections.get_mut(id) else { return };
        let this = &mut connection.ends[end];
        this.socket = None;
        let lost = this.unread > 0 || this.phase == Phase::Connecting;
        let broken = this.phase == Phase::Broken;
        this.discard_received();
        if !broken {
            // A kernel that throws received bytes away tells the sender.
            if abort || lost {
                self.post(id, 1 - end, Message::Reset(Errno::CONNRESET));
            } else {
                self.finish(id, end);
            }
        }
        self.forget_if_closed(id);
    }

    /// An end has no socket any more, and no one is told.
    pub(super) fn silence_end(&mut self, id: Id, end: usize) {
        let Some(connection) = self.network.connections.get_mut(id) else { return };
        let this = &mut connection.ends[end];
        this.socket = None;
        this.silent = true;
        this.discard_received();
        self.forget_if_closed(id);
    }

    fn forget_if_closed(&mut self, id: Id) {
        let Some(connection) = self.network.connections.get(id) else { return };
        if connection.ends.iter().all(|end| end.socket.is_none()) {
            self.network.connections.remove(id);
        }
    }

    /// A node has power again: what its peers send again it answers.
    pub(crate) fn node_came_up(&mut self, node: usize) {
        for id in self.network.connections.find(|c| c.nodes.contains(&node)) {
            for to in 0..2 {
                let Some(connection) = self.network.connections.get(id) else { break };
                let end = &connection.ends[to];
                if connection.nodes[to] != node || !end.silent || end.socket.is_some() {
                    continue;
                }
                if end.on_the_way > 0 {
                    self.post(id, 1 - to, Message::Reset(Errno::CONNRESET));
                }
            }
        }
    }
}
