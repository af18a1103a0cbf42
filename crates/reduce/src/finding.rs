//! Findings: what is wrong with a file, a parity or a set.

use crate::failure::{Done, Failure};
use serde::Serialize;
use weir_types::TargetId;

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// A copy or a parity is missing.
    Missing,
    /// The bytes are not those that were written.
    Rotten,
    /// The file was written after it was encoded.
    Changed,
    /// A record of a set is missing or rotten.
    Record,
    /// More blocks are missing than the code can restore.
    Lost,
    /// A call of the operating system failed; the file is left as it is.
    Failed,
    /// The file has too few copies for a place in a set.
    FewCopies,
    /// The copies differ, or two of them are the same file.
    Differ,
}

/// A finding of a check or a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// The kind of the finding.
    pub trouble: Trouble,
    /// The file, parity or set.
    pub what: String,
    /// The target, if the finding is about one.
    pub target: Option<u32>,
}

/// Turns a failed system call into a finding, so that the other files go on. Returns the result of
/// a successful one.
pub fn note<T>(
    done: Done<T>,
    target: Option<TargetId>,
    left: &mut Vec<Finding>,
) -> Done<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(failure @ Failure::System { .. }) => {
            let (what, target) = (failure.to_string(), target.map(|target| target.0));
            left.push(Finding { trouble: Trouble::Failed, what, target });
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}
