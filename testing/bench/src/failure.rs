//! Why the benchmark, or a part of it, ended.

use std::path::Path;

/// The usual result.
pub type Done<T = ()> = Result<T, Failure>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A call of the operating system.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Weir itself.
    #[error("weir: {0}")]
    Weir(#[from] weir_types::Error),
    /// A program did not do what it should.
    #[error("{0}")]
    Other(String),
    /// Ctrl-C.
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

    /// Anything else.
    pub fn other(message: impl Into<String>) -> Self {
        Self::Other(message.into())
    }
}
