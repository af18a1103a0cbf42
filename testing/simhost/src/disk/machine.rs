//! A machine for one thread that needs files, a clock and random bytes, and
//! nothing else: tests of a store or a log.

use super::SimDisk;
use rustix::io::{Errno, Result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use weir_host::simulated::{self, Directory, Machine, Poller, Signal, Socket, Thread};

/// The process of everything that runs on such a machine.
const PROCESS: u64 = 1;
/// Where its calendar begins: some day in 2026.
const UNIX_START: Duration = Duration::from_secs(1_780_000_000);

/// A machine with one thread, a disk and a clock, which moves only when the
/// thread waits.
pub struct DiskMachine {
    disk: SimDisk,
    now: Cell<Duration>,
    rng: RefCell<fastrand::Rng>,
}

impl DiskMachine {
    /// A machine that has just started.
    pub fn new(disk: &SimDisk, seed: u64) -> Self {
        let rng = RefCell::new(fastrand::Rng::with_seed(seed));
        Self { disk: disk.clone(), now: Cell::new(Duration::ZERO), rng }
    }

    fn pass(&self, time: Duration) {
        self.now.set(self.now.get().saturating_add(time));
    }
}

/// Runs `body` on a [`DiskMachine`], as a process that has ended when it
/// returns: its locks are free then.
pub fn with_disk<T>(disk: &SimDisk, seed: u64, body: impl FnOnce() -> T) -> T {
    struct Restore<'a>(Option<Rc<dyn Machine>>, &'a SimDisk);
    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            simulated::install(self.0.take());
            self.1.release_locks(PROCESS);
        }
    }
    let machine = Rc::new(DiskMachine::new(disk, seed));
    let _restore = Restore(simulated::install(Some(machine)), disk);
    body()
}

impl Machine for DiskMachine {
    fn now(&self) -> Duration {
        self.now.get()
    }

    fn unix_now(&self) -> Duration {
        UNIX_START + self.now.get()
    }

    fn sleep(&self, time: Duration) {
        self.pass(time);
    }

    fn spawn(&self, _name: &str, _body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Thread>> {
        Err(Errno::NOSYS)
    }

    /// Nobody can wake it, so the time passes.
    ///
    /// # Panics
    /// If it has no end.
    fn park(&self, _key: usize, timeout: Option<Duration>) -> bool {
        match timeout {
            Some(time) => self.pass(time),
            None => panic!("a machine with one thread waits for another one: a deadlock"),
        }
        false
    }

    fn unpark(&self, _key: usize, _all: bool) {}

    fn set_uninterrupted(&self, _on: bool) {}

    fn io_wait(&self, time: Duration) {
        self.pass(time);
    }

    fn process(&self) -> u64 {
        PROCESS
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.rng.borrow_mut().fill(bytes);
    }

    fn host_name(&self) -> String {
        "disk-test".to_owned()
    }

    fn connect(&self, _address: &str) -> Result<Arc<dyn Socket>> {
        Err(Errno::NETUNREACH)
    }

    fn listen(&self, _address: &str) -> Result<Arc<dyn Socket>> {
        Err(Errno::NETUNREACH)
    }

    /// # Panics
    /// Always: there is nothing to watch.
    fn poller(&self) -> Arc<dyn Poller> {
        panic!("a machine for tests of files has no poller")
    }

    /// # Panics
    /// Always: nobody could raise it.
    fn signal(&self) -> Arc<dyn Signal> {
        panic!("a machine for tests of files has no signals")
    }

    fn root(&self) -> Arc<dyn Directory> {
        self.disk.root()
    }
}
