//! The memory of a node: what a group of processes may have of this machine's, with all that was
//! read for them.

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
/// Left to the processes of a group while a file is in their memory.
const SLACK_BYTES: u64 = 8 << 20;
/// Of the memory, what a file has to have room in: one part of so many.
const LEAST: u64 = 4;
/// A program that loads a file, of those that may have no more memory the first to go.
const SCRIPT: &str = "echo 1000 > /proc/self/oom_score_adj && echo 0 > \"$1\" && \
                      exec dd if=\"$2\" of=/dev/null bs=\"$3\" status=none";

/// A group of processes. Dropped, they are free again.
#[derive(Debug)]
pub struct Memory {
    group: Group,
    bytes: u64,
}

impl Memory {
    /// A group of this name with so much memory; `None` if this machine cannot limit it.
    ///
    /// # Errors
    /// There is one such group already; what the system says.
    pub fn new(name: &str, bytes: u64) -> Result<Option<Self>> {
        if !Path::new(ROOT).join(LIMIT).exists() {
            return Ok(None);
        }
        let memory = Self { group: Group::new(ROOT, name)?, bytes };
        memory.group.set(LIMIT, bytes)?;
        Ok(Some(memory))
    }

    /// It stays when it is dropped.
    pub fn leave(&mut self) {
        self.group.leave();
    }

    /// Takes the group of this name away, if there is one.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(name: &str) -> Result<()> {
        Group::remove(ROOT, name)
    }

    /// Takes a process in: from now on its memory and what is read for it count.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&self, process: i32) -> Result<()> {
        self.group.add(process)
    }

    /// A program of the group loads a file as large as its memory, which has nothing else then: it
    /// takes all memory that the other processes do not have themselves, and the rest of the file
    /// goes through what is left. What was read more than once goes in no other way: Linux keeps
    /// it, however much is read once. The file has no blocks, and no disk is read; it is in this
    /// directory meanwhile.
    ///
    /// # Errors
    /// The processes themselves have most of the memory; what the system says.
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

    /// Bytes that no file can take the place of: of processes, and of the kernel for them.
    fn held(&self) -> Result<u64> {
        let unknown = || Error::other("memory.stat: not understood");
        let stat = self.group.get("memory.stat")?;
        let rss = stat.lines().find_map(|line| line.strip_prefix("rss "));
        let rss: u64 = rss.and_then(|bytes| bytes.trim().parse().ok()).ok_or_else(unknown)?;
        let kernel = self.group.get(KERNEL)?.trim().parse::<u64>().map_err(|_| unknown())?;
        Ok(rss + kernel)
    }
}
