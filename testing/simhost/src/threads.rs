//! Nodes, processes and threads: who waits for what, and who is woken.

use crate::options::{chance, nanos};
use crate::slab::Id;
use crate::world::{Event, Next, World};
use std::collections::VecDeque;
use std::time::Duration;

/// What a simulated clock shows when a simulation begins: the first second of 2026.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);
/// Looking at the clock takes so long: a loop until a time comes to its end.
const CLOCK_NANOS: u64 = 10;

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
    fn shown(self, now: u64) -> u64 {
        let drift = i128::from(now.saturating_sub(self.since)) * i128::from(self.ppm) / 1_000_000;
        let shown = i128::from(now) + self.ahead + drift;
        u64::try_from(shown.max(0)).unwrap_or(u64::MAX)
    }

    /// How much virtual time passes while so much does here.
    fn virtual_time(self, time: u64) -> u64 {
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
    deadline: Option<u64>,
    /// The deadline event that counts: others of this thread are stale.
    deadline_event: Option<u64>,
    timed_out: bool,
    /// Nested promises that no one runs during its file operations.
    pub(crate) uninterrupted: u32,
    /// Time that those operations took, still to be waited for.
    pub(crate) debt: u64,
    pub(crate) panicked: bool,
    /// Someone may join it.
    pub(crate) has_handle: bool,
    pub(crate) joiners: Vec<Id>,
}

impl World {
    /// Makes a thread and gives it the processor in a moment. `body` is `None`
    /// if the driver has it.
    pub(crate) fn add_thread(&mut self, process: usize, name: &str, body: Option<Body>) -> Id {
        let has_handle = body.is_some();
        let id = self.threads.insert(ThreadRecord {
            name: name.to_owned(),
            process,
            state: State::Running,
            body,
            deadline: None,
            deadline_event: None,
            timed_out: false,
            uninterrupted: 0,
            debt: 0,
            panicked: false,
            has_handle,
            joiners: Vec::new(),
        });
        self.schedule_run(id);
        id
    }

    /// The thread that has the processor.
    pub(crate) fn running(&self) -> Id {
        match self.running {
            Some(thread) => thread,
            None => panic!("only a simulated thread can wait for something"),
        }
    }

    fn running_record(&mut self) -> &mut ThreadRecord {
        let id = self.running();
        match self.threads.get_mut(id) {
            Some(record) => record,
            None => unreachable!("the thread that runs has a record"),
        }
    }

    /// The running thread is about to wait.
    pub(crate) fn block(&mut self, deadline: Option<u64>, why: &'static str) {
        let id = self.running();
        let thread = self.running_record();
        thread.state = State::Waiting(why);
        thread.timed_out = false;
        thread.deadline = deadline.filter(|&d| d < u64::MAX);
        let Some(deadline) = thread.deadline else { return };
        // An earlier event will find the later deadline and go on to it, so a
        // thread has few events in the queue, however often it waits.
        if thread.deadline_event.is_none_or(|event| event > deadline) {
            thread.deadline_event = Some(deadline);
            self.schedule(deadline, Event::Deadline(id));
        }
    }

    pub(crate) fn reach_deadline(&mut self, id: Id, time: u64) -> Next {
        let Some(thread) = self.threads.get_mut(id) else { return Next::Done };
        if thread.deadline_event != Some(time) {
            return Next::Done;
        }
        thread.deadline_event = None;
        let (State::Waiting(_), Some(deadline)) = (thread.state, thread.deadline) else {
            return Next::Done;
        };
        if deadline > time {
            thread.deadline_event = Some(deadline);
            self.schedule(deadline, Event::Deadline(id));
            return Next::Done;
        }
        thread.timed_out = true;
        thread.state = State::Running;
        // Its deadline is when it has the processor, but for those that stall.
        if chance(&mut self.rng, self.options.stall_ppm) {
            self.schedule_run(id);
            return Next::Done;
        }
        self.run(id)
    }

    /// Whether the running thread was woken by its deadline.
    pub(crate) fn timed_out(&mut self) -> bool {
        self.running_record().timed_out
    }

    /// Wakes a thread; false if it does not wait.
    pub(crate) fn wake(&mut self, id: Id) -> bool {
        let Some(thread) = self.threads.get_mut(id) else { return false };
        if !matches!(thread.state, State::Waiting(_)) {
            return false;
        }
        thread.state = State::Running;
        self.schedule_run(id);
        true
    }

    /// Wakes all of them.
    pub(crate) fn wake_all(&mut self, threads: &mut Vec<Id>) {
        for id in threads.drain(..) {
            self.wake(id);
        }
    }

    pub(crate) fn unpark(&mut self, process: usize, key: usize, all: bool) {
        let mut at = 0;
        while let Some(&(parked_key, thread)) = self.processes[process].parked.get(at) {
            if parked_key != key {
                at += 1;
                continue;
            }
            self.processes[process].parked.remove(at);
            // Whose time was over first takes no wake-up from the others.
            if self.wake(thread) && !all {
                return;
            }
        }
    }

    /// The running thread's counter of promises and its debt.
    pub(crate) fn set_uninterrupted(&mut self, on: bool) -> u64 {
        let thread = self.running_record();
        if on {
            thread.uninterrupted += 1;
            return 0;
        }
        thread.uninterrupted = thread.uninterrupted.saturating_sub(1);
        if thread.uninterrupted > 0 { 0 } else { std::mem::take(&mut thread.debt) }
    }

    /// Whether the running thread may not wait now: then it owes the time.
    pub(crate) fn owes(&mut self, time: u64) -> bool {
        let thread = self.running_record();
        let owes = thread.uninterrupted > 0;
        if owes {
            thread.debt = thread.debt.saturating_add(time);
        }
        owes
    }

    /// Whether the running thread may be interrupted anywhere.
    pub(crate) fn is_interruptible(&mut self) -> bool {
        self.running.is_some() && self.running_record().uninterrupted == 0
    }

    /// Virtual time, for a program that looks at its clock.
    pub(crate) fn look_at_clock(&mut self) -> u64 {
        self.now += CLOCK_NANOS;
        self.now
    }

    /// What the clock of a node shows.
    pub(crate) fn unix_now(&self, node: usize) -> Duration {
        let Some(node) = self.nodes.get(node) else { return EPOCH };
        let since = i128::from(self.now.saturating_sub(node.skewed_at));
        let drift = since * i128::from(node.skew.drift_ppm) / 1_000_000;
        let shown = EPOCH.as_nanos() as i128
            + i128::from(self.now)
            + i128::from(node.skew.offset_ms) * 1_000_000
            + drift;
        Duration::from_nanos(u64::try_from(shown.max(0)).unwrap_or(u64::MAX))
    }

    /// What the clock for intervals of a node shows.
    pub(crate) fn shown_by(&mut self, node: usize) -> u64 {
        let now = self.look_at_clock();
        self.nodes.get(node).map_or(now, |node| node.pace.shown(now))
    }

    /// A deadline so far from now on the clock of the running thread's node.
    pub(crate) fn deadline_here(&self, time: Duration) -> u64 {
        let running = self.running.and_then(|id| self.threads.get(id));
        let pace = running.map(|thread| self.nodes[self.processes[thread.process].node].pace);
        self.now.saturating_add(pace.unwrap_or_default().virtual_time(nanos(time)))
    }

    /// A deadline so far from now.
    pub(crate) fn deadline(&self, time: Duration) -> u64 {
        self.now.saturating_add(nanos(time))
    }

    /// A thread has ended by itself.
    pub(crate) fn end_thread(&mut self, id: Id) {
        let Some(thread) = self.threads.get_mut(id) else { return };
        thread.state = State::Ended;
        let mut joiners = std::mem::take(&mut thread.joiners);
        if !thread.has_handle {
            self.threads.remove(id);
        }
        self.wake_all(&mut joiners);
    }

    /// Forgets a thread and, without dropping it, what it would have done.
    pub(crate) fn forget_thread(&mut self, id: Id) {
        if let Some(thread) = self.threads.remove(id) {
            std::mem::forget(thread.body);
        }
    }

    /// Node, process and thread, for people.
    pub(crate) fn thread_name(&self, id: Id) -> String {
        let Some(thread) = self.threads.get(id) else { return "a thread that is gone".into() };
        let process = &self.processes[thread.process];
        format!("{}/{}/{}", self.nodes[process.node].name, process.name, thread.name)
    }
}
