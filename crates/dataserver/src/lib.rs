//! The data server: serves the objects of one or more targets.
//!
//! - [`machine`]: what a request leads to, sans I/O: checks, disk operations,
//!   replies. The simulator drives this very machine.
//! - [`queue`]: the bounded queue in front of a target's disk, sans I/O.
//! - [`config`], [`run()`]: configuration, start, stop.
//! - the rest is the shell: event loops, disk threads, registration with the
//!   metadata server.
//!
//! Invariants
//! - No object is touched for a request that was not checked by
//!   [`machine::Machine::on_request`], which is the only way in.
//! - What is in the page cache is answered in the event loop; the loop never
//!   waits for a disk.
//! - Disk threads wait for nothing but their disk. What waits for other servers
//!   has threads of its own, so that servers do not wait for each other in a ring.
//! - Data is served whether or not the metadata server is there.

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
mod run;
mod service;

pub use config::{DataServerConfig, TargetConfig};
pub use metrics::Observer;
pub use register::try_key;
pub use run::{ReadyInfo, run, run_observed};
