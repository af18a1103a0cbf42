//! Options for mounting and serving a file system.

use rustix::mount::MountFlags;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Which process calls `mount(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MountWith {
    /// This process if permitted, otherwise `fusermount3`.
    #[default]
    Auto,
    /// This process.
    Direct,
    /// `fusermount3`, which is setuid root.
    Helper,
}

/// Options of a mount. The defaults suit a large shared file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The first column of `/proc/mounts`, such as `weir:NAME`.
    pub source: String,
    /// The type is `fuse.` followed by this.
    pub subtype: String,
    /// Which process calls `mount(2)`.
    pub mount_with: MountWith,
    /// Whether users other than the mounting one have access.
    pub allow_other: bool,
    /// Whether the kernel checks permission bits (and ACLs).
    pub default_permissions: bool,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Whether setuid programs work (root only).
    pub suid: bool,
    /// Whether device files work (root only).
    pub dev: bool,
    /// Whether programs can be executed.
    pub exec: bool,
    /// Flags in `/proc/mounts` about access times, which the file system itself maintains (needs
    /// root).
    pub access_flags: MountFlags,

    /// The largest read or write request, bytes: 128 KiB to 16 MiB, in whole pages. Beyond 1 MiB
    /// the kernel must allow it (`fs.fuse.max_pages_limit`).
    pub max_io_bytes: usize,
    /// The kernel's read-ahead, KiB. Setting it needs root.
    pub read_ahead_kib: u32,
    /// The most background requests (read-ahead, writeback, pieces of large direct reads and
    /// writes) that the kernel may send at once; at most half of [`Config::max_workers`], because
    /// some of them wait for others, which need threads, too.
    pub max_background: u16,

    /// Number of threads that wait for requests when idle, at least 1.
    pub waiting_workers: usize,
    /// The most threads, reached while operations block. A few more serve reads into and writeback
    /// from the page cache. Each has buffers of twice [`Config::max_io_bytes`], of which only used
    /// parts are in memory.
    pub max_workers: usize,
    /// The most calls that wait for locks, each in its own thread with its own descriptors. Further
    /// ones are refused with `ENOLCK`.
    pub max_lock_waits: usize,
    /// The most bytes of written data that the file system may hold without a copy; see
    /// [`crate::WriteData::take`].
    pub write_pool_bytes: usize,
    /// How long the end of the mount waits for running operations, and then for calls that wait for
    /// locks.
    pub drain_timeout: Duration,
    /// Tell the kernel that this process writes back memory on its behalf, so that memory pressure
    /// cannot deadlock it. Skipped without `CAP_SYS_RESOURCE`.
    pub io_flusher: bool,

    /// How long the kernel may cache that a name does not exist.
    pub negative_ttl: Duration,
    /// The kernel drops cached data only on [`crate::Notifier::inval_inode`]; otherwise also when
    /// size or mtime have changed.
    pub explicit_inval_data: bool,
    /// Listings include attributes where the kernel finds it worthwhile.
    pub readdirplus: bool,
    /// Byte-range locks are handled by the file system.
    pub posix_locks: bool,
    /// `flock(2)` is handled by the file system.
    pub flock_locks: bool,
    /// ACLs are on; the file system then applies umask and default ACLs.
    pub posix_acl: bool,
    /// The kernel buffers writes. Only safe while no other client writes.
    pub writeback_cache: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            source: "weir".into(),
            subtype: "weir".into(),
            mount_with: MountWith::Auto,
            allow_other: false,
            default_permissions: true,
            read_only: false,
            suid: false,
            dev: false,
            exec: true,
            access_flags: MountFlags::empty(),
            max_io_bytes: 1 << 20,
            read_ahead_kib: 4096,
            max_background: 64,
            waiting_workers: 2,
            max_workers: 128,
            max_lock_waits: 1024,
            write_pool_bytes: 64 << 20,
            drain_timeout: Duration::from_secs(5),
            io_flusher: true,
            negative_ttl: Duration::ZERO,
            explicit_inval_data: false,
            readdirplus: true,
            posix_locks: false,
            flock_locks: false,
            posix_acl: false,
            writeback_cache: false,
        }
    }
}

/// Limits of [`Config::max_io_bytes`].
pub(crate) const IO_BYTES: std::ops::RangeInclusive<usize> = (128 << 10)..=(16 << 20);

impl Config {
    /// [`Config::max_background`] within its limits.
    pub(crate) fn background(&self) -> u16 {
        let most = u16::try_from(self.max_workers / 2).unwrap_or(u16::MAX);
        self.max_background.min(most).max(1)
    }

    /// The error in the options, if there is one.
    pub(crate) fn problem(&self) -> Option<String> {
        let plain = |text: &str| {
            !text.is_empty() && !text.contains([',', '\0', '\n', '\\']) && text.len() < 256
        };
        if !plain(&self.source) || !plain(&self.subtype) {
            Some(format!("source {:?} or type {:?} cannot be used", self.source, self.subtype))
        } else if !IO_BYTES.contains(&self.max_io_bytes) || !self.max_io_bytes.is_multiple_of(4096)
        {
            Some(format!("max_io_bytes {} is not whole pages of 128 KiB to 16 MiB", {
                self.max_io_bytes
            }))
        } else if self.waiting_workers == 0 || self.max_workers < self.waiting_workers {
            Some("there must be at least one worker, and max_workers no fewer than wait".into())
        } else {
            None
        }
    }

    /// The file system options for the mount system calls.
    pub(crate) fn direct_options(&self, device: &OwnedFd) -> String {
        format!(
            "fd={},rootmode=40000,user_id={},group_id={},{}",
            device.as_raw_fd(),
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
            self.mount_options()
        )
    }

    /// The mount flags for the mount system calls.
    pub(crate) fn direct_flags(&self) -> MountFlags {
        let mut flags = self.access_flags;
        flags.set(MountFlags::NOSUID, !self.suid);
        flags.set(MountFlags::NODEV, !self.dev);
        flags.set(MountFlags::NOEXEC, !self.exec);
        flags.set(MountFlags::RDONLY, self.read_only);
        flags
    }

    /// The options as text, for `mount(2)` (without those that name the caller) and for
    /// `fusermount3`.
    pub(crate) fn mount_options(&self) -> String {
        let mut options = format!("max_read={}", self.max_io_bytes);
        for (on, name) in
            [(self.default_permissions, ",default_permissions"), (self.allow_other, ",allow_other")]
        {
            if on {
                options.push_str(name);
            }
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_options_are_refused() {
        assert_eq!(Config::default().problem(), None);
        let odd = [
            Config { source: "a,allow_other".into(), ..Config::default() },
            Config { max_io_bytes: 1 << 30, ..Config::default() },
            Config { max_io_bytes: (1 << 20) + 1, ..Config::default() },
            Config { waiting_workers: 0, ..Config::default() },
            Config { max_workers: 1, ..Config::default() },
        ];
        assert!(odd.iter().all(|config| config.problem().is_some()));
    }

    #[test]
    fn requests_that_wait_for_others_leave_threads_for_those() {
        let background = |max_background, max_workers| {
            Config { max_background, max_workers, ..Config::default() }.background()
        };
        assert_eq!(Config::default().background(), 64);
        assert_eq!((background(64, 16), background(4, 16)), (8, 4));
        assert_eq!((background(64, 2), background(64, 3)), (1, 1));
    }
}
