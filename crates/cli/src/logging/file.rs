//! The file of a detached daemon's log, which it keeps short itself.
//!
//! A log has its share of what the logs of its directory may take. When it has reached that it is
//! renamed (`data-1.log.1`, over the one that had that name), and a new one is begun. What was
//! renamed, and logs of daemons that are gone, go when they are too much, the oldest first.
//!
//! Who writes a log holds a shared lock on its file; nobody removes one that is locked.

use crate::output::ByteSize;
use rustix::fs::{FlockOperation, flock, fstat};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// What a log may have, however many there are in its directory.
const MIN_SHARE_BYTES: u64 = 64 << 10;
/// How often it is looked whether the file still has its name.
const LOOK: Duration = Duration::from_secs(1);

/// The name of what was a log before the one of this name.
pub fn older(log: &Path) -> PathBuf {
    let mut name = OsString::from(log);
    name.push(".1");
    name.into()
}

/// Opens a log to add to it, and holds it.
pub fn hold(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    // Who removes it just now has it locked for that moment: then the writer finds that its file
    // has no name, and opens another one.
    let _ = flock(&file, FlockOperation::NonBlockingLockShared);
    Ok(file)
}

/// The log that is standard error of this process.
pub struct LogFile {
    path: PathBuf,
    /// What all logs of the directory may take.
    limit: u64,
    share: u64,
    /// The size at which the share is worked out anew.
    next_look: u64,
    looked: Option<Instant>,
}

impl LogFile {
    /// Of this path, in a directory whose logs take so much at most.
    pub fn new(path: &Path, limit: ByteSize) -> Self {
        Self { path: path.to_owned(), limit: limit.0, share: 0, next_look: 0, looked: None }
    }

    /// Begins a new file if this one is long enough, or has lost its name. Whatever fails, what
    /// there is goes on, and it is tried again.
    pub fn tend(&mut self) {
        let Ok(open) = fstat(rustix::stdio::stderr()) else { return };
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            let is_first = self.looked.replace(Instant::now()).is_none();
            let named = std::fs::metadata(&self.path);
            if !named.is_ok_and(|named| (named.dev(), named.ino()) == (open.st_dev, open.st_ino)) {
                return self.begin();
            }
            if is_first {
                self.clear();
            }
        }
        let size = u64::try_from(open.st_size).unwrap_or(0);
        if size >= self.next_look {
            self.share = share(self.limit, logs_beside(&self.path).len());
            self.next_look = size + MIN_SHARE_BYTES;
        }
        if size >= self.share && std::fs::rename(&self.path, older(&self.path)).is_ok() {
            self.begin();
        }
    }

    /// Standard error becomes the file that has the name, a new one if none has.
    fn begin(&mut self) {
        let Ok(file) = hold(&self.path) else { return };
        if rustix::stdio::dup2_stderr(&file).is_ok() {
            self.next_look = 0;
            self.clear();
        }
    }

    /// Removes the oldest logs that nobody writes while they take more than half of what all may:
    /// the other half is for those that are written.
    fn clear(&self) {
        let mut idle: Vec<Idle> =
            logs_beside(&self.path).iter().filter_map(|path| Idle::at(path)).collect();
        idle.sort_by_key(|log| std::cmp::Reverse(log.written));
        let mut taken = 0;
        for log in idle {
            taken += log.bytes;
            // If it cannot be removed, the next one who looks tries again.
            if taken > self.limit / 2 && std::fs::remove_file(&log.path).is_ok() {
                taken -= log.bytes;
            }
        }
    }
}

/// What one of so many files may have, so that those which are written take half of all.
fn share(limit: u64, logs: usize) -> u64 {
    (limit / 2 / (logs as u64).max(1)).max(MIN_SHARE_BYTES)
}

/// All logs in the directory of this one, the older ones too.
fn logs_beside(path: &Path) -> Vec<PathBuf> {
    let Some(Ok(entries)) = path.parent().map(std::fs::read_dir) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| is_log(path)).collect()
}

fn is_log(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(".1").unwrap_or(&name).ends_with(".log")
}

/// A log that nobody writes, locked so that nobody begins to.
struct Idle {
    path: PathBuf,
    bytes: u64,
    written: SystemTime,
    _locked: File,
}

impl Idle {
    /// `None` if somebody writes it.
    fn at(path: &Path) -> Option<Self> {
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let metadata = file.metadata().ok().filter(|metadata| metadata.is_file())?;
        let written = metadata.modified().ok()?;
        Some(Self { path: path.to_owned(), bytes: metadata.len(), written, _locked: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_logs_that_nobody_writes_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, bytes: u64, second: u64| {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_len(bytes).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(second)).unwrap();
        };
        make("data-1.log.1", 100, 1);
        make("mount-gone.log", 100, 2);
        make("data-2.log.1", 100, 3);
        make("other.txt", 1000, 0);
        make("data-1.log", 1000, 0);
        let held = hold(&dir.path().join("data-1.log")).unwrap();
        LogFile::new(&dir.path().join("meta.log"), ByteSize(400)).clear();
        let left = |name: &str| dir.path().join(name).exists();
        assert!(!left("data-1.log.1") && left("mount-gone.log") && left("data-2.log.1"));
        assert!(left("data-1.log") && left("other.txt"), "what is written stays");
        drop(held);
        LogFile::new(&dir.path().join("meta.log"), ByteSize(400)).clear();
        assert!(!left("data-1.log"));
    }

    #[test]
    fn logs_share_half_of_what_they_may_take() {
        assert_eq!(share(256 << 20, 4), 32 << 20);
        assert_eq!(share(1 << 20, 1000), MIN_SHARE_BYTES);
    }
}
