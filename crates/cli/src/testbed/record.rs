//! The record of a testbed. It is written before anything is made, so that the testbed can be
//! removed even if the command that makes it is interrupted.
//!
//! ```text
//! testbed.json    the record
//! cluster/        state directory of the cluster
//! disks/          N.image; N: its mountpoint; N.drive: that of the head's model
//! run/ log/       of the daemons of heads; run/perturb-PID.pid: perturbing processes
//! .lock           lock of the command that changes the testbed
//! ```

use super::failed::failed;
use crate::args::TestbedChoice;
use crate::cluster::process::Process;
use crate::cluster::secret;
use crate::cluster::state::{StateDir, StateLock};
use crate::failure::{Done, Failure};
use crate::settings;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weir_testbed::{Counts, Device, Disk, Drive, Model, Network};
use weir_types::checksum::crc32c;

const RECORD: &str = "testbed.json";
/// The temporary file of a record, which an interrupted command may leave.
const RECORD_NEW: &str = "testbed.json.new";
/// The lock file, as in every state directory.
const LOCK: &str = ".lock";
const PERTURBERS: &str = "perturb-";

/// The directory of a testbed.
#[derive(Clone, Debug)]
pub struct Place {
    dir: PathBuf,
}

/// The contents of `testbed.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The name of the profile.
    pub profile: String,
    /// Nodes with a disk and a data server.
    pub nodes: Vec<Node>,
    /// The number of further nodes. They come after those with disks.
    pub clients: u32,
    /// The speed of each link in each direction, in bytes a second.
    pub link_rate: u64,
}

/// A node with a disk and a data server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The speed of the disk, in bytes a second.
    pub disk_rate: u64,
    /// Memory of the node's servers, in bytes, if it is limited.
    #[serde(default)]
    pub memory: Option<u64>,
    /// The model of the disk's head, if it has one.
    pub drive: Option<Drive>,
    /// The kernel's counters of the disk's device when the testbed was made.
    pub counted: Counts,
}

impl Place {
    /// The testbed that the arguments choose.
    pub fn of(choice: &TestbedChoice) -> Done<Self> {
        let dir = match &choice.dir {
            Some(dir) => dir.clone(),
            None => settings::state_home()?.join(".testbed"),
        };
        Ok(Self { dir: settings::absolute(&dir)? })
    }

    /// The directory for a new testbed, locked. It is empty, and its path contains no links.
    pub fn vacant(choice: &TestbedChoice) -> Done<(Self, StateLock)> {
        let place = Self::of(choice)?;
        place.require_vacant()?;
        let lock = place.files().lock_new()?;
        // Links on the path can be resolved now that the directory exists. The names of networks,
        // and the kernel's names of mounts and devices, are derived from the result.
        let dir = place.dir.canonicalize().map_err(|e| Failure::file(&place.dir, e))?;
        let place = Self { dir };
        // Another process may have been here before the lock was taken.
        place.require_vacant()?;
        Ok((place, lock))
    }

    fn require_vacant(&self) -> Done {
        let shown = self.dir.display();
        // The kernel escapes other characters in its list of mounts.
        let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '\\';
        if !self.dir.to_str().is_some_and(|text| text.chars().all(is_plain)) {
            let what = format!(
                "{shown:?}: the path of a testbed has no blanks, control characters \
                                or backslashes, and is UTF-8"
            );
            return Err(Failure::new(what).hint("name another directory with --dir"));
        }
        if self.record()?.is_some() {
            return Err(Failure::new(format!("there is a testbed in {shown}"))
                .hint("`weir testbed down` removes it; --dir DIR makes another one"));
        }
        if names_in(&self.dir)?.iter().any(|name| name != LOCK) {
            return Err(Failure::new(format!("{shown} is not empty, and no testbed is in it"))
                .hint("a testbed has a directory of its own: name another one with --dir"));
        }
        Ok(())
    }

    /// Deletes what was made in the directory, and then the directory unless something else is in
    /// it.
    pub fn delete(&self) -> Done {
        for dir in [self.disks(), self.run_dir(), self.log_dir(), self.dir.join("cluster")] {
            gone(std::fs::remove_dir_all(&dir), &dir)?;
        }
        // Without these files nobody knows of the testbed.
        for file in [RECORD_NEW, RECORD, LOCK].map(|name| self.dir.join(name)) {
            gone(std::fs::remove_file(&file), &file)?;
        }
        match std::fs::remove_dir(&self.dir) {
            Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {
                let what = "something else is in it: that, and the directory, stay";
                Failure::new(what).about(self.dir.display()).say();
                Ok(())
            }
            done => gone(done, &self.dir),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    pub fn log_dir(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The pid file of a perturbing process.
    pub fn perturber_file(&self, process: u32) -> PathBuf {
        self.run_dir().join(format!("{PERTURBERS}{process}.pid"))
    }

    /// The perturbing processes that are running.
    pub fn perturbers(&self) -> Done<Vec<Process>> {
        let names = names_in(&self.run_dir())?;
        let names = names.iter().filter(|name| name.to_string_lossy().starts_with(PERTURBERS));
        Ok(names.filter_map(|name| Process::from_file(&self.run_dir().join(name))).collect())
    }

    /// The state directory of the testbed's cluster.
    pub fn cluster(&self) -> StateDir {
        StateDir::at(self.dir.join("cluster"))
    }

    /// The testbed's own files, which are named like those of a cluster.
    pub fn files(&self) -> StateDir {
        StateDir::at(self.dir.clone())
    }

    /// Reads the record; `None` if there is none.
    pub fn record(&self) -> Done<Option<Record>> {
        let path = self.record_file();
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let record = serde_json::from_str(&text);
                record.map(Some).map_err(|e| Failure::new(e.to_string()).about(path.display()))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Failure::file(&path, e)),
        }
    }

    /// Reads the record. Fails if there is none.
    pub fn required(&self) -> Done<Record> {
        self.record()?.ok_or_else(|| {
            Failure::new(format!("there is no testbed in {}", self.dir.display()))
                .hint("`weir testbed up` makes one")
        })
    }

    pub fn write(&self, record: &Record) -> Done {
        let text = serde_json::to_string_pretty(record);
        let text = text.map_err(|e| Failure::new(e.to_string()))?;
        secret::replace_public(&self.record_file(), &(text + "\n"))
    }

    fn record_file(&self) -> PathBuf {
        self.dir.join(RECORD)
    }

    /// The name of the testbed's network and process group. No other testbed has it.
    pub fn name(&self) -> String {
        format!("weir-t{:08x}", crc32c(self.dir.as_os_str().as_bytes()))
    }

    /// The name of the group that limits the memory of a node.
    pub fn memory_name(&self, node: u32) -> String {
        format!("{}-{node}", self.name())
    }

    pub fn disks(&self) -> PathBuf {
        self.dir.join("disks")
    }

    /// The mountpoint of a node's disk.
    pub fn disk(&self, node: u32) -> PathBuf {
        self.disks().join(node.to_string())
    }

    pub fn image(&self, node: u32) -> PathBuf {
        self.disks().join(format!("{node}.image"))
    }

    /// The file in which the disk of a node is stored.
    pub fn backing(&self, node: u32, drive: Option<Drive>) -> PathBuf {
        match drive {
            Some(_) => Model::file(&Disk::model_at(&self.disk(node))),
            None => self.image(node),
        }
    }
}

/// The names in a directory; empty if it does not exist.
fn names_in(dir: &Path) -> Done<Vec<OsString>> {
    let names = || -> std::io::Result<Vec<OsString>> {
        std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect()
    };
    match names() {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(|e| Failure::file(dir, e)),
    }
}

/// Ignores the error that a file to delete does not exist.
fn gone(done: std::io::Result<()>, path: &Path) -> Done {
    match done {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Failure::file(path, e)),
        _ => Ok(()),
    }
}

/// The name of the daemon of a disk with a head.
pub fn head_name(node: u32) -> String {
    format!("disk-{node}")
}

impl Record {
    /// The network of the testbed, which outlives the command.
    pub fn network(&self, place: &Place) -> Network {
        Network::found(&place.name(), self.nodes.len() as u32 + self.clients)
    }

    /// The nodes with a disk, with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u32, &Node)> {
        (1..).zip(&self.nodes)
    }

    /// The node with this number. Fails if it has no disk.
    pub fn node(&self, number: u32) -> Done<&Node> {
        self.numbered().find(|(n, _)| *n == number).map(|(_, node)| node).ok_or_else(|| {
            let last = self.nodes.len();
            Failure::new(format!("node {number} has no disk; those from 1 to {last} have"))
        })
    }

    /// Fails if there is no node of this number.
    pub fn require(&self, number: u32) -> Done {
        let last = self.nodes.len() as u32 + self.clients;
        match (1..=last).contains(&number) {
            true => Ok(()),
            false => Err(Failure::new(format!("there is no node {number}, they are 1 to {last}"))),
        }
    }

    /// The device of a node's disk.
    pub fn device(&self, place: &Place, number: u32) -> Done<Device> {
        let node = self.node(number)?;
        let devices = Device::of(&place.backing(number, node.drive)).map_err(failed)?;
        devices.into_iter().next().ok_or_else(|| {
            Failure::new(format!("the disk of node {number} is gone"))
                .hint("`weir testbed down` removes the rest")
        })
    }

    /// The traffic of a node's disk since the testbed was made.
    pub fn disk_counts(&self, place: &Place, number: u32) -> Done<Counts> {
        let before = self.node(number)?.counted;
        let now = self.device(place, number)?.counts().map_err(failed)?;
        Ok(Counts {
            read_bytes: now.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: now.written_bytes.saturating_sub(before.written_bytes),
        })
    }
}
