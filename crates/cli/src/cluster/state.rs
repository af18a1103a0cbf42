//! The state directory of a cluster on this machine: where its files are, and the description of
//! the cluster that `weir up` keeps there.
//!
//! ```text
//! cluster.toml            the description of the cluster
//! client.toml             credential of a client                       0600
//! meta.toml meta-N.toml data-N.toml   configuration of each daemon
//! keys/                   master.key server-N.key target-N.key         0600
//! clients/                further credentials                          0600
//! meta/ meta-N/ targets/N/  namespace, of each metadata server; objects  0700
//! etcd/N/                 members of etcd, for several metadata servers 0700
//! run/                    NAME.pid NAME.sock; NAME.metrics of a mount; NAME.net of a testbed;
//!                         reserve: space for commands on a full disk
//! log/                    NAME.log
//! ```

use crate::cluster::secret;
use crate::cluster::spares;
use crate::failure::{Done, Failure};
use crate::progress::Progress;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The path of a state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    dir: PathBuf,
}

/// The contents of `cluster.toml`.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The name of the cluster, for people.
    pub name: String,
    /// The identity of the cluster: 32 hexadecimal digits.
    pub id: String,
    /// The `address:port` of the metadata server.
    pub metadata: String,
    /// Whether the metadata server is on another machine (`weir join`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joined: bool,
    /// The default stripe unit of new files, in bytes. 0: the built-in default.
    #[serde(default)]
    pub stripe_unit_bytes: u32,
    /// The copies of new files. 0: the built-in default, one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub copies: u8,
    /// The address of this machine at which its daemons and mounts serve metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<IpAddr>,
    /// The lowest level of protection with which all metadata servers were started; `args` if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protection: Option<String>,
    /// Directories that `weir up --mount` made.
    #[serde(default)]
    pub made_mountpoints: Vec<PathBuf>,
    /// The target that is being added.
    #[serde(default)]
    pub adding: Option<Adding>,
    /// The data servers of this machine.
    #[serde(rename = "server", default)]
    pub servers: Vec<ServerDescription>,
    /// The numbers given to invited machines, whether these have joined or not. They are not given
    /// to others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invited: Vec<Invited>,
    /// The metadata servers beside the first one.
    #[serde(rename = "meta", default, skip_serializing_if = "Vec::is_empty")]
    pub metas: Vec<MetaDescription>,
    /// The members of etcd on this machine that have the journal of several metadata servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub etcd: Vec<EtcdDescription>,
    /// The addresses of etcd that was set up by hand, for metadata servers on several machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub journal: Vec<String>,
}

impl Description {
    /// Whether there are several metadata servers, with a journal.
    pub fn has_journal(&self) -> bool {
        !self.etcd.is_empty() || !self.journal.is_empty()
    }
}

/// A further metadata server of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct MetaDescription {
    /// The number of the server, from 2.
    pub id: u32,
    /// The `address:port` of the server.
    pub address: String,
    /// Whether it is on this machine. Without this: as the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here: Option<bool>,
}

/// A member of etcd.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct EtcdDescription {
    /// The number of the member.
    pub id: u32,
    /// Where it listens for metadata servers: `unix://NAME`, a socket in `etcd/`; or `address:port`,
    /// for members that an older version has made.
    pub client: String,
    /// The same, for the other members.
    pub peer: String,
}

/// The numbers in an invitation.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Invited {
    /// The number of the client.
    pub client: u64,
    /// The number of the data server. 0: there is none.
    pub server: u32,
    /// The numbers of the targets.
    pub targets: Vec<u32>,
    /// The target of a joined server that the only target of this invitation replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u32>,
}

impl Invited {
    /// The note in the credential of the invited machine, for people.
    pub fn note(&self) -> String {
        match self.server {
            0 => "by weir invite".to_owned(),
            server => format!("by weir invite, for the machine of data-{server}"),
        }
    }
}

/// A data server of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ServerDescription {
    /// The number of the server.
    pub id: u32,
    /// The `address:port` of the server.
    pub address: String,
    /// The numbers of the server's targets.
    pub targets: Vec<u32>,
    /// Targets of this server that replace others which still exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replacing: Vec<Replacement>,
}

/// A target that has been made to replace another one of its server (`replacing.rs`).
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    /// The number of the old target.
    pub old: u32,
    /// The number of the new target.
    pub new: u32,
}

/// A target that is being added to an existing server or a new one (`grow.rs`).
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Adding {
    /// The number of the server.
    pub server: u32,
    /// The address of the server if it is new.
    #[serde(default)]
    pub address: Option<String>,
    /// The number of the target.
    pub target: u32,
    /// The directory of the target, unless it is in the state directory.
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// The number of the target to remove once this one is there.
    #[serde(default)]
    pub replaces: Option<u32>,
}

fn is_zero(copies: &u8) -> bool {
    *copies == 0
}

impl Description {
    /// The server that has a target.
    pub fn server_of(&self, target: u32) -> Option<&ServerDescription> {
        self.servers.iter().find(|server| server.targets.contains(&target))
    }

    /// The numbers of all targets of this machine.
    pub fn targets(&self) -> Vec<u32> {
        self.servers.iter().flat_map(|server| server.targets.iter().copied()).collect()
    }

    /// The last port on which a server of this machine listens.
    pub fn last_port(&self) -> u16 {
        let metas = self.metas.iter().map(|meta| &meta.address).chain([&self.metadata]);
        let all = self.servers.iter().map(|server| &server.address).chain(metas);
        let port = |at: &String| at.parse().ok().map(|at: SocketAddr| at.port());
        all.filter_map(port).max().unwrap_or_default()
    }

    /// Returns a number that no data server has, had or was promised: `free` or a greater one.
    pub fn free_server(&self, free: u32) -> u32 {
        let here = self.servers.iter().map(|server| server.id);
        let invited = self.invited.iter().map(|invited| invited.server);
        here.chain(invited).map(|known| known.saturating_add(1)).fold(free, u32::max)
    }

    /// Returns a number that no target has, had or was promised: `free` or a greater one.
    pub fn free_target(&self, free: u32) -> u32 {
        let invited = self.invited.iter().flat_map(|invited| invited.targets.iter().copied());
        let known = self.targets().into_iter().chain(invited);
        known.map(|known| known.saturating_add(1)).fold(free, u32::max)
    }
}

/// The file in `run/` that reserves space for commands on a full disk.
pub const RESERVE: &str = "reserve";
/// How much space a command may need on a full disk for pid files, descriptions and logs.
const RESERVE_BYTES: usize = 256 << 10;

/// The lock of a cluster, which excludes other commands that change the same cluster. While it is
/// held, a part of the reserved space is free, so that commands work on a full disk. A directory
/// without a cluster has no reserve.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
    state: StateDir,
}

impl StateLock {
    fn new(file: File, state: StateDir) -> Self {
        if state.exists() {
            // The rest is for pid files: see [`give_up_reserve`].
            give_up_reserve(&state.reserve_file(), RESERVE_BYTES / 2);
        }
        Self { _file: file, state }
    }
}

/// Frees `bytes` of a reserve. Returns `false` if nothing was left of it. A new cluster has no
/// reserve, nor has one whose last command left the disk full.
pub fn give_up_reserve(path: &Path, bytes: usize) -> bool {
    let give_up = || -> std::io::Result<bool> {
        let file = File::options().write(true).open(path)?;
        let held = file.metadata()?.len();
        file.set_len(held.saturating_sub(bytes as u64))?;
        Ok(held > 0)
    };
    give_up().unwrap_or(false)
}

impl Drop for StateLock {
    fn drop(&mut self) {
        if self.state.exists() {
            // Fills the reserve as far as there is room.
            if let Some(run) = self.state.reserve_file().parent() {
                spares::make(run);
            }
            let _ = std::fs::write(self.state.reserve_file(), vec![0; RESERVE_BYTES]);
        }
    }
}

/// The longest path of a Unix socket, in bytes, without the final zero.
const MAX_SOCKET_PATH_BYTES: usize = 107;

impl StateDir {
    /// The state directory at an absolute path, which need not exist.
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The path of the state directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the directory contains a cluster.
    pub fn exists(&self) -> bool {
        self.description_file().is_file()
    }

    /// Fails if the directory contains no cluster.
    pub fn require(&self) -> Done {
        if self.exists() {
            return Ok(());
        }
        Err(Failure::new(format!("there is no cluster in {}", self.dir.display())).hint(
            "`weir up` makes one; for another, give --name, --dir, or --credential FILE for one \
             elsewhere",
        ))
    }

    /// Makes the directories of a new cluster. The state directory must be missing or empty.
    pub fn make(&self) -> Done {
        let used = std::fs::read_dir(&self.dir)
            .is_ok_and(|entries| entries.flatten().any(|e| e.path() != self.lock_file()));
        if used {
            return Err(Failure::new(format!(
                "{} is not empty, and no cluster is in it",
                self.dir.display()
            ))
            .hint("choose another directory, or empty it"));
        }
        for (dir, mode) in [
            ("keys", 0o700),
            ("clients", 0o700),
            ("meta", 0o700),
            ("targets", 0o700),
            ("run", 0o755),
            ("log", 0o755),
        ] {
            make_dir(&self.dir.join(dir), mode)?;
        }
        Ok(())
    }

    /// Takes the lock of a cluster that is here.
    pub fn lock(&self) -> Done<StateLock> {
        self.require()?;
        self.take_lock()
    }

    /// Takes the lock of a cluster that may be about to be made: makes the directory if it is
    /// missing.
    pub fn lock_new(&self) -> Done<StateLock> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder.create(&self.dir).map_err(|e| Failure::file(&self.dir, e))?;
        self.take_lock()
    }

    fn take_lock(&self) -> Done<StateLock> {
        let path = self.lock_file();
        let file = File::create(&path).map_err(|e| Failure::file(&path, e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(StateLock::new(file, self.clone())),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Failure::new(format!(
                "another command is changing the cluster in {}",
                self.dir.display()
            ))
            .hint("wait for it to finish, then try again")),
            Err(e) => Err(Failure::file(&path, e)),
        }
    }

    /// Reads the description of the cluster.
    pub fn description(&self) -> Done<Description> {
        self.require()?;
        let path = self.description_file();
        let text = std::fs::read_to_string(&path).map_err(|e| Failure::file(&path, e))?;
        toml::from_str(&text).map_err(|e| Failure::new(e.to_string()).about(path.display()))
    }

    /// Replaces the description of the cluster atomically.
    pub fn set_description(&self, description: &Description) -> Done {
        let text = toml::to_string(description).map_err(|e| Failure::new(e.to_string()))?;
        secret::replace_public(&self.description_file(), &text)
    }

    /// Deletes the cluster with everything in the directory, and the parent directory if it is
    /// empty then.
    pub fn purge(&self) -> Done {
        self.purge_targets()?;
        std::fs::remove_dir_all(&self.dir).map_err(|e| Failure::file(&self.dir, e))?;
        if let Some(parent) = self.dir.parent().filter(|p| p.ends_with("weir")) {
            // This fails if the directory has other clusters, and it stays.
            let _ = std::fs::remove_dir(parent);
        }
        Ok(())
    }

    /// The directories of targets outside the state directory. [`Self::purge`] does not delete
    /// them.
    pub fn targets_elsewhere(&self) -> Vec<PathBuf> {
        let targets = std::fs::read_dir(self.dir.join("targets")).into_iter().flatten().flatten();
        let mut dirs: Vec<PathBuf> =
            targets.flat_map(|target| std::fs::read_link(target.path())).collect();
        dirs.sort();
        dirs
    }

    /// Deletes all targets at the same time, since each may be on a disk of its own. The
    /// description is deleted after them, so that an interrupted purge can be repeated.
    fn purge_targets(&self) -> Done {
        let Ok(targets) = std::fs::read_dir(self.dir.join("targets")) else { return Ok(()) };
        // A link leads to a directory that `weir up` did not make: only the link is removed.
        let targets: Vec<PathBuf> =
            targets.flatten().map(|target| target.path()).filter(|t| !t.is_symlink()).collect();
        let parts: Vec<Vec<PathBuf>> = targets.iter().map(|target| parts_of(target)).collect();
        let progress = Progress::start(false, parts.iter().map(Vec::len).sum::<usize>() as u64);
        progress.say(|| format!("deleting {} targets", targets.len()));
        let purged = std::thread::scope(|scope| {
            let each = targets.iter().zip(&parts);
            let removals: Vec<_> = each
                .map(|(target, parts)| {
                    let progress = &progress;
                    scope.spawn(move || purge_target(target, parts, progress))
                })
                .collect();
            removals.into_iter().zip(&targets).try_for_each(|(removal, target)| {
                match removal.join() {
                    Ok(removed) => removed.map_err(|e| Failure::file(target, e)),
                    Err(_) => Err(Failure::new("a thread panicked")),
                }
            })
        });
        progress.finish();
        purged
    }

    fn description_file(&self) -> PathBuf {
        self.dir.join("cluster.toml")
    }
    /// The file with the reserved space: see [`StateLock`].
    fn reserve_file(&self) -> PathBuf {
        self.dir.join("run").join(RESERVE)
    }

    fn lock_file(&self) -> PathBuf {
        self.dir.join(".lock")
    }
    /// The credential of `weir up`.
    pub fn credential_file(&self) -> PathBuf {
        self.dir.join("client.toml")
    }
    /// The directory of further credentials.
    pub fn clients_dir(&self) -> PathBuf {
        self.dir.join("clients")
    }
    /// The file of a key.
    pub fn key_file(&self, name: &str) -> PathBuf {
        self.dir.join("keys").join(format!("{name}.key"))
    }
    /// The configuration file of a daemon.
    pub fn config_file(&self, daemon: &str) -> PathBuf {
        self.dir.join(format!("{daemon}.toml"))
    }
    /// The pid file of a daemon.
    pub fn pid_file(&self, daemon: &str) -> PathBuf {
        self.dir.join("run").join(format!("{daemon}.pid"))
    }
    /// The directory of the logs.
    pub fn log_dir(&self) -> PathBuf {
        self.dir.join("log")
    }
    /// The log of a daemon.
    pub fn log_file(&self, daemon: &str) -> PathBuf {
        self.log_dir().join(format!("{daemon}.log"))
    }
    /// The Unix socket of a daemon. `None` if its path would be too long, or if the daemon has a
    /// network namespace of its own, through which it is always reached.
    pub fn socket_file(&self, daemon: &str) -> Option<PathBuf> {
        let path = self.dir.join("run").join(format!("{daemon}.sock"));
        let is_apart = self.network_file(daemon).is_symlink();
        (!is_apart && path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES).then_some(path)
    }
    /// A link to the network namespace of a daemon, if it has one (`weir testbed`).
    pub fn network_file(&self, daemon: &str) -> PathBuf {
        self.dir.join("run").join(format!("{daemon}.net"))
    }
    /// The file with the metrics address of a mount.
    pub fn metrics_file(&self, daemon: &str) -> PathBuf {
        self.dir.join("run").join(format!("{daemon}.metrics"))
    }
    /// The directory of the metadata.
    pub fn metadata_dir(&self) -> PathBuf {
        self.dir.join("meta")
    }
    /// The directory of the metadata of a metadata server, by the name of its daemon.
    pub fn meta_dir(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
    /// The directories of all members of etcd.
    pub fn etcd_dirs(&self) -> PathBuf {
        self.dir.join("etcd")
    }
    /// The directory of a member of etcd.
    pub fn etcd_dir(&self, member: u32) -> PathBuf {
        self.etcd_dirs().join(member.to_string())
    }
    /// The directory of a target.
    pub fn target_dir(&self, target: u32) -> PathBuf {
        self.dir.join("targets").join(target.to_string())
    }
}

/// Makes a directory and its missing parents with this mode.
pub fn make_dir(path: &Path, mode: u32) -> Done {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(mode);
    builder.create(path).map_err(|e| Failure::file(path, e))
}

/// The directories in which a target has its objects.
fn parts_of(target: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(target.join("objects")) else { return Vec::new() };
    let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| entry.path()).collect()
}

/// Deletes a target part by part, so that progress can be shown.
fn purge_target(target: &Path, parts: &[PathBuf], progress: &Progress) -> std::io::Result<()> {
    for part in parts {
        std::fs::remove_dir_all(part)?;
        progress.advance(1);
    }
    std::fs::remove_dir_all(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_survives_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path().join("weir/a"));
        assert!(state.require().unwrap_err().hint.is_some());
        assert!(state.lock().is_err(), "nothing is locked that is not there");
        assert!(!dir.path().join("weir").exists(), "nor is it made");
        let lock = state.lock_new().unwrap();
        state.make().unwrap();
        let description = Description {
            name: "a".into(),
            id: "00".repeat(16),
            metadata: "127.0.0.1:20000".into(),
            joined: false,
            stripe_unit_bytes: 65536,
            copies: 2,
            metrics: Some("127.0.0.1".parse().unwrap()),
            protection: Some("data".into()),
            made_mountpoints: vec!["/mnt/a".into()],
            adding: Some(Adding {
                server: 1,
                address: None,
                target: 3,
                dir: Some("/d".into()),
                replaces: Some(2),
            }),
            servers: vec![ServerDescription {
                id: 1,
                address: "127.0.0.1:20001".into(),
                targets: vec![1, 2],
                replacing: vec![Replacement { old: 1, new: 2 }],
            }],
            invited: vec![
                Invited { client: 11, server: 7, targets: vec![8, 9], replaces: None },
                Invited { client: 11, server: 7, targets: vec![10], replaces: Some(8) },
            ],
            metas: vec![MetaDescription {
                id: 2,
                address: "127.0.0.1:20002".into(),
                here: Some(false),
            }],
            etcd: vec![EtcdDescription {
                id: 1,
                client: "127.0.0.1:20003".into(),
                peer: "127.0.0.1:20004".into(),
            }],
            journal: vec!["http://10.0.0.1:2379".into()],
        };
        assert_eq!(description.last_port(), 20002);
        assert_eq!((description.free_server(3), description.free_server(30)), (8, 30));
        assert_eq!((description.free_target(3), description.free_target(30)), (11, 30));
        state.set_description(&description).unwrap();
        assert_eq!(state.description().unwrap(), description);
        assert!(state.lock().is_err(), "the lock is held");
        drop(lock);
        state.purge().unwrap();
        assert!(!dir.path().join("weir").exists());
    }

    #[test]
    fn a_directory_with_other_things_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("thesis.tex"), "").unwrap();
        let state = StateDir::at(dir.path().to_owned());
        std::fs::create_dir(dir.path().join("run")).unwrap();
        let foreign = state.reserve_file();
        std::fs::write(&foreign, "somebody else's").unwrap();
        let lock = state.lock_new().unwrap();
        assert!(state.make().unwrap_err().message.contains("not empty"));
        drop(lock);
        assert_eq!(std::fs::read(&foreign).unwrap(), b"somebody else's");
        std::fs::remove_file(&foreign).unwrap();
        drop(state.lock_new().unwrap());
        assert!(!foreign.exists());
    }
}
