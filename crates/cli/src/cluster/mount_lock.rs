//! One `weir mount` at a time for each directory that holds mountpoints: two
//! at once would both find the place free, and mount one over the other.

use crate::failure::{Done, Failure};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long another one may take: a little more than a daemon to start.
const PATIENCE: Duration = Duration::from_secs(35);
/// How often to look whether it is done.
const AGAIN: Duration = Duration::from_millis(50);

/// Held while something is being mounted.
pub struct MountLock {
    /// Nothing if the directory cannot be opened: whoever may not read it can
    /// mount there without.
    _held: Option<OwnedFd>,
}

impl MountLock {
    /// Waits until no other `weir mount` is at work in the mountpoint's
    /// directory.
    pub fn take(mountpoint: &Path) -> Done<Self> {
        let parent = mountpoint.parent().unwrap_or(mountpoint);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(held) = open(parent, flags, Mode::empty()) else { return Ok(Self { _held: None }) };
        let begin = Instant::now();
        loop {
            match flock(&held, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _held: Some(held) }),
                Err(Errno::WOULDBLOCK) if begin.elapsed() < PATIENCE => std::thread::sleep(AGAIN),
                Err(Errno::WOULDBLOCK) => {
                    return Err(Failure::new("another `weir mount` does not come to its end")
                        .about(parent.display())
                        .hint("look what it waits for: `weir status`, or its log"));
                }
                // A file system that has no locks.
                Err(_) => return Ok(Self { _held: None }),
            }
        }
    }
}
