//! Allows one `weir mount` at a time for each mountpoint: two at once would both find it free and
//! mount one over the other.
//!
//! The lock is a file in a directory that only this user can open, so that no other user can take
//! it.

use crate::cluster::state::make_dir;
use crate::failure::{Done, Failure};
use crate::settings;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_types::checksum::crc32c;

/// How long to wait for another `weir mount`: a little longer than a daemon may take to start.
const PATIENCE: Duration = Duration::from_secs(35);
/// The interval of attempts to take the lock.
const AGAIN: Duration = Duration::from_millis(50);

/// A lock, held while a file system is being mounted.
pub struct MountLock {
    /// `None` if the file cannot be made, as on a read-only `/run`. Mounting works without the
    /// lock.
    _held: Option<OwnedFd>,
}

impl MountLock {
    /// Waits until no other `weir mount` is at work on the mountpoint.
    pub fn take(mountpoint: &Path) -> Done<Self> {
        let Some(held) = lock_file(mountpoint) else { return Ok(Self { _held: None }) };
        let begin = Instant::now();
        loop {
            match flock(&held, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _held: Some(held) }),
                Err(Errno::WOULDBLOCK) if begin.elapsed() < PATIENCE => std::thread::sleep(AGAIN),
                Err(Errno::WOULDBLOCK) => {
                    return Err(Failure::new("another `weir mount` does not end")
                        .about(mountpoint.display())
                        .hint("see what it waits for: `weir status`, or its log"));
                }
                // The file system has no locks.
                Err(_) => return Ok(Self { _held: None }),
            }
        }
    }
}

/// Opens the lock file of a mountpoint. The file is never removed, so that all processes lock the
/// same one.
fn lock_file(mountpoint: &Path) -> Option<OwnedFd> {
    let dir = settings::runtime_dir().ok()?;
    make_dir(&dir, 0o700).ok()?;
    let name = format!("mount-{:08x}.lock", crc32c(mountpoint.as_os_str().as_bytes()));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(dir.join(name), flags, Mode::RUSR | Mode::WUSR).ok()
}
