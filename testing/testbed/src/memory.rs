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

    /// Takes a process in: from now on its memory and what is read for it count.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&self, process: i32) -> Result<()> {
        self.group.add(process)
    }

    /// A program of the group reads a file as large as its memory, which has nothing else then. The
    /// file has no blocks, and no disk is read; it is in this directory meanwhile.
    ///
    /// # Errors
    /// What the system says.
    pub fn fill(&self, dir: &Path) -> Result<()> {
        let (path, members) = (dir.join("fill"), self.group.members());
        File::create(&path)?.set_len(self.bytes)?;
        let script = "echo 0 > \"$1\" && exec dd if=\"$2\" of=/dev/null bs=1M status=none";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", text(&members)?, text(&path)?]);
        let status = command.status();
        fs::remove_file(&path)?;
        match status?.success() {
            true => Ok(()),
            false => Err(Error::other(format!("{}: could not be read", path.display()))),
        }
    }
}
