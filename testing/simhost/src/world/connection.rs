//! A connection: two ends and the messages on their way to each.

use crate::slab::Id;
use rustix::io::Errno;
use std::collections::VecDeque;

/// What is on its way.
#[derive(Debug)]
pub(crate) enum Message {
    /// May I connect to this port?
    Connect(u16),
    /// You may.
    Accepted,
    Data(Vec<u8>),
    /// No more data will follow.
    Finish,
    /// There is no such connection, with what a program is told.
    Reset(Errno),
    /// The network drops the connection when this would arrive.
    Break,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Connecting,
    Open,
    /// Reset; nothing can be sent or received.
    Broken,
}

/// One end, and what is on its way to it.
pub(crate) struct End {
    /// The socket; `None` when it is closed.
    pub(crate) socket: Option<Id>,
    pub(crate) phase: Phase,
    /// What a program has not been told yet.
    pub(crate) error: Option<Errno>,
    /// The node lost its power and says nothing.
    pub(crate) silent: bool,
    /// Received and not yet taken by the program.
    pub(crate) received: VecDeque<Vec<u8>>,
    /// Bytes already taken of the first of these.
    pub(crate) taken: usize,
    pub(crate) unread: usize,
    /// The peer sends no more.
    pub(crate) finished: bool,
    /// This end has said that it sends no more.
    pub(crate) shut_down: bool,
    /// On their way to this end, with the times of their arrival.
    pub(crate) arriving: VecDeque<(u64, Message)>,
    /// An arrival is in the queue of events.
    pub(crate) scheduled: bool,
    /// When the last one arrives.
    pub(crate) last_arrival: u64,
    /// Bytes on their way to this end, and those unread.
    pub(crate) on_the_way: usize,
    /// The most of them.
    pub(crate) limit: usize,
}

impl End {
    pub(crate) fn new(socket: Option<Id>, limit: usize) -> Self {
        Self {
            socket,
            phase: Phase::Connecting,
            error: None,
            silent: false,
            received: VecDeque::new(),
            taken: 0,
            unread: 0,
            finished: false,
            shut_down: false,
            arriving: VecDeque::new(),
            scheduled: false,
            last_arrival: 0,
            on_the_way: 0,
            limit,
        }
    }

    /// Whether a program that sends to this end is told of room.
    pub(crate) fn has_room(&self) -> bool {
        self.limit - self.on_the_way > self.limit / 3
    }

    pub(crate) fn discard_received(&mut self) {
        self.on_the_way -= self.unread;
        self.received.clear();
        (self.taken, self.unread) = (0, 0);
    }

    /// Moves received bytes into `into`; returns how many.
    pub(crate) fn take_received(&mut self, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let Some(first) = self.received.front() else { break };
            let left = &first[self.taken..];
            let count = left.len().min(into.len() - done);
            into[done..done + count].copy_from_slice(&left[..count]);
            done += count;
            self.taken += count;
            if self.taken == first.len() {
                self.received.pop_front();
                self.taken = 0;
            }
        }
        self.unread -= done;
        self.on_the_way -= done;
        done
    }
}

/// A connection; its end 0 is the one that began it.
pub(crate) struct Connection {
    pub(crate) nodes: [usize; 2],
    pub(crate) ends: [End; 2],
    /// Everything on it is lost.
    pub(crate) black_hole: bool,
}
