//! Experiments on one machine: disks and links of a set speed, and counters that prove what went
//! through them.
//!
//! ```text
//! disk       a file as a disk: loop device, ext4
//!   ├ device   the kernel's counters of it
//!   ├ model    disks with a head: seeks, and lost read-ahead
//!   └ array    several disks as one file system: btrfs
//! nfs        for comparison: an NFS server (nfs-ganesha), and a client with the kernel's cache
//! served     a file system served by this process
//! network    a network namespace for each node, joined by links
//!   └ delay    links with a delay
//! profile    the machines of the papers, and a newer one
//! throttle   limits the bytes per second that a group of processes reads from a disk
//! cold       drops a directory from the page cache
//! memory     limits the memory of processes, including the page cache of their reads
//! processor  limits the CPU share of processes;  group: cgroup v1, for both
//! samples    periodic samples of the counters of several disks
//! worker     processes that wait for a start signal, so that many begin at once
//! perturb    load on a disk;  stream: load on a link
//! ```
//! Needs root, loop devices, ext4 and a cgroup controller for block devices. Models also need FUSE;
//! networks need namespaces, veth and token buckets. [`missing`], [`missing_for_models`],
//! [`missing_for_networks`], [`missing_for_delays`], [`missing_for_cold`], [`missing_for_arrays`]
//! and [`missing_for_processors`] tell what is missing. Everything made here is removed when it is
//! dropped, unless it is left for another process to find.

mod array;
mod cold;
mod delay;
mod device;
mod disk;
mod group;
mod memory;
mod model;
mod network;
mod nfs;
mod perturb;
mod processor;
pub mod profile;
mod samples;
mod served;
mod stream;
mod throttle;
mod worker;

pub use array::{Array, missing as missing_for_arrays};
pub use cold::{forget, forget_whole, in_memory, remember};
pub use delay::Delayed;
pub use device::{Counts, Device};
pub use disk::{Disk, Frozen, detach, make_image};
pub use memory::Memory;
pub use model::{Drive, Model, Zones};
pub use network::{ETHERNET_QUEUE, LinkCounts, MYRINET_QUEUE, Network, enter};
pub use nfs::{NfsClient, NfsServer, missing_for_nfs};
pub use perturb::{Reads, read_around, write_again};
pub use processor::{Processor, missing as missing_for_processors};
pub use samples::{Sample, Sampler};
pub use stream::send_through;
pub use throttle::Throttle;
pub use worker::{Worker, say_ready, wait_for_end, wait_for_go};

use std::io::{Error, Result};
use std::path::Path;
use std::process::Command;

/// What this machine or user lacks for disks of a set speed; `None`: nothing.
pub fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("root");
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("loop devices (/dev/loop-control)");
    }
    if throttle::controller().is_none() {
        return Some("a cgroup controller for block devices (blkio of v1, or io of v2)");
    }
    if !have(&["losetup", "mkfs.ext4", "mount", "umount"], "--version") {
        return Some("losetup, mkfs.ext4, mount and umount");
    }
    None
}

/// What is missing for [`forget_whole`] and [`in_memory`].
pub fn missing_for_cold() -> Option<&'static str> {
    (!have(&["fincore"], "--version")).then_some("fincore (of util-linux)")
}

/// What is missing for disk models, in addition.
pub fn missing_for_models() -> Option<&'static str> {
    missing().or((!Path::new("/dev/fuse").exists()).then_some("FUSE (/dev/fuse)"))
}

/// What is missing for links with a delay.
pub fn missing_for_delays() -> Option<&'static str> {
    missing_for_networks().or((!Path::new(delay::TUN).exists()).then_some("/dev/net/tun"))
}

/// What is missing for networks.
pub fn missing_for_networks() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("root");
    }
    if !have(&["ip", "tc"], "-V") || !have(&["nsenter"], "--version") {
        return Some("ip, tc and nsenter");
    }
    network::unsupported()
}

fn have(programs: &[&str], ask: &str) -> bool {
    programs.iter().all(|program| Command::new(program).arg(ask).output().is_ok())
}

/// Runs a program and returns its output.
fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let said = |e: Error| Error::new(e.kind(), format!("{program}: {e}"));
    let output = Command::new(program).args(arguments).output().map_err(said)?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Error::other(format!("{program} {}: {}", arguments.join(" "), why.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A path as an argument.
fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::other(format!("{} is not UTF-8", path.display())))
}
