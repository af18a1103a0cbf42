//! Nodes, processes and threads, as far as they are not stacks.

use crate::slab::Id;
use std::collections::VecDeque;
use std::time::Duration;

/// How a clock goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockSkew {
    /// Milliseconds that it is ahead (or behind) now.
    pub offset_ms: i64,
    /// Millionths that it goes too fast (or slow) from now on.
    pub drift_ppm: i64,
}

/// How fast time passes on a node: on the clock for intervals, and for whoever
/// waits there for so long.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Millionths that it is too fast (or slow).
    ppm: i64,
    /// Since when, in virtual time.
    since: u64,
    /// What its clock showed then more (or less) than virtual time.
    ahead: i128,
}

impl Pace {
    /// What the clock shows at this virtual time.
    pub(crate) fn shown(self, now: u64) -> u64 {
        let drift = i128::from(now.saturating_sub(self.since)) * i128::from(self.ppm) / 1_000_000;
        let shown = i128::from(now) + self.ahead + drift;
        u64::try_from(shown.max(0)).unwrap_or(u64::MAX)
    }

    /// How much virtual time passes while so much does here.
    pub(crate) fn virtual_time(self, time: u64) -> u64 {
        if self.ppm == 0 {
            return time;
        }
        let rate = (1_000_000 + i128::from(self.ppm)).max(1);
        u64::try_from(i128::from(time) * 1_000_000 / rate).unwrap_or(u64::MAX)
    }

    /// From now on it is too fast by this.
    pub(crate) fn changed(self, now: u64, ppm: i64) -> Self {
        Self { ppm, since: now, ahead: i128::from(self.shown(now)) - i128::from(now) }
    }
}

/// A machine of the simulation.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) skew: ClockSkew,
    /// When the skew was set.
    pub(crate) skewed_at: u64,
    pub(crate) pace: Pace,
    /// Powered on: answers to messages that nobody expects.
    pub(crate) up: bool,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Its main thread returned.
    Returned,
    /// Its main thread panicked.
    Panicked,
    /// It was killed, alone or with its node.
    Killed,
}

/// A panic in a simulated thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    /// Node, process and thread.
    pub thread: String,
    /// What it said.
    pub message: String,
    /// When, since the simulation began.
    pub time: Duration,
}

/// A process, also when it has ended.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) node: usize,
    pub(crate) main: Option<Id>,
    pub(crate) exit: Option<Exit>,
    pub(crate) stopped: bool,
    /// Threads that would have run while it was stopped.
    pub(crate) held_back: Vec<Id>,
    /// Threads that wait for a key, who waits longest first.
    pub(crate) parked: VecDeque<(usize, Id)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has the processor, or will soon.
    Running,
    /// It waits for this.
    Waiting(&'static str),
    /// It has ended.
    Ended,
}

/// What a spawned thread will do.
pub(crate) type Body = Box<dyn FnOnce() + Send>;

/// A thread, until it has ended and nobody can ask for it.
pub(crate) struct ThreadRecord {
    pub(crate) name: String,
    pub(crate) process: usize,
    pub(crate) state: State,
    /// Until it runs for the first time.
    pub(crate) body: Option<Body>,
    pub(crate) deadline: Option<u64>,
    /// The deadline event that counts: others of this thread are stale.
    pub(crate) deadline_event: Option<u64>,
    pub(crate) timed_out: bool,
    /// Nested promises that no one runs during its file operations.
    pub(crate) uninterrupted: u32,
    /// Time that those operations took, still to be waited for.
    pub(crate) debt: u64,
    pub(crate) panicked: bool,
    /// Someone may join it.
    pub(crate) has_handle: bool,
    pub(crate) joiners: Vec<Id>,
}
