//! One process on one node: for tests of a store, a log or an engine, which
//! have threads but need no network.

use crate::disk::SimDisk;
use crate::options::Options;
use crate::simulation::Simulation;
use crate::world::processes::Exit;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;
use weir_host::simulated;

/// Longer runs are taken for endless.
const MAX_TIME: Duration = Duration::from_secs(30 * 86_400);

/// Runs `body` as the main thread of a process on `disk` until it returns.
/// Threads that it started and that have not ended then are killed.
///
/// # Panics
/// If `body` or one of its threads does, with the same message; if all threads
/// wait for each other; if the process ends with [`die`].
pub fn run<T>(seed: u64, disk: &SimDisk, body: impl FnOnce() -> T) -> T {
    match run_until_death(seed, disk, body) {
        Some(value) => value,
        None => panic!("the process died before its main thread returned"),
    }
}

/// As [`run`]; `None` if a thread called [`die`].
///
/// # Panics
/// As [`run`], but for that.
pub fn run_until_death<T>(seed: u64, disk: &SimDisk, body: impl FnOnce() -> T) -> Option<T> {
    let result = Rc::new(RefCell::new(None));
    let slot = result.clone();
    let main: Box<dyn FnOnce() + '_> = Box::new(move || {
        let ended = catch_unwind(AssertUnwindSafe(body));
        *slot.borrow_mut() = Some(ended);
    });
    // SAFETY: only the lifetime changes. The simulation is made, run and
    // dropped in this function, and nothing of `main` runs or is dropped after
    // that: either it has returned, or its stack was given up as it was.
    let main: Box<dyn FnOnce() + 'static> = unsafe { std::mem::transmute(main) };
    let mut simulation = Simulation::new(seed, Options::default());
    let node = simulation.node("node", disk.clone());
    let process = simulation.start(node, "process", main);
    let over = simulation.run_until(MAX_TIME, |s| !s.is_running(process));
    if !over {
        let threads = simulation.threads().join("\n  ");
        panic!("seed {seed}: nothing happens any more, or for ever:\n  {threads}");
    }
    let died = simulation.exit(process) == Some(Exit::Killed);
    let panics = simulation.panics();
    drop(simulation);
    let ended = result.borrow_mut().take();
    match ended {
        Some(Err(payload)) => resume_unwind(payload),
        _ if !panics.is_empty() => panic!("{}: {}", panics[0].thread, panics[0].message),
        Some(Ok(value)) if !died => Some(value),
        _ => None,
    }
}

/// Kills the process that calls it at once, as [`Simulation::kill`] does.
///
/// # Panics
/// Outside of a simulated thread.
pub fn die() -> ! {
    if let Some(machine) = simulated::current() {
        machine.die();
    }
    panic!("only a process of a simulation can be killed")
}
