//! The name of a target for error messages, and whether that target is in service.
//!
//! A target is taken out of service when the contents of its disk are uncertain: a sync has failed,
//! or a write has failed for another reason than missing space. It then refuses all changes until
//! it is opened again, which recovers it.

use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_host::fs::{Directory, OpenHow};
use weir_types::{Error, ErrorKind, Result, TargetId};

/// The target and its directory as messages name them, and its trouble, if any.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) target: TargetId,
    pub(crate) dir: PathBuf,
    root: Directory,
    /// The first reason why the target is out of service.
    trouble: OnceLock<String>,
    read_only: AtomicBool,
    closed: AtomicBool,
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "target {} ({})", self.target, self.dir.display())
    }
}

impl Site {
    pub(crate) fn new(target: TargetId, dir: PathBuf, root: Directory) -> Self {
        Self {
            target,
            dir,
            root,
            trouble: OnceLock::new(),
            read_only: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// An error of this target: `target 3 (/disk1): what`.
    pub(crate) fn error(&self, kind: ErrorKind, what: impl std::fmt::Display) -> Error {
        Error::new(kind, format!("{self}: {what}"))
    }

    /// The error of a failed system call that cannot have changed anything on disk.
    pub(crate) fn os_error(&self, doing: impl std::fmt::Display, errno: Errno) -> Error {
        os_error(errno).context(doing).context(self)
    }

    /// The error of a failed change. Missing space leaves everything unchanged; any other error
    /// takes the target out of service.
    pub(crate) fn failed_change(&self, doing: impl std::fmt::Display, errno: Errno) -> Error {
        let error = self.os_error(doing, errno);
        if errno == Errno::ROFS {
            self.set_read_only();
        } else if !harmless(errno) {
            self.take_out_of_service(&error);
        }
        error
    }

    /// The error of a failed sync. No later sync brings back the pages that the kernel has dropped.
    pub(crate) fn failed_sync(&self, doing: impl std::fmt::Display, errno: Errno) -> Error {
        let error = self.os_error(doing, errno);
        // If this fails too, the next opening will probably fail as well.
        if let Some(boot) = weir_host::boot_id()
            && let Err(e) = self.root.open_file(&sync_failed_name(boot), OpenHow::CREATE)
        {
            tracing::error!("{self}: cannot mark that a sync has failed: {e}");
        }
        self.take_out_of_service(&error);
        error
    }

    /// Refuses all changes from now on.
    pub(crate) fn take_out_of_service(&self, reason: &Error) {
        if self.trouble.set(reason.to_string()).is_ok() {
            tracing::error!("out of service until it is checked and served anew: {reason}");
        }
    }

    /// Records that the disk has become read-only.
    pub(crate) fn set_read_only(&self) {
        self.read_only.store(true, Ordering::Release);
    }

    /// Ends the service of the target: objects that are still held refuse changes. Returns false if
    /// it had ended before.
    pub(crate) fn set_closed(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// Why the target is out of service or read-only, if it is.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self.trouble.get() {
            Some(reason) => Some(format!("out of service: {reason}")),
            None if self.is_read_only() => Some(format!("{self}: {READ_ONLY}")),
            None => None,
        }
    }

    /// Checks that the target may be changed and synced.
    ///
    /// Errors: `Io` when the target is out of service, `ReadOnly`.
    pub(crate) fn in_service(&self) -> Result<()> {
        if let Some(reason) = self.trouble.get() {
            let what = format!("out of service until it is checked and served anew: {reason}");
            return Err(self.error(ErrorKind::Io, what));
        }
        if self.is_read_only() {
            return Err(self.error(ErrorKind::ReadOnly, READ_ONLY));
        }
        if self.is_closed() {
            return Err(self.error(ErrorKind::Io, "it is not served any more"));
        }
        Ok(())
    }
}

/// Prefix of the file that names the run of the machine in which a sync has failed.
const SYNC_FAILED: &str = "sync-failed.";

fn sync_failed_name(boot: u128) -> String {
    format!("{SYNC_FAILED}{boot:032x}")
}

/// Refuses to open a target after a failed sync in this run of the machine. The kernel may show
/// pages that are not on disk, and a later sync would not report them. After a restart of the
/// machine the kernel has to read the disk.
///
/// Errors: `Io` if a sync has failed in this run of the machine.
pub(crate) fn check_syncs(root: &Directory, dir: &Path) -> Result<()> {
    let boot = weir_host::boot_id();
    for name in root.entries().map_err(os_error)? {
        let name = name.map_err(os_error)?;
        let Some(name) = std::str::from_utf8(&name).ok().filter(|n| n.starts_with(SYNC_FAILED))
        else {
            continue;
        };
        if boot.is_some_and(|boot| name != sync_failed_name(boot)) {
            root.unlink(name).map_err(|e| os_error(e).context(format!("remove {name}")))?;
            continue;
        }
        let what = format!(
            "a sync has failed, so that the kernel may show what is not on the disk: see to the \
             disk, restart the machine (or mount the file system again and remove {}), then \
             start the server",
            dir.join(name).display()
        );
        return Err(Error::new(ErrorKind::Io, what));
    }
    Ok(())
}

/// Reason for a read-only disk. What the disk had accepted and not written is lost, so the reason
/// stays until the target is opened again.
pub(crate) const READ_ONLY: &str = "its disk has become read-only";

/// Whether a call with this error has changed nothing and may succeed later.
fn harmless(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOSPC
            | Errno::DQUOT
            | Errno::ROFS
            | Errno::FBIG
            | Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::OPNOTSUPP
    )
}

/// Converts the error of a system call, without context.
pub(crate) fn os_error(errno: Errno) -> Error {
    match errno {
        Errno::MFILE | Errno::NFILE => {
            Error::new(ErrorKind::TooManyOpen, std::io::Error::from(errno).to_string())
        }
        _ => std::io::Error::from(errno).into(),
    }
}
