//! A simulated machine room: threads that take turns on virtual time, a
//! network and disks that fail, all of it decided by one seed.
//!
//! A [`Simulation`] has nodes with disks, and processes that run the very same
//! code as on an operating system, through `weir_host`. Its driver, outside of
//! all processes, lets time pass and does what goes wrong: it kills processes,
//! cuts the power, breaks connections and partitions the network.
//!
//! ```
//! use std::time::Duration;
//! use weir_simhost::{Options, Simulation, disk::SimDisk};
//!
//! let mut sim = Simulation::new(1, Options::default());
//! let node = sim.node("a", SimDisk::new(1));
//! let process = sim.start(node, "sleeper", || {
//!     weir_host::thread::sleep(Duration::from_secs(3600));
//! });
//! assert!(sim.run_until(Duration::from_secs(4000), |sim| !sim.is_running(process)));
//! assert!(sim.now() >= Duration::from_secs(3600));
//! ```
//!
//! - [`Simulation`], [`Options`]: the scheduler; [`run`]: one process alone.
//! - [`Network`]: what can be done to the network.
//! - [`disk`]: disks that forget what was not synced.
//!
//! Each layer uses those below it alone:
//!
//! ```text
//! simulation  run  machine      the driver, and the machines that processes see
//! events                        what happens next
//! network  threads  disk        connections and sockets; who runs, waits and is woken; disks
//! world                         the state of all of it, and the queue of events
//! options  trace  slab  fiber
//! ```
//!
//! What a thread does between two waits happens at once. Others run when it
//! waits for a lock, time, a disk or a socket, and now and then where it takes
//! a lock.

pub mod disk;
mod events;
mod fiber;
mod machine;
mod network;
mod options;
mod run;
mod simulation;
mod slab;
mod threads;
mod trace;
mod world;

pub use network::{Network, NodeId};
pub use options::{Options, Trace};
pub use run::{die, run, run_until_death};
pub use simulation::{ProcessId, Simulation};
pub use world::processes::{ClockSkew, Exit, Panic};
