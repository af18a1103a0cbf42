//! Programs that read much and write little or as much: grep, word count and sort. Each runs alone
//! or as the processes of a job, on local files or on files of a cluster.
//!
//! Invariants
//! - The output depends on the inputs alone: not on the number of processes, the way of reading, or
//!   the layout of the files.
//! - Memory is bounded by `--memory`, whatever the size of the inputs.
//! - A process that waits for others ends when one of them has failed, or after `--timeout`.

pub mod block;
pub mod count;
pub mod grep;
pub mod job;
pub mod merge;
pub mod options;
pub mod plan;
pub mod reading;
pub mod report;
pub mod sink;
pub mod sort;
pub mod tree;

use weir_types::{Error, ErrorKind};

/// The error for invalid options.
pub fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
}
