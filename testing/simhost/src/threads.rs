//! Threads that take turns: who runs, who waits for what, and who is woken.

use crate::fiber::suspend;
use crate::options::{chance, nanos};
use crate::slab::Id;
use crate::world::processes::{Body, State, ThreadRecord};
use crate::world::{Event, Next, Shared, World};
use std::sync::MutexGuard;
use std::time::Duration;

/// What a simulated clock shows when a simulation begins: the first second of 2026.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);
/// Looking at the clock takes so long: a loop until a time comes to its end.
const CLOCK_NANOS: u64 = 10;

impl Shared {
    /// Ends this turn of the running thread, for it waits; false if its
    /// deadline came first.
    pub(crate) fn wait(
        &self,
        mut world: MutexGuard<'_, World>,
        deadline: Option<u64>,
        why: &'static str,
    ) -> bool {
        world.block(deadline, why);
        drop(world);
        suspend();
        !self.enter().timed_out()
    }

    /// Ends this turn of the running thread, which goes on soon.
    pub(crate) fn give_way(&self, mut world: MutexGuard<'_, World>) {
        let thread = world.running();
        world.schedule_run(thread);
        drop(world);
        suspend();
    }
}

impl World {
    /// Gives a thread the processor, unless its process is stopped.
    pub(crate) fn run(&mut self, id: Id) -> Next {
        let Some(thread) = self.threads.get_mut(id) else { return Next::Done };
        let process = &mut self.processes[thread.process];
        if process.stopped {
            process.held_back.push(id);
            return Next::Done;
        }
        thread.state = State::Running;
        let index = thread.process;
        self.trace.mix(self.now);
        self.trace.mix(id.number());
        self.trace.line(self.now, || {
            let node = &self.nodes[process.node].name;
            format!("{node}/{}#{index} {} runs", process.name, thread.name)
        });
        self.running = Some(id);
        Next::Run(id, index)
    }

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
