//! The log file of a daemon. The daemon itself limits its size.
//!
//! The logs of daemons that `weir` started share one limit for their directory. A log given by hand
//! has a limit of its own. When a log reaches its share it is renamed (`data-1.log.1`, replacing an
//! older one) and a new one is begun. If renamed logs and the logs of ended daemons take too much,
//! the oldest are removed.
//!
//! The writer of a log holds a shared lock on its file. A file that is locked, or that is not a log
//! of Weir, is never removed.

use crate::cluster::names::META;
use crate::text::ByteSize;
use rustix::fs::{FlockOperation, flock, fstat};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The least share of a log, in bytes, however many logs are in its directory.
const MIN_SHARE_BYTES: u64 = 64 << 10;
/// The interval of checks whether the file still has its name.
const LOOK: Duration = Duration::from_secs(1);

/// The name to which a log is renamed.
pub fn older(log: &Path) -> PathBuf {
    let mut name = OsString::from(log);
    name.push(".1");
    name.into()
}

/// Opens a log for appending and locks it.
pub fn hold(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    // A process that is removing the file may hold the lock just now. Then the writer notices that
    // its file has no name, and opens another one. If the file stays, the writer locks it at its
    // next check.
    let _ = flock(&file, FlockOperation::NonBlockingLockShared);
    Ok(file)
}

/// The log file that is standard error of this process.
pub struct LogFile {
    path: PathBuf,
    /// Whether logs of other daemons in the directory share the limit.
    shares: bool,
    /// The limit in bytes for this log, or for all logs that share it.
    limit: u64,
    share: u64,
    /// The size at which the share is computed again.
    next_look: u64,
    looked: Option<Instant>,
}

impl LogFile {
    /// A log with a limit of its own, which includes the renamed file.
    pub fn alone(path: &Path, limit: ByteSize) -> Self {
        let (path, limit) = (path.to_owned(), limit.0);
        Self { path, shares: false, limit, share: 0, next_look: 0, looked: None }
    }

    /// A log in a directory whose logs share a limit.
    pub fn among_daemons(path: &Path, limit: ByteSize) -> Self {
        Self { shares: true, ..Self::alone(path, limit) }
    }

    /// Prepares the log for a write of `bytes`. Begins a new file if this one would exceed its
    /// share or has lost its name. If that fails the present file is used, and the next call tries
    /// again.
    pub fn tend(&mut self, bytes: usize) {
        if let Some(file) = self.successor(rustix::stdio::stderr(), bytes)
            && rustix::stdio::dup2_stderr(&file).is_ok()
        {
            self.clear();
        }
    }

    /// The new file for a write of `bytes`; `None` if the open one is to be used.
    pub fn successor(&mut self, open: impl AsFd, bytes: usize) -> Option<File> {
        let stat = fstat(&open).ok()?;
        let is_named = |path: &Path| is_at(path, (stat.st_dev, stat.st_ino));
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            let is_first = self.looked.replace(Instant::now()).is_none();
            if !is_named(&self.path) {
                return self.begin();
            }
            // Another process may have held the lock when the file was opened.
            let _ = flock(&open, FlockOperation::NonBlockingLockShared);
            if is_first {
                self.clear();
            }
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size >= self.next_look {
            let logs = if self.shares { logs_beside(&self.path).len() } else { 1 };
            self.share = share(self.limit, logs);
            self.next_look = size + MIN_SHARE_BYTES;
        }
        if size == 0 || size + bytes as u64 <= self.share {
            return None;
        }
        // Another process that logs to this path may have renamed the file and begun a new one.
        if is_named(&self.path) {
            std::fs::rename(&self.path, older(&self.path)).ok()?;
        }
        self.begin()
    }

    /// Opens the file with the log's name, or creates it.
    fn begin(&mut self) -> Option<File> {
        self.next_look = 0;
        hold(&self.path).ok()
    }

    /// Removes the oldest logs that no process writes until they take at most half of the limit.
    /// The other half is for logs that are being written.
    fn clear(&self) {
        let logs = if self.shares { logs_beside(&self.path) } else { vec![older(&self.path)] };
        let mut idle: Vec<Idle> = logs.iter().filter_map(|path| Idle::at(path)).collect();
        idle.sort_by_key(|log| std::cmp::Reverse(log.written));
        let mut taken = 0;
        for log in idle {
            taken += log.bytes;
            // If it cannot be removed, the next check tries again.
            if taken > self.limit / 2 && std::fs::remove_file(&log.path).is_ok() {
                taken -= log.bytes;
            }
        }
    }
}

/// The share of each log, so that together they take half of the limit.
fn share(limit: u64, logs: usize) -> u64 {
    (limit / 2 / (logs as u64).max(1)).max(MIN_SHARE_BYTES)
}

/// Whether a path leads to the file with this device and inode.
fn is_at(path: &Path, file: (u64, u64)) -> bool {
    std::fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == file)
}

/// The logs of all daemons in the directory of this one, renamed ones included.
fn logs_beside(path: &Path) -> Vec<PathBuf> {
    let Some(Ok(entries)) = path.parent().map(std::fs::read_dir) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| is_log_of_daemon(path)).collect()
}

/// Whether the file has the name of a log of a server, a mount or a testbed disk.
fn is_log_of_daemon(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(daemon) = name.strip_suffix(".1").unwrap_or(&name).strip_suffix(".log") else {
        return false;
    };
    match daemon.split_once('-') {
        None => daemon == META,
        Some(("data" | "disk" | "meta", number)) => number.parse::<u32>().is_ok(),
        Some(("mount", hash)) => hash.len() == 8 && u32::from_str_radix(hash, 16).is_ok(),
        Some(_) => false,
    }
}

/// A log that no process writes. It is locked, so that none begins to.
struct Idle {
    path: PathBuf,
    bytes: u64,
    written: SystemTime,
    _locked: File,
}

impl Idle {
    /// Locks a log; `None` if a process is writing it.
    fn at(path: &Path) -> Option<Self> {
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let metadata = file.metadata().ok().filter(|metadata| metadata.is_file())?;
        // Another file may have got the name before this one was locked.
        if !is_at(path, (metadata.dev(), metadata.ino())) {
            return None;
        }
        let written = metadata.modified().ok()?;
        Some(Self { path: path.to_owned(), bytes: metadata.len(), written, _locked: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::names::data_name;

    /// A file of this many bytes, last written in this second after 1970.
    fn make(path: &Path, bytes: u64, second: u64) {
        let file = File::create(path).unwrap();
        file.set_len(bytes).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(second)).unwrap();
    }

    #[test]
    fn the_oldest_logs_that_nobody_writes_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        make(&at("data-1.log.1"), 100, 1);
        make(&at("mount-00c0ffee.log"), 100, 2);
        make(&at("data-2.log.1"), 100, 3);
        make(&at("data-1.log"), 1000, 0);
        let held = hold(&at("data-1.log")).unwrap();
        LogFile::among_daemons(&at("meta.log"), ByteSize(400)).clear();
        let left = |name: &str| at(name).exists();
        assert!(!left("data-1.log.1") && left("mount-00c0ffee.log") && left("data-2.log.1"));
        assert!(left("data-1.log"), "what is written stays");
        drop(held);
        LogFile::among_daemons(&at("meta.log"), ByteSize(400)).clear();
        assert!(!left("data-1.log"));
    }

    #[test]
    fn logs_of_other_programs_stay() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let foreign =
            ["syslog.log", "app.log.1", "data-x.log", "metal.log", "mount-me.log", "a.txt"];
        foreign.iter().for_each(|name| make(&at(name), 1000, 0));
        LogFile::among_daemons(&at("meta.log"), ByteSize(400)).clear();
        assert!(foreign.iter().all(|name| at(name).exists()));
        assert_eq!(logs_beside(&at("meta.log")), Vec::<PathBuf>::new(), "they take no share");
    }

    #[test]
    fn beside_a_log_that_was_given_by_hand_only_its_older_one_goes() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let others = ["syslog.log", "data-1.log", "data-1.log.1", "weir.log", "weir.log.2"];
        others.iter().for_each(|name| make(&at(name), 1000, 0));
        make(&at("weir.log.1"), 1000, 0);
        LogFile::alone(&at("weir.log"), ByteSize(400)).clear();
        assert!(others.iter().all(|name| at(name).exists()));
        assert!(!at("weir.log.1").exists());
    }

    #[test]
    fn logs_are_known_by_the_names_of_daemons() {
        for name in [META, "meta-2", &data_name(10), "disk-2", "mount-0123abcd"] {
            let log = PathBuf::from(format!("/l/{name}.log"));
            assert!(is_log_of_daemon(&log) && is_log_of_daemon(&older(&log)), "{name}");
        }
    }

    #[test]
    fn who_finds_its_file_renamed_leaves_the_new_one_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mount-00000000.log");
        let (mut one, mut other) =
            (LogFile::alone(&path, ByteSize(0)), LogFile::alone(&path, ByteSize(0)));
        let (first, same) = (hold(&path).unwrap(), hold(&path).unwrap());
        // Both have just checked that the file has its name.
        assert!(one.successor(&first, 1).is_none() && other.successor(&same, 1).is_none());
        first.set_len(MIN_SHARE_BYTES).unwrap();
        let second = one.successor(&first, 1).unwrap();
        let inode = |file: &File| file.metadata().unwrap().ino();
        assert_eq!(inode(&other.successor(&same, 1).unwrap()), inode(&second));
        let named = |path: &Path| std::fs::metadata(path).unwrap().ino();
        assert_eq!((named(&older(&path)), named(&path)), (inode(&first), inode(&second)));
    }

    #[test]
    fn a_log_that_was_locked_when_it_was_opened_is_held_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta.log");
        make(&path, 1000, 0);
        let idle = Idle::at(&path).unwrap();
        let file = hold(&path).unwrap();
        drop(idle);
        assert!(LogFile::among_daemons(&path, ByteSize(400)).successor(&file, 1).is_none());
        assert!(Idle::at(&path).is_none() && path.exists());
    }

    #[test]
    fn logs_share_half_of_what_they_may_take() {
        assert_eq!(share(256 << 20, 4), 32 << 20);
        assert_eq!(share(1 << 20, 1000), MIN_SHARE_BYTES);
    }
}
