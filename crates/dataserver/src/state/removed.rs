//! Objects that were removed lately because their copies have moved. A request by an old layout
//! could take such a missing copy for an empty one, and make the others empty; or it could write to
//! it, and so make it again for ever. A client without leases would read zeros, or write to an
//! object that no file has.

use crate::disk::Disk;
use crate::standing::roles::not_current;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_store::Object;
use weir_types::{Error, ErrorKind, ObjectId, Result, TargetId};

/// How long removals are remembered for servers. It is much longer than a server uses a layout
/// without a new look-up, and limited, since a copy may be placed there again and be empty.
const KEPT: Duration = Duration::from_secs(60);
/// How long removals are remembered for clients. A client without leases uses a layout as long as
/// its capability is valid (`capability_ms` of the metadata server, by default).
const KEPT_FOR_CLIENTS: Duration = Duration::from_secs(3600);
/// The most removals that are remembered: the latest ones.
const MOST: usize = 1 << 16;

#[derive(Debug, Default)]
pub(crate) struct Removed(Mutex<BTreeMap<(TargetId, ObjectId), Instant>>);

impl Removed {
    /// Records a removal. To be called before it, so that a request which does not find the object
    /// finds the record.
    pub(crate) fn add(&self, target: TargetId, object: ObjectId) {
        let mut known = self.0.lock();
        if known.len() >= MOST {
            // Seldom: the older half goes.
            let mut times: Vec<Instant> = known.values().copied().collect();
            times.sort_unstable();
            let middle = times[times.len() / 2];
            known.retain(|_, at| *at > middle && clock::elapsed(*at) < KEPT_FOR_CLIENTS);
        }
        known.insert((target, object), clock::now());
    }

    /// The object, if it exists.
    ///
    /// # Errors
    /// `NotCurrent`: it was removed. `Io`, `Corrupt`.
    pub(crate) fn look(&self, disk: &Disk, object: ObjectId) -> Result<Option<Arc<Object>>> {
        let (found, own) = (disk.store.object(object)?, disk.served.id);
        match found.is_none() && self.contains(own, object, KEPT) {
            true => Err(not_current(own, "the copy here was moved away, and removed")),
            false => Ok(found),
        }
    }

    /// Checks, before an operation for a client, that the object exists or was never made.
    ///
    /// # Errors
    /// `Stale`: it was removed; a present layout says where it is. `Io`, `Corrupt`.
    pub(crate) fn require_place(&self, disk: &Disk, object: ObjectId) -> Result<()> {
        let own = disk.served.id;
        let gone = self.contains(own, object, KEPT_FOR_CLIENTS);
        match gone && disk.store.object(object)?.is_none() {
            true => Err(has_gone(own, object)),
            false => Ok(()),
        }
    }

    /// Checks, after an operation for a client, that the object was not removed meanwhile.
    ///
    /// # Errors
    /// `Stale`.
    pub(crate) fn require_stayed(
        &self,
        disk: &Disk,
        object: ObjectId,
        since: Instant,
    ) -> Result<()> {
        let at = self.0.lock().get(&(disk.served.id, object)).copied();
        match at.is_some_and(|at| at >= since) {
            true => Err(has_gone(disk.served.id, object)),
            false => Ok(()),
        }
    }

    fn contains(&self, target: TargetId, object: ObjectId, kept: Duration) -> bool {
        let at = self.0.lock().get(&(target, object)).copied();
        at.is_some_and(|at| clock::elapsed(at) < kept)
    }
}

fn has_gone(own: TargetId, object: ObjectId) -> Error {
    let what =
        format!("object {object} was moved away from target {own}: the layout is out of date");
    Error::new(ErrorKind::Stale, what)
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
        let is_known = |target, kept| removed.contains(target, last, kept);
        assert!(is_known(target, KEPT) && !is_known(TargetId(2), KEPT));
        let ago = |time| clock::now().checked_sub(time).unwrap();
        removed.0.lock().insert((target, last), ago(KEPT));
        assert!(!is_known(target, KEPT) && is_known(target, KEPT_FOR_CLIENTS));
        removed.0.lock().insert((target, last), ago(KEPT_FOR_CLIENTS));
        assert!(!is_known(target, KEPT_FOR_CLIENTS));
    }
}
