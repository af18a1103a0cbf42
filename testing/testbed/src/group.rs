//! Control groups of cgroup v1, which limit the resources of processes.

use std::fs;
use std::io::{self, Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Maximum time until a group is empty after its processes were moved out.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
const MEMBERS: &str = "cgroup.procs";

/// A group of one controller. When it is dropped, its processes are no longer limited.
#[derive(Debug)]
pub struct Group {
    /// The directory of the controller.
    root: &'static str,
    path: PathBuf,
    /// Whether it is removed when dropped.
    goes: bool,
}

impl Group {
    /// Makes a group with a new name in the directory of a controller.
    pub fn new(root: &'static str, name: &str) -> Result<Self> {
        let path = Path::new(root).join(name);
        fs::create_dir(&path).map_err(|e| about(&path, &e))?;
        Ok(Self { root, path, goes: true })
    }

    /// Keeps the group when this is dropped.
    pub fn leave(&mut self) {
        self.goes = false;
    }

    /// Removes the group of this name, if it exists. Its processes are no longer limited.
    pub fn remove(root: &'static str, name: &str) -> Result<()> {
        let path = Path::new(root).join(name);
        match path.is_dir() {
            true => Self { root, path, goes: false }.end(),
            false => Ok(()),
        }
    }

    /// Sets a limit.
    pub fn set(&self, limit: &str, value: impl ToString) -> Result<()> {
        let limit = self.path.join(limit);
        fs::write(&limit, value.to_string()).map_err(|e| about(&limit, &e))
    }

    /// The contents of one of its files.
    pub fn get(&self, name: &str) -> Result<String> {
        let path = self.path.join(name);
        fs::read_to_string(&path).map_err(|e| about(&path, &e))
    }

    /// Adds a process with all of its threads.
    pub fn add(&self, process: i32) -> Result<()> {
        self.set(MEMBERS, process)
    }

    /// The file to which a process writes 0 to join.
    pub fn members(&self) -> PathBuf {
        self.path.join(MEMBERS)
    }

    fn end(&self) -> Result<()> {
        let begin = Instant::now();
        loop {
            for process in self.get(MEMBERS)?.lines() {
                // Processes that have ended need not be moved. If another one fails, so does the
                // removal.
                let _ = fs::write(Path::new(self.root).join(MEMBERS), process);
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

impl Drop for Group {
    fn drop(&mut self) {
        if self.goes
            && let Err(error) = self.end()
        {
            // In a destructor the error can only be printed.
            let _ = writeln!(io::stderr(), "a group of processes stays: {error}");
        }
    }
}

fn about(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}
