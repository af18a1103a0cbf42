//! Limits on what a group of processes may read from disks.

use crate::device::Device;
use std::fs;
use std::io::{self, Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Maximum time until a group is empty after its processes have ended.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// The two ways in which Linux limits the use of block devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    /// `blkio` of cgroup v1.
    V1,
    /// `io` of cgroup v2. Not tested: the development machines have v1.
    V2,
}

const V1: &str = "/sys/fs/cgroup/blkio";
const V2: &str = "/sys/fs/cgroup";

/// The controller of this machine, if any.
pub(crate) fn controller() -> Option<Controller> {
    if Path::new(V1).join("blkio.throttle.read_bps_device").exists() {
        return Some(Controller::V1);
    }
    let all = fs::read_to_string(Path::new(V2).join("cgroup.controllers")).unwrap_or_default();
    all.split_whitespace().any(|name| name == "io").then_some(Controller::V2)
}

/// A group of processes, such as a disk's server and its load: together they get at most the set
/// rate of a disk. When it is dropped, they are no longer limited.
#[derive(Debug)]
pub struct Throttle {
    controller: Controller,
    path: PathBuf,
    /// Whether it is removed when dropped.
    goes: bool,
}

impl Throttle {
    /// Makes a group with a new name.
    ///
    /// # Errors
    /// There is no controller, or the group exists; errors of the system.
    pub fn new(name: &str) -> Result<Self> {
        let controller = controller().ok_or_else(|| Error::other("no cgroup controller"))?;
        let path = Path::new(root(controller)).join(name);
        if controller == Controller::V2 {
            put(&Path::new(V2).join("cgroup.subtree_control"), "+io")?;
        }
        fs::create_dir(&path).map_err(|e| named(&path, &e))?;
        Ok(Self { controller, path, goes: true })
    }

    /// An existing group. Dropping the result does not remove it.
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

    /// Keeps the group when this is dropped.
    pub fn leave(&mut self) {
        self.goes = false;
    }

    /// Removes the group of this name, if it exists. Its processes are no longer limited.
    ///
    /// # Errors
    /// Those of the system.
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
                // A process that has just begun or ended still counts.
                Err(e) if e.kind() == ErrorKind::ResourceBusy && begin.elapsed() < PATIENCE => {
                    sleep(PAUSE);
                }
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
                done => return done.map_err(|e| named(&self.path, &e)),
            }
        }
    }

    /// Moves all processes out of the group.
    fn free(&self) -> Result<()> {
        let path = self.path.join("cgroup.procs");
        let members = fs::read_to_string(&path).map_err(|e| named(&path, &e))?;
        let above = Path::new(root(self.controller)).join("cgroup.procs");
        // A process that has ended need not be moved. If another one fails, so does the removal of
        // the group.
        members.lines().for_each(|process| _ = fs::write(&above, process));
        Ok(())
    }

    /// Limits reads from a disk, bytes per second. Readers are served in order of arrival, so each
    /// gets a share in proportion to its waiting bytes, however many requests it has.
    ///
    /// # Errors
    /// Those of the system.
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

    /// Limits writes to a disk, bytes per second. Reads do not count.
    ///
    /// # Errors
    /// Those of the system.
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

    /// Adds a process with all of its threads.
    ///
    /// # Errors
    /// Those of the system.
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
            // In a destructor the error can only be printed.
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
