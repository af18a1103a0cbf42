//! The state of a simulation, apart from the stacks of its threads, and the
//! queue of what will happen.
//!
//! Invariants
//! - Whoever enters the world leaves it before a thread is suspended.
//! - What happens depends on the seed and on what the threads do, on nothing
//!   else: no address, no hash of the standard library, no real clock.

pub(crate) mod connection;
pub(crate) mod network;
pub(crate) mod object;
pub(crate) mod processes;

use crate::options::{Options, Span, chance};
use crate::slab::{Id, Slab};
use crate::trace::Tracer;
use network::NetworkState;
use processes::{Node, Process, ThreadRecord};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// A way into the world. All of a simulation happens in one thread of the
/// operating system, so nobody ever waits for it.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(crate) fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }

    pub(crate) fn enter(&self) -> MutexGuard<'_, World> {
        match self.0.try_lock() {
            Ok(world) => world,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => {
                panic!("a simulation was entered twice, or by two threads of the machine")
            }
        }
    }
}

/// What will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A thread has the processor.
    Run(Id),
    /// A thread's deadline, if it still is.
    Deadline(Id),
    /// A message of the connection arrives at its end of this number.
    Arrival(Id, usize),
}

/// When it will happen; what happens at the same time is in random order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    time: u64,
    order: u64,
    event: Event,
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing will ever happen, or nothing up to the limit.
    Nothing,
    /// It was done.
    Done,
    /// Let this thread of this process run.
    Run(Id, usize),
}

/// Everything but the stacks.
pub(crate) struct World {
    /// Virtual time, nanoseconds.
    pub(crate) now: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    sequence: u32,
    /// How many events there were.
    pub(crate) events: u64,
    /// Decides what the scheduler and the network do.
    pub(crate) rng: fastrand::Rng,
    /// Makes the random bytes that programs ask for.
    pub(crate) bytes_rng: fastrand::Rng,
    pub(crate) trace: Tracer,
    pub(crate) options: Options,
    wake_delay: Span,
    stall: Span,
    pub(crate) nodes: Vec<Node>,
    pub(crate) processes: Vec<Process>,
    pub(crate) threads: Slab<ThreadRecord>,
    pub(crate) network: NetworkState,
    pub(crate) running: Option<Id>,
    /// A process that asked to be killed in the middle of its turn.
    pub(crate) dying: Option<usize>,
}

impl World {
    pub(crate) fn new(seed: u64, options: Options) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        Self {
            now: 0,
            queue: BinaryHeap::new(),
            sequence: 0,
            events: 0,
            bytes_rng: rng.fork(),
            trace: Tracer::new(seed, options.trace),
            wake_delay: Span::from(&options.wake_delay),
            stall: Span::from(&options.stall),
            nodes: Vec::new(),
            processes: Vec::new(),
            threads: Slab::new(),
            network: NetworkState::new(&options),
            running: None,
            dying: None,
            options,
            rng,
        }
    }

    pub(crate) fn schedule(&mut self, time: u64, event: Event) {
        self.sequence = self.sequence.wrapping_add(1);
        // The number only tells apart what even chance did not.
        let order = u64::from(self.rng.u32(..)) << 32 | u64::from(self.sequence);
        self.queue.push(Reverse(Entry { time, order, event }));
    }

    /// Gives a thread the processor in a moment.
    pub(crate) fn schedule_run(&mut self, thread: Id) {
        let stalls = chance(&mut self.rng, self.options.stall_ppm);
        let span = if stalls { self.stall } else { self.wake_delay };
        let time = self.now + span.pick(&mut self.rng);
        self.schedule(time, Event::Run(thread));
    }

    /// When something happens next.
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.queue.peek().map(|entry| entry.0.time)
    }

    /// Takes the next event that is not after `limit`, with its time; virtual time goes on to that.
    pub(crate) fn take_next(&mut self, limit: u64) -> Option<(u64, Event)> {
        self.running = None;
        if self.next_time().is_none_or(|time| time > limit) {
            return None;
        }
        let Reverse(entry) = self.queue.pop()?;
        self.now = self.now.max(entry.time);
        self.events += 1;
        Some((entry.time, entry.event))
    }

    /// Notes what the driver does to two nodes or processes.
    pub(crate) fn note_fault(&mut self, what: &'static str, a: usize, b: usize) {
        self.trace.mix_bytes(what.as_bytes());
        for value in [self.now, a as u64, b as u64] {
            self.trace.mix(value);
        }
        self.trace.line(self.now, || format!("driver: {what} {a} {b}"));
    }

    /// Empties a world that ends; all its processes have ended.
    pub(crate) fn clear(&mut self) {
        self.queue = BinaryHeap::new();
        self.threads = Slab::new();
        self.processes = Vec::new();
        self.network = NetworkState::new(&self.options);
    }
}
