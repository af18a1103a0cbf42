//! Copies that have gone are removed twice, some seconds apart: a data server that had
//! looked up the layout of before may have brought something to one in between, and so
//! made it anew. Nobody goes by what it looked up longer ago than that
//! (`dataserver/copies/resync.rs`).

use std::collections::BTreeMap;
use weir_types::ObjectId;

/// When they are removed for good.
const SETTLE_MS: u64 = 10_000;
/// Longer than this nothing is remembered: the target was away, and nobody brought it
/// anything.
const KEPT_MS: u64 = 60_000;
/// Those that are remembered; others are removed once.
const MOST: usize = 1 << 18;

/// What went of late; not beyond a restart.
#[derive(Debug, Default)]
pub struct Dropped(BTreeMap<ObjectId, Went>);

#[derive(Debug)]
struct Went {
    at_ms: u64,
    was_removed: bool,
}

impl Dropped {
    /// Copies are in no layout any more.
    pub fn went(&mut self, objects: &[ObjectId], now_ms: u64) {
        self.0.retain(|_, went| now_ms.saturating_sub(went.at_ms) < KEPT_MS);
        for object in objects.iter().take(MOST.saturating_sub(self.0.len())) {
            self.0.insert(*object, Went { at_ms: now_ms, was_removed: false });
        }
    }

    /// Whether a target is to remove an object now.
    pub fn is_due(&self, object: ObjectId, now_ms: u64) -> bool {
        let waits = |went: &Went| went.was_removed && now_ms.saturating_sub(went.at_ms) < SETTLE_MS;
        !self.0.get(&object).is_some_and(waits)
    }

    /// A target has removed an object; whether that was the last time.
    pub fn removed(&mut self, object: ObjectId, now_ms: u64) -> bool {
        match self.0.get_mut(&object) {
            Some(went) if now_ms.saturating_sub(went.at_ms) < SETTLE_MS => {
                went.was_removed = true;
                false
            }
            _ => {
                self.0.remove(&object);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex};

    #[test]
    fn what_went_is_removed_once_at_once_and_once_more_later() {
        let object = |file| ObjectId {
            file: FileId(file),
            segment: SegmentIndex(1),
            column: ColumnIndex(0),
            copy: CopyIndex(1),
        };
        let mut dropped = Dropped::default();
        dropped.went(&[object(1)], 1_000);
        assert!(dropped.is_due(object(1), 1_100));
        assert!(!dropped.removed(object(1), 1_200));
        assert!(!dropped.is_due(object(1), 1_300));
        assert!(dropped.is_due(object(1), 1_000 + SETTLE_MS));
        assert!(dropped.removed(object(1), 1_100 + SETTLE_MS));
        assert!(dropped.is_due(object(2), 1_100) && dropped.removed(object(2), 1_100));
    }
}
