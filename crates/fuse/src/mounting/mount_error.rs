//! Why a mount or unmount failed, and what to do about it.

use std::fmt;
use std::path::PathBuf;

use weir_types::{Error, ErrorKind};

/// Why mounting or unmounting failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MountError {
    /// Contradictory options.
    BadConfig(String),
    /// There is no `/dev/fuse`.
    NoDevice,
    /// `/dev/fuse` cannot be opened; with the reason, and what to do.
    DeviceDenied(String),
    /// The mountpoint does not exist.
    NoMountpoint(PathBuf),
    /// The mountpoint is not a directory.
    NotDirectory(PathBuf),
    /// Something is mounted there already.
    Occupied {
        /// The mountpoint.
        mountpoint: PathBuf,
        /// Source of the present mount.
        source: String,
        /// Type of the present mount.
        fstype: String,
    },
    /// Not root, and `fusermount3` is missing.
    NoHelper,
    /// `fusermount3` has failed; with its output.
    Helper(String),
    /// The file system is in use and cannot be unmounted.
    InUse(PathBuf),
    /// No mount of this process is there (any more).
    NotMounted(PathBuf),
    /// The kernel's protocol is too old.
    OldKernel {
        /// Its version, `major.minor`.
        version: String,
    },
    /// A system call failed.
    System {
        /// The failed step.
        what: &'static str,
        /// The error number.
        errno: i32,
    },
}

impl MountError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System { what, errno: errno.raw_os_error() }
    }
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadConfig(problem) => f.write_str(problem),
            Self::NoDevice => f.write_str(
                "/dev/fuse is missing: load the module (modprobe fuse), or in a container pass \
                 --device /dev/fuse",
            ),
            Self::DeviceDenied(why) => write!(f, "/dev/fuse cannot be opened: {why}"),
            Self::NoMountpoint(path) => {
                write!(f, "{} does not exist: make the directory first", path.display())
            }
            Self::NotDirectory(path) => {
                write!(f, "{} is not a directory: mount on a directory", path.display())
            }
            Self::Occupied { mountpoint, source, fstype } => write!(
                f,
                "{} is busy: {source} ({fstype}) is mounted there; unmount it first (umount {0})",
                mountpoint.display()
            ),
            Self::NoHelper => f.write_str(
                "mounting without root needs fusermount3: install the package fuse3, or run as \
                 root",
            ),
            Self::Helper(said) => write!(f, "fusermount3 failed: {said}"),
            Self::InUse(path) => write!(
                f,
                "{} is in use: end the programs that use it (fuser -vm {0}), or unmount lazily",
                path.display()
            ),
            Self::NotMounted(path) => write!(f, "{} is not mounted", path.display()),
            Self::OldKernel { version } => write!(
                f,
                "the kernel's FUSE protocol {version} is too old: Linux 5.4 or newer is needed"
            ),
            Self::System { what, errno } => {
                write!(f, "{what}: {}", std::io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl std::error::Error for MountError {}

impl From<MountError> for Error {
    fn from(error: MountError) -> Self {
        let kind = match &error {
            MountError::BadConfig(_) => ErrorKind::InvalidArgument,
            MountError::NoDevice | MountError::NoMountpoint(_) | MountError::NotMounted(_) => {
                ErrorKind::NotFound
            }
            MountError::DeviceDenied(_) | MountError::NoHelper => ErrorKind::NotPermitted,
            MountError::NotDirectory(_) => ErrorKind::NotDirectory,
            MountError::Occupied { .. } | MountError::InUse(_) => ErrorKind::Busy,
            MountError::OldKernel { .. } => ErrorKind::Unsupported,
            MountError::Helper(_) | MountError::System { .. } => ErrorKind::Io,
        };
        Self::new(kind, error.to_string())
    }
}
