//! Limits of what a group of processes may read from disks.

use crate::device::Device;
use std::fs;
use std::io::{self, Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A group whose processes are gone is empty by then.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// The ways in which Linux limits the use of block devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    /// `blkio` of cgroup v1.
    V1,
    /// `io` of cgroup v2. Not tested: the machines that this was written on have v1.
    V2,
}

const V1: &str = "/sys/fs/cgroup/blkio";
const V2: &str = "/sys/fs/cgroup";

/// Which of them there is.
pub(crate) fn controller() -> Option<Controller> {
    if Path::new(V1).join("blkio.throttle.read_bps_device").exists() {
        return Some(Controller::V1);
    }
    let all = fs::read_to_string(Path::new(V2).join("cgroup.controllers")).unwrap_or_default();
    all.split_whitespace().any(|name| name == "io").then_some(Controller::V2)
}

/// A group of processes, the server of a disk and whoever disturbs it: together they get no
/// more of a disk than is set. When it is dropped they are free again.
#[derive(Debug)]
pub struct Throttle {
    controller: Controller,
    path: PathBuf,
    /// It goes when it is dropped.
    goes: bool,
}

impl Throttle {
    /// A group of this name, which no other has.
    ///
    /// # Errors
    /// There is no controller, or one such group already; what the system says.
    pub fn new(name: &str) -> Result<Self> {
        let controller = controller().ok_or_else(|| Error::other("no cgroup controller"))?;
        let path = Path::new(root(controller)).join(name);
        if controller == Controller::V2 {
            put(&Path::new(V2).join("cgroup.subtree_control"), "+io")?;
        }
        fs::create_dir(&path).map_err(|e| named(&path, &e))?;
        Ok(Self { controller, path, goes: true })
    }

    /// The group of this name that was left; it stays.
    ///
    /// # Errors
    /// There is none.
    pub fn found(name: &str) -> Result<Self> {
        let controller = controller().ok_or_else(|| Error::other("no cgroup controller"))?;
        let path = Path::new(root(controller)).join(name);
        match path.is_dir() {
            true => Ok(Self { controller, path, goes: false }),
            false => Err(Error::other(format!("no group {}", path.display()))),
        }
    }

    /// It stays when it is dropped.
    pub fn leave(&mut self) {
        self.goes = false;
    }

    /// Takes the group of this name away, if there is one: its processes are free again.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(name: &str) -> Result<()> {
        let found = controller().map(|controller| Path::new(root(controller)).join(name));
        match found.filter(|path| path.is_dir()) {
            Some(_) => Self::found(name)?.end(),
            None => Ok(()),
        }
    }

    fn end(&self) -> Result<()> {
        let begin = Instant::now();
        loop {
            self.free()?;
            match fs::remove_dir(&self.path) {
                // One that began or ended just now still counts.
                Err(e) if e.kind() == ErrorKind::ResourceBusy && begin.elapsed() < PATIENCE => {
                    sleep(PAUSE);
                }
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
                done => return done.map_err(|e| named(&self.path, &e)),
            }
        }
    }

    /// Takes out all processes.
    fn free(&self) -> Result<()> {
        let path = self.path.join("cgroup.procs");
        let members = fs::read_to_string(&path).map_err(|e| named(&path, &e))?;
        let above = Path::new(root(self.controller)).join("cgroup.procs");
        // One that has ended meanwhile cannot be moved, and need not be; of others the removal
        // of the group fails.
        members.lines().for_each(|process| _ = fs::write(&above, process));
        Ok(())
    }

    /// From now on so many bytes a second are read from a disk. Readers get it first come, first
    /// served: a share of the bytes that wait, and none of it because they are few or many.
    ///
    /// # Errors
    /// What the system says.
    pub fn limit(&self, disk: impl AsRef<Device>, read_bytes_per_s: u64) -> Result<()> {
        let number = disk.as_ref().number()?;
        match self.controller {
            Controller::V1 => put(
                &self.path.join("blkio.throttle.read_bps_device"),
                &format!("{number} {read_bytes_per_s}"),
            ),
            Controller::V2 => {
                put(&self.path.join("io.max"), &format!("{number} rbps={read_bytes_per_s}"))
            }
        }
    }

    /// From now on so many bytes a second are written to a disk; reads do not count.
    ///
    /// # Errors
    /// What the system says.
    pub fn limit_writes(&self, disk: impl AsRef<Device>, write_bytes_per_s: u64) -> Result<()> {
        let number = disk.as_ref().number()?;
        match self.controller {
            Controller::V1 => put(
                &self.path.join("blkio.throttle.write_bps_device"),
                &format!("{number} {write_bytes_per_s}"),
            ),
            Controller::V2 => {
                put(&self.path.join("io.max"), &format!("{number} wbps={write_bytes_per_s}"))
            }
        }
    }

    /// Takes a process in, with all its threads.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&self, process: i32) -> Result<()> {
        put(&self.path.join("cgroup.procs"), &process.to_string())
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        if !self.goes {
            return;
        }
        if let Err(error) = self.end() {
            // Nobody is here to be told but whoever reads what the program says.
            let _ = writeln!(io::stderr(), "a group of processes stays: {error}");
        }
    }
}

fn root(controller: Controller) -> &'static str {
    match controller {
        Controller::V1 => V1,
        Controller::V2 => V2,
    }
}

fn named(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn put(path: &Path, what: &str) -> Result<()> {
    fs::write(path, what)
        .map_err(|e| Error::new(e.kind(), format!("write {what:?} to {}: {e}", path.display())))
}
