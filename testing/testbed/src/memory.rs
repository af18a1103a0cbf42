//! The memory of a node: what a group of processes may have of this machine's, with all that was
//! read for them.

use crate::text;
use std::fs::{self, File};
use std::io::{self, Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A group whose processes were taken out is empty by then.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
/// `memory` of cgroup v1.
const ROOT: &str = "/sys/fs/cgroup/memory";
const MEMBERS: &str = "cgroup.procs";

/// A group of processes. Dropped, they are free again.
#[derive(Debug)]
pub struct Memory {
    path: PathBuf,
    bytes: u64,
}

impl Memory {
    /// A group of this name with so much memory; `None` if this machine cannot limit it.
    ///
    /// # Errors
    /// There is one such group already; what the system says.
    pub fn new(name: &str, bytes: u64) -> Result<Option<Self>> {
        if !Path::new(ROOT).join("memory.limit_in_bytes").exists() {
            return Ok(None);
        }
        let path = Path::new(ROOT).join(name);
        fs::create_dir(&path).map_err(|e| about(&path, &e))?;
        let memory = Self { path, bytes };
        let limit = memory.path.join("memory.limit_in_bytes");
        fs::write(&limit, bytes.to_string()).map_err(|e| about(&limit, &e))?;
        Ok(Some(memory))
    }

    /// Takes a process in: from now on its memory and what is read for it count.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&self, process: i32) -> Result<()> {
        let members = self.path.join(MEMBERS);
        fs::write(&members, process.to_string()).map_err(|e| about(&members, &e))
    }

    /// A program of the group reads a file as large as its memory, which has nothing else then. The
    /// file has no blocks, and no disk is read; it is in this directory meanwhile.
    ///
    /// # Errors
    /// What the system says.
    pub fn fill(&self, dir: &Path) -> Result<()> {
        let (path, members) = (dir.join("fill"), self.path.join(MEMBERS));
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

    fn end(&self) -> Result<()> {
        let (begin, members) = (Instant::now(), self.path.join(MEMBERS));
        loop {
            for process in fs::read_to_string(&members).map_err(|e| about(&members, &e))?.lines() {
                // One that has ended meanwhile need not be moved; of others the removal fails.
                let _ = fs::write(Path::new(ROOT).join(MEMBERS), process);
            }
            match fs::remove_dir(&self.path) {
                Err(e) if e.kind() == ErrorKind::ResourceBusy && begin.elapsed() < PATIENCE => {
                    sleep(PAUSE);
                }
                done => return done.map_err(|e| about(&self.path, &e)),
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            // Nobody is here to be told but whoever reads what the program says.
            let _ = writeln!(io::stderr(), "a group of processes stays: {error}");
        }
    }
}

fn about(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}
