//! The data server: serves the objects of one or more targets.
//!
//! - [`machine`]: handles requests without I/O: checks, disk operations, replies. The simulator
//!   drives this very machine.
//! - [`queue`]: the bounded queue in front of a target's disk, without I/O.
//! - [`config`], [`run()`]: configuration, start, stop.
//! - The other modules are the shell: event loops, disk threads, registration with the metadata
//!   server.
//!
//! Invariants
//! - No object is touched for a request that was not checked by [`machine::Machine::on_request`],
//!   which is the only way in.
//! - Reads that hit the page cache are answered in the event loop; the loop never waits for a disk.
//! - Disk threads wait for nothing but their disk. Tasks that wait for other servers have separate
//!   threads, so that servers do not wait for each other in a ring.
//! - Data is served whether or not the metadata server is reachable.

mod at_work;
mod attempts;
mod backlog;
mod checkpoint;
mod chores;
pub mod config;
mod copier;
mod copies;
mod counters;
mod descriptors;
mod disk;
mod forward;
mod herald;
mod inspect;
mod lanes;
pub mod machine;
mod machine_load;
mod meter;
mod metrics;
mod opening;
mod peers;
mod pieces;
mod probe;
mod pull;
pub mod queue;
mod readers;
mod register;
mod reserve;
mod revoked;
mod run;
mod service;

pub use config::{DataServerConfig, TargetConfig};
pub use metrics::Observer;
pub use register::try_key;
pub use run::{ReadyInfo, run, run_observed};
