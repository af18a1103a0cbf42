//! Experiments on one machine: disks with a set speed, links with a set speed, and the proof of
//! what went through them.
//!
//! ```text
//! disk       a file as a disk: loop device, ext4
//!   ├ device   the kernel's counts of it
//!   ├ model    disks with a head: seeks, and reads ahead that are lost
//!   └ array    several disks as one file system: btrfs
//! nfs        the comparator: an NFS server (nfs-ganesha), and a client that the kernel caches for
//! served     a file system of this process
//! network    a network namespace for each node, joined by links
//!   └ delay    a link on which frames take a time
//! profile    the machines of the papers, and a newer one
//! throttle   who uses a disk through this group gets no more than so many bytes a second
//! cold       nothing is left in memory of what a directory has on its disk
//! memory     what processes may have of this machine's memory, with what is read for them
//! processor  what they may have of a core;  group: of cgroup v1, for both
//! samples    the kernel's counts of several disks, again and again
//! worker     processes that begin at a word, so that many do at once
//! perturb    what a process does that disturbs a disk;  stream: one that loads a link
//! ```
//! Needs root, loop devices, ext4 and a cgroup controller for block devices; models need FUSE
//! besides, networks namespaces, veth and token buckets. Who lacks any is told so by [`missing`],
//! [`missing_for_models`], [`missing_for_networks`], [`missing_for_delays`], [`missing_for_cold`],
//! [`missing_for_arrays`], [`missing_for_processors`]. What is made here goes when it is dropped,
//! unless it is left, for another process to find.

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

/// What this machine, or this user, lacks for disks of a set speed; `None`: nothing.
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

/// What it lacks for [`forget_whole`] and [`in_memory`].
pub fn missing_for_cold() -> Option<&'static str> {
    (!have(&["fincore"], "--version")).then_some("fincore (of util-linux)")
}

/// What it lacks for disks with a head, besides.
pub fn missing_for_models() -> Option<&'static str> {
    missing().or((!Path::new("/dev/fuse").exists()).then_some("FUSE (/dev/fuse)"))
}

/// What it lacks for links with a delay.
pub fn missing_for_delays() -> Option<&'static str> {
    missing_for_networks().or((!Path::new(delay::TUN).exists()).then_some("/dev/net/tun"))
}

/// What it lacks for networks.
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

/// Runs a program; returns what it prints.
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
