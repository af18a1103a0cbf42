//! The driver of a simulation: it starts and ends processes and lets time pass.

use crate::disk::SimDisk;
use crate::fiber::Fiber;
use crate::machine::SimMachine;
use crate::network::socket::Closing;
use crate::network::{Network, NodeId};
use crate::options::{Options, nanos};
use crate::slab::Id;
use crate::world::processes::{ClockSkew, Exit, Node, Pace, Panic, Process, State};
use crate::world::{Next, Shared, World};
use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;
use weir_host::simulated;

/// A process, unique in its simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub(crate) usize);

/// What a thread does, once the driver has it.
type Body = Box<dyn FnOnce()>;

/// A machine room: nodes with disks, processes on them, and a network between.
///
/// It runs in the thread that calls it, only while one of its methods runs.
/// Between two calls every process stands still, so the driver can look at
/// anything and change anything.
pub struct Simulation {
    world: Shared,
    seed: u64,
    stack_bytes: usize,
    rng: fastrand::Rng,
    disks: Vec<SimDisk>,
    /// Of each process; `None` when it has ended.
    machines: Vec<Option<Rc<SimMachine>>>,
    /// Of the threads that have run, by their slots.
    fibers: Vec<Option<Fiber>>,
    /// What main threads do that have not run.
    mains: BTreeMap<Id, Body>,
    panics: Rc<RefCell<Vec<Panic>>>,
}

impl Simulation {
    /// An empty machine room. Equal seeds, options and calls make equal
    /// histories.
    pub fn new(seed: u64, options: Options) -> Self {
        let stack_bytes = options.stack_bytes;
        Self {
            world: Shared::new(World::new(seed, options)),
            seed,
            stack_bytes,
            rng: fastrand::Rng::with_seed(seed ^ 0x6472_6976_6572),
            disks: Vec::new(),
            machines: Vec::new(),
            fibers: Vec::new(),
            mains: BTreeMap::new(),
            panics: Rc::default(),
        }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Chance for the driver: it has its own, so that it does not disturb others.
    pub fn rng(&mut self) -> &mut fastrand::Rng {
        &mut self.rng
    }

    /// Adds a node, which is powered on. Others reach it by its name.
    pub fn node(&mut self, name: &str, disk: SimDisk) -> NodeId {
        let mut world = self.world.enter();
        let id = world.nodes.len();
        let skewed_at = world.now;
        let skew = ClockSkew::default();
        let pace = Pace::default();
        world.nodes.push(Node { name: name.to_owned(), skew, skewed_at, pace, up: true });
        world.network.add_name(name, id);
        self.disks.push(disk);
        NodeId(id)
    }

    /// The disk of a node.
    pub fn disk(&self, node: NodeId) -> &SimDisk {
        &self.disks[node.0]
    }

    /// How the clock of a node goes wrong from now on.
    pub fn set_clock(&self, node: NodeId, skew: ClockSkew) {
        let mut world = self.world.enter();
        let now = world.now;
        let node = &mut world.nodes[node.0];
        (node.skew, node.skewed_at) = (skew, now);
    }

    /// How many millionths too fast (or slow) time passes on a node from now on:
    /// on the clock for intervals, and for whoever begins to wait there for so
    /// long. Disks and network are as before.
    pub fn set_pace(&self, node: NodeId, ppm: i64) {
        let mut world = self.world.enter();
        let now = world.now;
        let node = &mut world.nodes[node.0];
        node.pace = node.pace.changed(now, ppm);
    }

    /// Starts a process whose main thread runs `main`; when that returns, the
    /// process ends with all its threads. A node without power is switched on.
    pub fn start(&mut self, node: NodeId, name: &str, main: impl FnOnce() + 'static) -> ProcessId {
        let mut world = self.world.enter();
        if !std::mem::replace(&mut world.nodes[node.0].up, true) {
            world.node_came_up(node.0);
        }
        let process = world.processes.len();
        world.processes.push(Process {
            name: name.to_owned(),
            node: node.0,
            main: None,
            exit: None,
            stopped: false,
            held_back: Vec::new(),
            parked: VecDeque::new(),
        });
        let thread = world.add_thread(process, "main", None);
        world.processes[process].main = Some(thread);
        world.note_fault("start", process, node.0);
        let host_name = world.nodes[node.0].name.clone();
        drop(world);
        self.mains.insert(thread, Box::new(main));
        self.machines.push(Some(Rc::new(SimMachine {
            world: self.world.clone(),
            process,
            node: node.0,
            host_name,
            root: self.disks[node.0].root(),
        })));
        ProcessId(process)
    }

    /// Ends a process as `kill -9` does: none of its threads runs again, and
    /// nothing on their stacks is dropped. Its peers see the end of the stream
    /// or a reset; its locks on files are free. The memory it had allocated is
    /// not given back, so a long series of simulations needs several processes
    /// of the operating system.
    pub fn kill(&mut self, process: ProcessId) {
        self.world.enter().note_fault("kill", process.0, 0);
        self.end(process.0, Exit::Killed, Closing::Abrupt);
    }

    /// Takes the power from a node: its processes are killed, its peers hear
    /// nothing, and its disk becomes what a power cut leaves of it. The node
    /// has power again when a process is started on it.
    pub fn power_cut(&mut self, node: NodeId) {
        self.world.enter().note_fault("power cut", node.0, 0);
        for process in self.running_on(node) {
            self.end(process.0, Exit::Killed, Closing::Silent);
        }
        self.world.enter().nodes[node.0].up = false;
        self.disks[node.0].power_cut(&mut self.rng);
    }

    /// The processes of a node that have not ended.
    pub fn running_on(&self, node: NodeId) -> Vec<ProcessId> {
        let world = self.world.enter();
        let on_node = |(_, p): &(usize, &Process)| p.node == node.0 && p.exit.is_none();
        world.processes.iter().enumerate().filter(on_node).map(|(i, _)| ProcessId(i)).collect()
    }

    /// Stops a process: its threads do not run until [`Simulation::cont`].
    pub fn stop(&mut self, process: ProcessId) {
        let mut world = self.world.enter();
        world.processes[process.0].stopped = true;
        world.note_fault("stop", process.0, 0);
    }

    /// Lets a stopped process go on.
    pub fn cont(&mut self, process: ProcessId) {
        let mut world = self.world.enter();
        world.processes[process.0].stopped = false;
        world.note_fault("cont", process.0, 0);
        for thread in std::mem::take(&mut world.processes[process.0].held_back) {
            world.schedule_run(thread);
        }
    }

    /// Whether a process has not ended.
    pub fn is_running(&self, process: ProcessId) -> bool {
        self.exit(process).is_none()
    }

    /// How a process ended, if it did.
    pub fn exit(&self, process: ProcessId) -> Option<Exit> {
        self.world.enter().processes[process.0].exit
    }

    /// The panics of all threads so far. One ends its thread alone, as in any
    /// program; a main thread takes its process along.
    pub fn panics(&self) -> Vec<Panic> {
        self.panics.borrow().clone()
    }

    /// Virtual time since the beginning.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.world.enter().now)
    }

    /// What the clock of a node shows: time since 1970.
    pub fn unix_now(&self, node: NodeId) -> Duration {
        self.world.enter().unix_now(node.0)
    }

    /// What can be done to the network.
    pub fn network(&self) -> Network<'_> {
        Network { world: &self.world }
    }

    /// Events so far: turns of threads, deadlines and arrivals.
    pub fn events(&self) -> u64 {
        self.world.enter().events
    }

    /// A hash over all that happened so far: who ran when, what was sent, what
    /// the driver did. Two runs that differ have, in all likelihood, different
    /// ones.
    pub fn trace_hash(&self) -> u64 {
        self.world.enter().trace.hash()
    }

    /// The last lines of the history, if [`Options::trace`] keeps any.
    pub fn trace_lines(&self) -> Vec<String> {
        self.world.enter().trace.lines().map(str::to_owned).collect()
    }

    /// Adds a line of the driver's to the history.
    pub fn note(&self, line: &str) {
        let mut world = self.world.enter();
        let now = world.now;
        world.trace.line(now, || line.to_owned());
    }

    /// What every thread waits for, for people.
    pub fn threads(&self) -> Vec<String> {
        let world = self.world.enter();
        let describe = |id| {
            let what = match world.threads.get(id).map(|thread| thread.state) {
                Some(State::Waiting(why)) => format!("waits for {why}"),
                Some(State::Running) => "is about to run".to_owned(),
                Some(State::Ended) | None => "has ended".to_owned(),
            };
            format!("{} {what}", world.thread_name(id))
        };
        world.threads.iter().map(|(id, _)| describe(id)).collect()
    }

    /// Does what happens next; false if nothing ever will.
    pub fn step(&mut self) -> bool {
        self.step_until(u64::MAX)
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.world.enter().deadline(time);
        while self.step_until(end) {}
        let mut world = self.world.enter();
        world.now = world.now.max(end);
    }

    /// Lets time pass until `done`, which is asked after everything that
    /// happens, or until the deadline (since the beginning), or until nothing
    /// happens any more. Returns what `done` said last.
    pub fn run_until(
        &mut self,
        deadline: Duration,
        mut done: impl FnMut(&Simulation) -> bool,
    ) -> bool {
        let end = nanos(deadline);
        loop {
            if done(self) {
                return true;
            }
            if !self.step_until(end) {
                return false;
            }
        }
    }

    fn step_until(&mut self, end: u64) -> bool {
        let next = self.world.enter().advance(end);
        match next {
            Next::Nothing => return false,
            Next::Done => {}
            Next::Run(thread, process) => self.resume(thread, process),
        }
        true
    }

    fn resume(&mut self, thread: Id, process: usize) {
        let Some(machine) = self.machines.get(process).cloned().flatten() else { return };
        let slot = thread.slot();
        if self.fibers.len() <= slot {
            self.fibers.resize_with(slot + 1, || None);
        }
        if self.fibers[slot].is_none() {
            self.fibers[slot] = self.make_fiber(thread);
        }
        let Some(fiber) = &mut self.fibers[slot] else { return };
        let before = simulated::install(Some(machine));
        let ended = fiber.resume();
        simulated::install(before);
        if ended {
            self.fibers[slot] = None;
            self.thread_ended(thread, process);
            return;
        }
        let dying = self.world.enter().dying.take();
        if let Some(process) = dying {
            self.end(process, Exit::Killed, Closing::Abrupt);
        }
    }

    fn make_fiber(&mut self, thread: Id) -> Option<Fiber> {
        let spawned = self.world.enter().threads.get_mut(thread).and_then(|t| t.body.take());
        let body: Body = match spawned {
            Some(body) => body,
            None => self.mains.remove(&thread)?,
        };
        let (world, panics) = (self.world.clone(), self.panics.clone());
        let body = move || {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
                let panic = record_panic(&world, thread, &*payload);
                // It is among the panics that are returned, too.
                let told = (panic.thread.as_str(), &panic.message);
                let _ = writeln!(io::stderr(), "simulated thread {}: {}", told.0, told.1);
                panics.borrow_mut().push(panic);
            }
        };
        match Fiber::new(self.stack_bytes, body) {
            Ok(fiber) => Some(fiber),
            Err(e) => panic!("no memory for the stack of a simulated thread: {e}"),
        }
    }

    fn thread_ended(&mut self, thread: Id, process: usize) {
        let mut world = self.world.enter();
        let panicked = world.threads.get(thread).is_some_and(|t| t.panicked);
        let is_main = world.processes[process].main == Some(thread);
        world.end_thread(thread);
        drop(world);
        if is_main {
            let exit = if panicked { Exit::Panicked } else { Exit::Returned };
            self.end(process, exit, Closing::Orderly);
        }
    }

    fn end(&mut self, process: usize, exit: Exit, how: Closing) {
        let mut world = self.world.enter();
        let Some(record) = world.processes.get_mut(process) else { return };
        if record.exit.is_some() {
            return;
        }
        record.exit = Some(exit);
        record.parked.clear();
        record.held_back.clear();
        let node = record.node;
        let threads = world.threads.find(|thread| thread.process == process);
        for &thread in &threads {
            world.forget_thread(thread);
        }
        world.close_all(process, how);
        drop(world);
        for thread in threads {
            if let Some(fiber) = self.fibers.get_mut(thread.slot()) {
                *fiber = None;
            }
            std::mem::forget(self.mains.remove(&thread));
        }
        // What was killed still refers to its machine, which is small.
        self.machines[process] = None;
        self.disks[node].release_locks(process as u64);
    }
}

/// Every process that still runs is killed; its locks are free, and disks stay
/// as they are.
impl Drop for Simulation {
    fn drop(&mut self) {
        for process in 0..self.machines.len() {
            self.end(process, Exit::Killed, Closing::Silent);
        }
        // Whoever was killed still has a way into the world: leave little there.
        self.world.enter().clear();
    }
}

fn record_panic(world: &Shared, thread: Id, payload: &(dyn Any + Send)) -> Panic {
    let message = match payload.downcast_ref::<&str>() {
        Some(text) => (*text).to_owned(),
        None => payload.downcast_ref::<String>().cloned().unwrap_or_default(),
    };
    let mut world = world.enter();
    if let Some(record) = world.threads.get_mut(thread) {
        record.panicked = true;
    }
    let time = Duration::from_nanos(world.now);
    Panic { thread: world.thread_name(thread), message, time }
}
