//! Which target an error is about.

use rustix::io::Errno;
use std::path::PathBuf;
use weir_types::{Error, ErrorKind, TargetId};

/// The target and its directory, as they are named in messages.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) target: TargetId,
    pub(crate) dir: PathBuf,
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "target {} ({})", self.target, self.dir.display())
    }
}

impl Site {
    /// An error of this target: `target 3 (/disk1): what`.
    pub(crate) fn error(&self, kind: ErrorKind, what: impl std::fmt::Display) -> Error {
        Error::new(kind, format!("{self}: {what}"))
    }

    /// A failed system call on this target.
    pub(crate) fn os_error(&self, doing: impl std::fmt::Display, errno: Errno) -> Error {
        os_error(errno).context(doing).context(self)
    }
}

/// The error of a system call, without a context.
pub(crate) fn os_error(errno: Errno) -> Error {
    match errno {
        Errno::MFILE | Errno::NFILE => {
            Error::new(ErrorKind::TooManyOpen, std::io::Error::from(errno).to_string())
        }
        _ => std::io::Error::from(errno).into(),
    }
}
