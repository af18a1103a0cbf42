//! Everything that a Weir process asks of the machine it runs on: time,
//! threads, locks, random bytes, sockets and files.
//!
//! There are two machines. One is the operating system. The other is whatever
//! implements [`simulated::Machine`]: the simulator installs it while it runs
//! one of its threads, and the very same client, data server and metadata
//! server then run on virtual time, a network that loses connections and disks
//! that forget unsynced writes. Nothing above this crate can tell.
//!
//! The choice costs one relaxed load of a static where it is made at all:
//! locks, clock and sockets. A file or socket knows what it is.
//!
//! Invariant: the crates above use neither `Instant::now`, `SystemTime::now`,
//! `std::thread`, `std::sync::{Mutex, RwLock, Condvar}` nor `std::fs`, but what
//! is here (`clippy.toml` of each says so).

pub mod clock;
pub mod fs;
pub mod net;
pub mod plant;
mod random;
pub mod simulated;
pub mod sync;
pub mod thread;

pub use random::fill_random;

/// The name of this host.
pub fn host_name() -> String {
    match simulated::current() {
        Some(machine) => machine.host_name(),
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    }
}
