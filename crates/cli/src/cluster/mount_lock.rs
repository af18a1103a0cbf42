//! One `weir mount` at a time for each mountpoint: two at once would both find the
//! place free, and mount one over the other.
//!
//! The lock is a file in a directory of this user's own: what others can open, they
//! can lock.

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

/// How long another one may take: a little more than a daemon to start.
const PATIENCE: Duration = Duration::from_secs(35);
/// How often to look whether it is done.
const AGAIN: Duration = Duration::from_millis(50);

/// Held while something is being mounted.
pub struct MountLock {
    /// Nothing if there is no place for the file (a read-only `/run`): mounting
    /// there works without.
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
                    return Err(Failure::new("another `weir mount` does not come to its end")
                        .about(mountpoint.display())
                        .hint("look what it waits for: `weir status`, or its log"));
                }
                // A file system that has no locks.
                Err(_) => return Ok(Self { _held: None }),
            }
        }
    }
}

/// The file of a mountpoint. It stays, empty, so that all who come meet at the same one.
fn lock_file(mountpoint: &Path) -> Option<OwnedFd> {
    let dir = settings::runtime_dir().ok()?;
    make_dir(&dir, 0o700).ok()?;
    let name = format!("mount-{:08x}.lock", crc32c(mountpoint.as_os_str().as_bytes()));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(dir.join(name), flags, Mode::RUSR | Mode::WUSR).ok()
}
