//! Objects that were removed of late since their copies have gone. Who still goes by a
//! layout of before could take such a copy, of which there is nothing, for an empty one, and
//! bring the others to that; or bring something to it, and so make it anew for ever.

use super::roles::not_current;
use crate::disk::Disk;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_store::Object;
use weir_types::{ObjectId, Result, TargetId};

/// Much longer than a layout is gone by without a new look; and not for ever, since a copy
/// may come to be there again, and be empty.
const KEPT: Duration = Duration::from_secs(60);
/// Those that are remembered; of more, the last ones.
const MOST: usize = 1 << 16;

#[derive(Debug, Default)]
pub(crate) struct Removed(Mutex<BTreeMap<(TargetId, ObjectId), Instant>>);

impl Removed {
    /// To be called before it is removed: who does not find it finds it here.
    pub(crate) fn add(&self, target: TargetId, object: ObjectId) {
        let mut known = self.0.lock();
        if known.len() >= MOST {
            // Seldom: the older half goes.
            let mut times: Vec<Instant> = known.values().copied().collect();
            times.sort_unstable();
            let middle = times[times.len() / 2];
            known.retain(|_, at| *at > middle && clock::elapsed(*at) < KEPT);
        }
        known.insert((target, object), clock::now());
    }

    /// An object, if it is there.
    ///
    /// # Errors
    /// `NotCurrent`: it has gone. `Io`, `Corrupt`.
    pub(super) fn look(&self, disk: &Disk, object: ObjectId) -> Result<Option<Arc<Object>>> {
        let (found, own) = (disk.store.object(object)?, disk.served.id);
        match found.is_none() && self.contains(own, object) {
            true => Err(not_current(own, "the copy here has gone, and was removed")),
            false => Ok(found),
        }
    }

    fn contains(&self, target: TargetId, object: ObjectId) -> bool {
        let at = self.0.lock().get(&(target, object)).copied();
        at.is_some_and(|at| clock::elapsed(at) < KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex};

    #[test]
    fn the_last_ones_are_remembered_of_their_targets_and_not_for_ever() {
        let object = |file| ObjectId {
            file: FileId(file),
            segment: SegmentIndex(1),
            column: ColumnIndex(0),
            copy: CopyIndex(0),
        };
        let (removed, target) = (Removed::default(), TargetId(1));
        (0..3 * MOST as u64).for_each(|file| removed.add(target, object(file)));
        assert!(removed.0.lock().len() <= MOST);
        let last = object(3 * MOST as u64 - 1);
        assert!(removed.contains(target, last) && !removed.contains(TargetId(2), last));
        let before = clock::now().checked_sub(KEPT).unwrap();
        removed.0.lock().insert((target, last), before);
        assert!(!removed.contains(target, last));
    }
}
