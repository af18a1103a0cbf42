//! Error numbers of replies.

use std::fmt;
use weir_types::{Error, ErrorKind};

use crate::protocol::abi::MAX_ERRNO;

/// A positive Linux error number: what the caller's system call returns.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// No such file or directory.
    pub const ENOENT: Self = Self(libc::ENOENT);
    /// Interrupted.
    pub const EINTR: Self = Self(libc::EINTR);
    /// It would have to wait.
    pub const EAGAIN: Self = Self(libc::EAGAIN);
    /// No more locks.
    pub const ENOLCK: Self = Self(libc::ENOLCK);
    /// Input/output error.
    pub const EIO: Self = Self(libc::EIO);
    /// Bad file descriptor.
    pub const EBADF: Self = Self(libc::EBADF);
    /// Permission denied.
    pub const EACCES: Self = Self(libc::EACCES);
    /// File exists.
    pub const EEXIST: Self = Self(libc::EEXIST);
    /// Not a directory.
    pub const ENOTDIR: Self = Self(libc::ENOTDIR);
    /// Is a directory.
    pub const EISDIR: Self = Self(libc::EISDIR);
    /// Invalid argument.
    pub const EINVAL: Self = Self(libc::EINVAL);
    /// No space left.
    pub const ENOSPC: Self = Self(libc::ENOSPC);
    /// No data or hole from there on.
    pub const ENXIO: Self = Self(libc::ENXIO);
    /// A value does not fit the caller's buffer.
    pub const ERANGE: Self = Self(libc::ERANGE);
    /// File name too long.
    pub const ENAMETOOLONG: Self = Self(libc::ENAMETOOLONG);
    /// Not implemented: the kernel remembers it for most operations, stops
    /// asking, and does what it can by itself.
    pub const ENOSYS: Self = Self(libc::ENOSYS);
    /// Directory not empty.
    pub const ENOTEMPTY: Self = Self(libc::ENOTEMPTY);
    /// No such extended attribute.
    pub const ENODATA: Self = Self(libc::ENODATA);
    /// Not supported for this file; the kernel asks again next time.
    pub const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    /// The operation would wait for itself.
    pub const EDEADLK: Self = Self(libc::EDEADLK);

    /// The number in the kernel's range; invalid ones become `EIO`.
    pub(crate) fn on_wire(self) -> i32 {
        if (1..=MAX_ERRNO).contains(&self.0) { -self.0 } else { -libc::EIO }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}

impl From<ErrorKind> for Errno {
    fn from(kind: ErrorKind) -> Self {
        Self(kind.errno())
    }
}

impl From<Error> for Errno {
    /// Converts an error. Details that the number cannot carry (which file, bytes, target) are
    /// logged.
    fn from(error: Error) -> Self {
        if error.kind.errno() == libc::EIO {
            tracing::error!("{error}");
        }
        error.kind.into()
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_the_kernel_would_refuse_become_eio() {
        assert_eq!(Errno::ENOENT.on_wire(), -2);
        for odd in [0, -5, 512, i32::MAX, i32::MIN] {
            assert_eq!(Errno(odd).on_wire(), -5);
        }
        assert_eq!(Errno::from(Error::from(ErrorKind::Interrupted)), Errno::EINTR);
    }
}
