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
pub mod device;
mod extents;
pub mod fs;
pub mod load;
pub mod memory;
pub mod net;
pub mod pages;
pub mod plant;
mod random;
mod residency;
pub mod simulated;
pub mod sync;
pub mod thread;

pub use random::fill_random;

/// This run of the machine's kernel; `None` if the kernel does not say. Whether what was written
/// and not synced is still in memory says [`fs::Directory::memory_run`].
pub fn boot_id() -> Option<u128> {
    let path = std::path::Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_file(path, 64).ok()?;
    let digits: String =
        text.iter().filter(|b| b.is_ascii_hexdigit()).map(|b| char::from(*b)).collect();
    u128::from_str_radix(&digits, 16).ok().filter(|id| *id != 0)
}

/// The name of this host.
pub fn host_name() -> String {
    match simulated::current() {
        Some(machine) => machine.host_name(),
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    }
}
