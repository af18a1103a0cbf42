//! Something that is wrong.

use crate::failure::{Done, Failure};
use serde::Serialize;
use weir_types::TargetId;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// A copy or a parity is not there.
    Missing,
    /// Its bytes are not those that were written.
    Rotten,
    /// The file was written since it was encoded.
    Changed,
    /// A record of a set is not there, or is rotten.
    Record,
    /// More is missing than the code bears.
    Lost,
    /// It could not be read or written; it is left as it is.
    Failed,
    /// There are too few copies for a place in a set.
    FewCopies,
    /// Its copies are not the same, or not different files.
    Differ,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// What.
    pub trouble: Trouble,
    /// The file, parity or set.
    pub what: String,
    /// On which target, if it is about one.
    pub target: Option<u32>,
}

/// Notes a failed call of the system, so that the rest goes on; returns what came of it.
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
