//! Which files are to be encoded, and which stay as copies for the time being.

use crate::copy::Copy;
use crate::failure::{Done, Failure};
use crate::tree::Tree;
use rustix::fs::{StatVfs, statvfs};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};
use weir_layout::set::SetCode;
use weir_types::TargetId;

/// Which files are to be encoded, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Paths of files that were removed on purpose.
    pub forgotten: BTreeSet<String>,
    /// Files that changed within this time stay as copies, because new files are read most.
    pub after: Duration,
    /// Exception to `after`: a file with a copy on a file system that has less free space than
    /// this, percent, is encoded at once.
    pub low_percent: u8,
    /// A set is cleaned when this share of it was removed, percent. If one of its targets is short
    /// of space, it is cleaned sooner.
    pub clean_percent: u8,
}

/// [`Wishes`], resolved to a point in time and a set of targets.
pub struct Waits {
    /// Files that changed after this time are new: seconds since 1970, and nanoseconds.
    since: Option<(i64, u32)>,
    /// Targets that are short of space.
    low: BTreeSet<TargetId>,
}

impl Waits {
    /// Resolves wishes with the present time and free space.
    pub fn new(tree: &Tree, wishes: &Wishes) -> Done<Self> {
        let mut low = BTreeSet::new();
        if wishes.low_percent > 0 {
            for (target, dir) in tree.targets.iter() {
                let room = statvfs(dir).map_err(|e| Failure::file(dir, e))?;
                if is_low(&room, wishes.low_percent) {
                    low.insert(target);
                }
            }
        }
        if wishes.after.is_zero() {
            return Ok(Self { since: None, low });
        }
        // A duration beyond the clock's range counts from 1970: files that changed since are new.
        let since = SystemTime::now().checked_sub(wishes.after);
        let since = since.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        let since = since.unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        Ok(Self { since: Some((seconds, since.subsec_nanos())), low })
    }

    /// Whether a target is short of space.
    pub fn is_low(&self, target: TargetId) -> bool {
        self.low.contains(&target)
    }

    /// Whether a file waits. A file with too few copies to bear as many losses as the code never
    /// waits: it gains nothing by that.
    pub fn wait(&self, code: SetCode, copies: &BTreeMap<TargetId, Copy>) -> bool {
        copies.len() > code.bears()
            && self.since.is_some_and(|since| copies.values().any(|copy| copy.changed > since))
            && !copies.keys().any(|target| self.low.contains(target))
    }
}

/// Whether less than this share is free, of all space that users can have.
fn is_low(room: &StatVfs, percent: u8) -> bool {
    let used = room.f_blocks.saturating_sub(room.f_bfree);
    let all = u128::from(used) + u128::from(room.f_bavail);
    u128::from(room.f_bavail) * 100 < all * u128::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_files_with_enough_copies_wait_where_there_is_room() {
        let copy = |changed| Copy {
            len: 1,
            modified: (0, 0),
            changed,
            id: (0, 0),
            mode: 0,
            owner: (0, 0),
        };
        let copies = |changed: &[(i64, u32)]| -> BTreeMap<TargetId, Copy> {
            (0..).map(TargetId).zip(changed.iter().map(|at| copy(*at))).collect()
        };
        let (old, new) = ((9, 5), (10, 1));
        let waits = |low: &[u32]| Waits {
            since: Some((10, 0)),
            low: low.iter().copied().map(TargetId).collect(),
        };
        let code: SetCode = "raid6".parse().unwrap();
        assert!(waits(&[]).wait(code, &copies(&[old, old, new])));
        assert!(waits(&[3]).wait(code, &copies(&[old, old, new])));
        assert!(!waits(&[1]).wait(code, &copies(&[old, old, new])));
        assert!(!waits(&[]).wait(code, &copies(&[old, old, old])));
        assert!(!waits(&[]).wait(code, &copies(&[old, new])));
        let at_once = Waits { since: None, low: BTreeSet::new() };
        assert!(!at_once.wait(code, &copies(&[new, new, new])));
    }
}
