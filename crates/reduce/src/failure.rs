//! Errors.

use std::io::{Error as IoError, ErrorKind};
use std::path::Path;
use thiserror::Error;

/// The result type of this crate.
pub type Done<T = ()> = Result<T, Failure>;

/// An error.
#[derive(Debug, Error)]
pub enum Failure {
    /// A call of the operating system failed.
    #[error("{path}: {source}")]
    System {
        /// The file or directory.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Any other error; the message says what to do.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// A failed call on a file.
    pub fn file(path: &Path, source: impl Into<std::io::Error>) -> Self {
        Self::System { path: path.display().to_string(), source: source.into() }
    }

    /// Any other error, with a message that says what to do.
    pub fn other(message: impl Into<String>) -> Self {
        Self::Other(message.into())
    }
}

/// Whether an error says that there is no such file.
pub fn is_absent(error: &IoError) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Whether an error says that the disk cannot read a sector.
pub fn is_unreadable(error: &IoError) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}
