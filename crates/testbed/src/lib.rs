//! Experiments on one machine: disks with a set speed, and the proof of what was read from
//! them.
//!
//! ```text
//! disk       a file as a disk: loop device, ext4; the kernel's count of what was read
//! throttle   who uses a disk through this group gets no more than so many bytes a second
//! cold       nothing is left in memory of what a directory has on its disk
//! samples    the kernel's counts of several disks, again and again
//! worker     processes that begin at a word, so that many do at once
//! perturb    what a process does that disturbs a disk
//! ```
//! Needs root, loop devices, ext4 and a cgroup controller for block devices; who lacks any
//! is told so by [`missing`]. What is made here goes when it is dropped.

mod cold;
mod disk;
mod perturb;
mod samples;
mod throttle;
mod worker;

pub use cold::forget;
pub use disk::{Counts, Disk};
pub use perturb::{Reads, read_around, write_again};
pub use samples::{Sample, Sampler};
pub use throttle::Throttle;
pub use worker::{Worker, wait_for_end, wait_for_go};

use std::io::{Error, Result};
use std::path::Path;
use std::process::Command;

/// What this machine, or this user, lacks for all of it; `None`: nothing.
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
    let programs = ["losetup", "mkfs.ext4", "mount", "umount"];
    let works = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    if !programs.iter().all(works) {
        return Some("losetup, mkfs.ext4, mount and umount");
    }
    None
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
