//! What a simulated process sees of its machine.

use crate::network::handles::{SimPoller, SimSignal, SimSocket};
use crate::options::{chance, nanos};
use crate::slab::Id;
use crate::world::Shared;
use crate::world::processes::{Body, State};
use rustix::io::Result;
use std::sync::Arc;
use std::time::Duration;
use weir_host::simulated::{Directory, Machine, Poller, Signal, Socket, Thread};

/// One process.
pub(crate) struct SimMachine {
    pub(crate) world: Shared,
    pub(crate) process: usize,
    pub(crate) node: usize,
    pub(crate) host_name: String,
    pub(crate) root: Arc<dyn Directory>,
}

impl SimMachine {
    fn pause(&self, time: u64, why: &'static str) {
        let mut world = self.world.enter();
        if !world.owes(time) {
            let deadline = world.now.saturating_add(time);
            self.world.wait(world, Some(deadline), why);
        }
    }
}

impl Machine for SimMachine {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.enter().shown_by(self.node))
    }

    fn unix_now(&self) -> Duration {
        let mut world = self.world.enter();
        world.look_at_clock();
        world.unix_now(self.node)
    }

    fn sleep(&self, time: Duration) {
        let mut world = self.world.enter();
        if !world.owes(nanos(time)) {
            let deadline = world.deadline_here(time);
            self.world.wait(world, Some(deadline), "time to pass");
        }
    }

    fn spawn(&self, name: &str, body: Body) -> Result<Box<dyn Thread>> {
        let id = self.world.enter().add_thread(self.process, name, Some(body));
        Ok(Box::new(SimThread { world: self.world.clone(), id }))
    }

    fn park(&self, key: usize, timeout: Option<Duration>) -> bool {
        let mut world = self.world.enter();
        let thread = world.running();
        world.processes[self.process].parked.push_back((key, thread));
        let deadline = timeout.map(|time| world.deadline_here(time));
        let woken = self.world.wait(world, deadline, "a lock or a change under it");
        if !woken {
            let mut world = self.world.enter();
            world.processes[self.process].parked.retain(|&entry| entry != (key, thread));
        }
        woken
    }

    fn unpark(&self, key: usize, all: bool) {
        self.world.enter().unpark(self.process, key, all);
    }

    fn before_lock(&self) {
        // A thread that unwinds drops its guards: others would see it panicking.
        let mut world = self.world.enter();
        let ppm = world.options.preempt_ppm;
        if chance(&mut world.rng, ppm) && world.is_interruptible() && !std::thread::panicking() {
            self.world.give_way(world);
        }
    }

    fn die(&self) {
        let mut world = self.world.enter();
        world.dying = Some(self.process);
        self.world.wait(world, None, "its death");
    }

    fn set_uninterrupted(&self, on: bool) {
        let debt = self.world.enter().set_uninterrupted(on);
        if debt > 0 {
            self.pause(debt, "a disk");
        }
    }

    fn io_wait(&self, time: Duration) {
        self.pause(nanos(time), "a disk");
    }

    fn process(&self) -> u64 {
        self.process as u64
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.world.enter().bytes_rng.fill(bytes);
    }

    fn host_name(&self) -> String {
        self.host_name.clone()
    }

    fn connect(&self, address: &str) -> Result<Arc<dyn Socket>> {
        let id = self.world.enter().connect(self.process, self.node, address)?;
        Ok(Arc::new(SimSocket { world: self.world.clone(), id }))
    }

    fn listen(&self, address: &str) -> Result<Arc<dyn Socket>> {
        let id = self.world.enter().listen(self.process, self.node, address)?;
        Ok(Arc::new(SimSocket { world: self.world.clone(), id }))
    }

    fn poller(&self) -> Arc<dyn Poller> {
        let id = self.world.enter().add_poller(self.process);
        Arc::new(SimPoller { world: self.world.clone(), id })
    }

    fn signal(&self) -> Arc<dyn Signal> {
        let id = self.world.enter().add_signal(self.process);
        Arc::new(SimSignal { world: self.world.clone(), id })
    }

    fn root(&self) -> Arc<dyn Directory> {
        self.root.clone()
    }
}

/// A thread that may be joined.
struct SimThread {
    world: Shared,
    id: Id,
}

impl Thread for SimThread {
    fn join(&self) -> bool {
        loop {
            let mut world = self.world.enter();
            // It is gone only if its process was killed.
            let Some(thread) = world.threads.get(self.id) else { return false };
            if thread.state == State::Ended {
                return !thread.panicked;
            }
            let joiner = world.running();
            if let Some(thread) = world.threads.get_mut(self.id) {
                thread.joiners.push(joiner);
            }
            self.world.wait(world, None, "the end of a thread");
        }
    }

    fn is_finished(&self) -> bool {
        let world = self.world.enter();
        world.threads.get(self.id).is_none_or(|thread| thread.state == State::Ended)
    }
}

impl Drop for SimThread {
    fn drop(&mut self) {
        let mut world = self.world.enter();
        let Some(thread) = world.threads.get_mut(self.id) else { return };
        thread.has_handle = false;
        if thread.state == State::Ended {
            world.threads.remove(self.id);
        }
    }
}
