//! Everything that a Weir process asks of the machine it runs on: time, threads, locks, random
//! bytes, sockets and files.
//!
//! There are two kinds of machine. One is the operating system. The other implements
//! [`simulated::Machine`]. The simulator installs it while it runs one of its threads. The same
//! client, data server and metadata server then run on virtual time, a network that loses
//! connections, and disks that forget unsynced writes. No crate above this one can tell the
//! difference.
//!
//! Locks, clock and sockets read one relaxed atomic to choose the machine. A file or socket
//! remembers its own.
//!
//! Invariant: the crates above use none of `Instant::now`, `SystemTime::now`, `std::thread`,
//! `std::sync::{Mutex, RwLock, Condvar}` and `std::fs`, except through this crate (enforced by the
//! `clippy.toml` of each).

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

/// Random id of this boot of the machine; `None` if the kernel does not tell. To know whether
/// unsynced bytes are still in memory, use [`fs::Directory::memory_run`].
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
