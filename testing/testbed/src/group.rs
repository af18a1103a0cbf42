//! Groups of processes of cgroup v1, whose controllers limit what these have of the machine.

use std::fs;
use std::io::{self, Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A group whose processes were taken out is empty by then.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
const MEMBERS: &str = "cgroup.procs";

/// A group of one controller. Dropped, its processes are free again.
#[derive(Debug)]
pub struct Group {
    /// The directory of the controller.
    root: &'static str,
    path: PathBuf,
    /// It goes when it is dropped.
    goes: bool,
}

impl Group {
    /// A group of this name, which no other has, of the controller in this directory.
    pub fn new(root: &'static str, name: &str) -> Result<Self> {
        let path = Path::new(root).join(name);
        fs::create_dir(&path).map_err(|e| about(&path, &e))?;
        Ok(Self { root, path, goes: true })
    }

    /// It stays when it is dropped.
    pub fn leave(&mut self) {
        self.goes = false;
    }

    /// Takes the group of this name away, if there is one: its processes are free again.
    pub fn remove(root: &'static str, name: &str) -> Result<()> {
        let path = Path::new(root).join(name);
        match path.is_dir() {
            true => Self { root, path, goes: false }.end(),
            false => Ok(()),
        }
    }

    /// Sets one of its limits.
    pub fn set(&self, limit: &str, value: impl ToString) -> Result<()> {
        let limit = self.path.join(limit);
        fs::write(&limit, value.to_string()).map_err(|e| about(&limit, &e))
    }

    /// What one of its files says.
    pub fn get(&self, name: &str) -> Result<String> {
        let path = self.path.join(name);
        fs::read_to_string(&path).map_err(|e| about(&path, &e))
    }

    /// Takes a process in, with all its threads.
    pub fn add(&self, process: i32) -> Result<()> {
        self.set(MEMBERS, process)
    }

    /// The file to which a process writes 0 to get in.
    pub fn members(&self) -> PathBuf {
        self.path.join(MEMBERS)
    }

    fn end(&self) -> Result<()> {
        let begin = Instant::now();
        loop {
            for process in self.get(MEMBERS)?.lines() {
                // One that has ended meanwhile need not be moved; of others the removal fails.
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
            // Nobody is here to be told but whoever reads what the program says.
            let _ = writeln!(io::stderr(), "a group of processes stays: {error}");
        }
    }
}

fn about(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}
