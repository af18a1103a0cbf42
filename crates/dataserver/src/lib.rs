//! The data server: serves the objects of one or more targets.
//!
//! Its layers, from the bottom; each uses those above it in this list:
//! - [`machine`]: handles requests without I/O: checks, disk operations, replies.
//! - `standing`: who may serve and order what of columns with several copies.
//! - [`queue`]: bounded queues, and the tasks in them.
//! - `disk`: one target: its store, its queue, its speed and health, and the orders for it.
//! - `peers`: connections to other data servers.
//! - `state`: what all threads of a server share.
//! - `copies`: columns with several copies, and sets: order, pass on, repair and bring changes.
//! - `shell`: event loops, threads, registration with the metadata server, [`config`], start, stop.
//!
//! Invariants
//! - No object is touched for a request that was not checked by [`machine::Machine::on_request`],
//!   which is the only way in.
//! - Reads that hit the page cache are answered in the event loop; the loop never waits for a disk.
//! - Disk threads wait for nothing but their disk. Tasks that wait for other servers have separate
//!   threads, so that servers do not wait for each other in a ring.
//! - Data is served whether or not the metadata server is reachable.

mod attempts;
mod checksums;
pub mod config;
mod copies;
mod counters;
mod disk;
pub mod machine;
mod peers;
pub mod queue;
mod shell;
mod standing;
mod state;

pub use config::{DataServerConfig, TargetConfig};
pub use shell::metrics::Observer;
pub use shell::register::try_key;
pub use shell::run::{ReadyInfo, run, run_observed};
