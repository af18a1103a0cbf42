//! The safe way to write a file: write a temporary file, sync it, and rename it. Whoever finds the
//! name finds all of the contents, whatever has crashed meanwhile.

use super::Violation;
use crate::history::{Call, History, Outcome, What};
use std::collections::BTreeMap;

/// Judges the contents of published files: each has the bytes that were written before it got its
/// name.
pub fn judge(history: &History) -> Vec<Violation> {
    let mut written: BTreeMap<u64, u64> = BTreeMap::new();
    let mut asked: BTreeMap<u32, &Call> = BTreeMap::new();
    let mut violations = Vec::new();
    for entry in &history.entries {
        match &entry.what {
            What::Begin { id, call, .. } => {
                asked.insert(*id, call);
            }
            What::End { id, outcome } => match (asked.get(id), outcome) {
                (Some(Call::Publish { id: file }), Outcome::Done) => {
                    written.insert(*file, u64::from(*id) + 1);
                }
                (
                    Some(Call::Fetch { id: file } | Call::Peek { id: file }),
                    Outcome::Cells(tags),
                ) => {
                    // Names of files that were never synced promise nothing.
                    let Some(want) = written.get(file) else { continue };
                    if tags.is_empty() || tags.iter().any(|tag| tag != want) {
                        let what = format!(
                            "file {file} was published with the bytes of #{}, read #{id} sees {tags:?}",
                            want - 1
                        );
                        let file = *file;
                        let about = |id: u32| {
                            matches!(
                                asked.get(&id),
                                Some(Call::Publish { id } | Call::Fetch { id } | Call::Peek { id }) if *id == file
                            )
                        };
                        violations.push(Violation { what, evidence: history.excerpt(about) });
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }
    violations
}
