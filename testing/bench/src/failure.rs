//! Errors that end the benchmark or a part of it.

use std::path::Path;

/// The result type of the benchmark.
pub type Done<T = ()> = Result<T, Failure>;

/// An error.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A call of the operating system failed.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// An error of Weir.
    #[error("weir: {0}")]
    Weir(#[from] weir_types::Error),
    /// A program has failed.
    #[error("{0}")]
    Other(String),
    /// Stopped by Ctrl-C.
    #[error("stopped by a signal; what was started has been cleaned up")]
    Stopped,
}

impl Failure {
    /// A failed call on a file.
    pub fn file(path: &Path, source: impl Into<std::io::Error>) -> Self {
        Self::System { what: path.display().to_string(), source: source.into() }
    }

    /// A failed call.
    pub fn system(what: &str, source: impl Into<std::io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }

    /// Any other error.
    pub fn other(message: impl Into<String>) -> Self {
        Self::Other(message.into())
    }
}
