//! The memory of a node: limits the memory of a group of processes, including the page cache of
//! their reads.

use crate::group::Group;
use crate::text;
use std::fs::{self, File};
use std::io::{Error, Result};
use std::path::Path;
use std::process::Command;

/// `memory` of cgroup v1.
const ROOT: &str = "/sys/fs/cgroup/memory";
const LIMIT: &str = "memory.limit_in_bytes";
const KERNEL: &str = "memory.kmem.usage_in_bytes";
/// Memory left to the processes of a group while a file fills the rest.
const SLACK_BYTES: u64 = 8 << 20;
/// A file must fit at least one part in this many of the memory.
const LEAST: u64 = 4;
/// A program that loads a file. If the group is out of memory, it is killed first.
const SCRIPT: &str = "echo 1000 > /proc/self/oom_score_adj && echo 0 > \"$1\" && \
                      exec dd if=\"$2\" of=/dev/null bs=\"$3\" status=none";

/// A group of processes. When it is dropped, they are no longer limited.
#[derive(Debug)]
pub struct Memory {
    group: Group,
    bytes: u64,
}

impl Memory {
    /// Makes a group with this name and memory; `None` if this machine cannot limit memory.
    ///
    /// # Errors
    /// The group exists already; errors of the system.
    pub fn new(name: &str, bytes: u64) -> Result<Option<Self>> {
        if !Path::new(ROOT).join(LIMIT).exists() {
            return Ok(None);
        }
        let memory = Self { group: Group::new(ROOT, name)?, bytes };
        memory.group.set(LIMIT, bytes)?;
        Ok(Some(memory))
    }

    /// Keeps the group when this is dropped.
    pub fn leave(&mut self) {
        self.group.leave();
    }

    /// Removes the group of this name, if it exists.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(name: &str) -> Result<()> {
        Group::remove(ROOT, name)
    }

    /// Adds a process: its memory and the page cache of its reads count from then on.
    ///
    /// # Errors
    /// Those of the system.
    pub fn add(&self, process: i32) -> Result<()> {
        self.group.add(process)
    }

    /// Replaces the cached pages of the group. A program of the group loads a file as large as the
    /// group's memory; the part that does not fit passes through the rest of the memory. This is
    /// needed because Linux keeps pages that were read more than once, however much is read once.
    /// The file has no blocks, so no disk is read; it is in `dir` meanwhile.
    ///
    /// # Errors
    /// The processes themselves use most of the memory; errors of the system.
    pub fn fill(&self, dir: &Path) -> Result<()> {
        let (path, members) = (dir.join("fill"), self.group.members());
        let held = self.held()?;
        let room = self.bytes.saturating_sub(held + SLACK_BYTES);
        if room < self.bytes / LEAST {
            let what = format!("{held} of {} bytes are the processes' own", self.bytes);
            return Err(Error::other(what));
        }
        File::create(&path)?.set_len(self.bytes)?;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh", text(&members)?, text(&path)?, &room.to_string()]);
        let status = command.status();
        fs::remove_file(&path)?;
        match status?.success() {
            true => Ok(()),
            false => Err(Error::other(format!("{}: could not be read", path.display()))),
        }
    }

    /// Bytes that no file can replace: memory of processes, and the kernel's memory for them.
    fn held(&self) -> Result<u64> {
        let unknown = || Error::other("memory.stat: not understood");
        let stat = self.group.get("memory.stat")?;
        let rss = stat.lines().find_map(|line| line.strip_prefix("rss "));
        let rss: u64 = rss.and_then(|bytes| bytes.trim().parse().ok()).ok_or_else(unknown)?;
        let kernel = self.group.get(KERNEL)?.trim().parse::<u64>().map_err(|_| unknown())?;
        Ok(rss + kernel)
    }
}
