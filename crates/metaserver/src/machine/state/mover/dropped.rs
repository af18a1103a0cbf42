//! Dropped copies, which are removed twice, some seconds apart. In between a data server with the
//! old layout may have sent bytes to a dropped copy, and so made it again. No server uses a layout
//! that is older than that (`dataserver/copies/resync/mod.rs`). Drops from before a start are unknown,
//! so everything that is removed soon after a start counts as dropped.

use std::collections::{BTreeMap, BTreeSet};
use weir_types::ObjectId;

/// Time after which they are removed for good.
const SETTLE_MS: u64 = 10_000;
/// A drop is remembered at most for this long. A target that was away for longer got no bytes.
const KEPT_MS: u64 = 60_000;
/// The most drops that are remembered. Further copies are removed once.
const MOST: usize = 1 << 18;

/// Recently dropped copies.
#[derive(Debug, Default)]
pub struct Dropped {
    /// Start of this process.
    began_ms: u64,
    went: BTreeMap<ObjectId, Went>,
    /// Drops by time, for expiry.
    by_age: BTreeSet<(u64, ObjectId)>,
}

#[derive(Debug)]
struct Went {
    at_ms: u64,
    was_removed: bool,
}

impl Dropped {
    /// Starts without knowledge of earlier drops.
    pub fn new(now_ms: u64) -> Self {
        Self { began_ms: now_ms, ..Self::default() }
    }

    /// Records copies that are in no layout any more.
    pub fn went(&mut self, objects: &[ObjectId], now_ms: u64) {
        self.forget_old(now_ms);
        for object in objects.iter().take(self.room()) {
            self.remember(*object, Went { at_ms: now_ms, was_removed: false });
        }
    }

    fn room(&self) -> usize {
        MOST.saturating_sub(self.went.len())
    }

    fn remember(&mut self, object: ObjectId, went: Went) {
        self.forget(object);
        self.by_age.insert((went.at_ms, object));
        self.went.insert(object, went);
    }

    fn forget_old(&mut self, now_ms: u64) {
        while let Some(&(at_ms, object)) = self.by_age.first()
            && now_ms.saturating_sub(at_ms) >= KEPT_MS
        {
            self.forget(object);
        }
    }

    fn forget(&mut self, object: ObjectId) {
        if let Some(went) = self.went.remove(&object) {
            self.by_age.remove(&(went.at_ms, object));
        }
    }

    /// Whether a drop is remembered.
    pub fn knows(&self, object: ObjectId) -> bool {
        self.went.contains_key(&object)
    }

    /// Whether a target has to remove an object now.
    pub fn is_due(&self, object: ObjectId, now_ms: u64) -> bool {
        let waits = |went: &Went| went.was_removed && now_ms.saturating_sub(went.at_ms) < SETTLE_MS;
        !self.went.get(&object).is_some_and(waits)
    }

    /// Records that a target has removed an object. Returns whether that was the last removal. A
    /// first report may come long after the removal itself, because its disk may be slow.
    pub fn removed(&mut self, object: ObjectId, now_ms: u64) -> bool {
        // However late it says so, as above.
        let may_be_new = now_ms.saturating_sub(self.began_ms) < KEPT_MS && self.room() > 0;
        match self.went.get_mut(&object) {
            Some(went) if !went.was_removed || now_ms.saturating_sub(went.at_ms) < SETTLE_MS => {
                went.was_removed = true;
                false
            }
            None if may_be_new => {
                self.remember(object, Went { at_ms: self.began_ms, was_removed: true });
                false
            }
            _ => {
                self.forget(object);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex};

    fn object(file: u64) -> ObjectId {
        ObjectId {
            file: FileId(file),
            segment: SegmentIndex(1),
            column: ColumnIndex(0),
            copy: CopyIndex(1),
        }
    }

    #[test]
    fn what_went_is_removed_once_at_once_and_once_more_later() {
        let mut dropped = Dropped::default();
        dropped.went(&[object(1)], 1_000);
        assert!(dropped.is_due(object(1), 1_100));
        assert!(!dropped.removed(object(1), 1_200));
        assert!(!dropped.is_due(object(1), 1_300));
        assert!(dropped.is_due(object(1), 1_000 + SETTLE_MS));
        assert!(dropped.removed(object(1), 1_100 + SETTLE_MS));
        let later = 1_100 + KEPT_MS;
        assert!(dropped.is_due(object(2), later) && dropped.removed(object(2), later));
    }

    #[test]
    fn who_says_late_that_it_removed_it_does_so_once_more() {
        let mut dropped = Dropped::default();
        dropped.went(&[object(1)], 1_000);
        assert!(!dropped.removed(object(1), 3_000 + SETTLE_MS));
        assert!(dropped.is_due(object(1), 3_000 + SETTLE_MS));
        assert!(dropped.removed(object(1), 3_100 + SETTLE_MS));
    }

    #[test]
    fn what_may_have_gone_before_a_start_is_removed_twice_too() {
        let start = 50_000;
        let mut dropped = Dropped::new(start);
        assert!(dropped.is_due(object(1), start + 100));
        assert!(!dropped.removed(object(1), start + 200));
        assert!(!dropped.is_due(object(1), start + 300));
        assert!(dropped.is_due(object(1), start + SETTLE_MS));
        assert!(dropped.removed(object(1), start + SETTLE_MS + 100));
        // Who says it late does so once more, at once.
        let late = start + SETTLE_MS + 200;
        assert!(!dropped.removed(object(2), late) && dropped.is_due(object(2), late));
        assert!(dropped.removed(object(2), late + 100));
        assert!(dropped.removed(object(3), start + KEPT_MS));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Went(Vec<u64>),
        Removed(u64),
    }

    fn events() -> impl Strategy<Value = Vec<(Event, u64)>> {
        let went = prop::collection::vec(0..20_u64, 0..6).prop_map(Event::Went);
        let event = prop_oneof![went, (0..20_u64).prop_map(Event::Removed)];
        prop::collection::vec((event, 0..30_000_u64), 0..60)
    }

    proptest! {
        #[test]
        fn what_is_remembered_is_what_went_in_the_last_minute(events in events()) {
            let mut dropped = Dropped::default();
            // When each went, and whether it was removed since.
            let mut plain = BTreeMap::<ObjectId, (u64, bool)>::new();
            let mut now_ms = KEPT_MS;
            for (event, after_ms) in events {
                now_ms += after_ms;
                match event {
                    Event::Went(files) => {
                        let objects: Vec<ObjectId> = files.into_iter().map(object).collect();
                        dropped.went(&objects, now_ms);
                        plain.retain(|_, (at_ms, _)| now_ms - *at_ms < KEPT_MS);
                        plain.extend(objects.into_iter().map(|object| (object, (now_ms, false))));
                    }
                    Event::Removed(file) => {
                        let settled = match plain.get_mut(&object(file)) {
                            Some((at_ms, removed))
                                if !*removed || now_ms - *at_ms < SETTLE_MS =>
                            {
                                *removed = true;
                                false
                            }
                            _ => {
                                plain.remove(&object(file));
                                true
                            }
                        };
                        prop_assert_eq!(dropped.removed(object(file), now_ms), settled);
                    }
                }
                for object in (0..20).map(object) {
                    let due = plain.get(&object).is_none_or(|(at_ms, removed)| {
                        !removed || now_ms - at_ms >= SETTLE_MS
                    });
                    prop_assert_eq!(dropped.is_due(object, now_ms), due);
                }
                prop_assert_eq!(dropped.went.len(), plain.len());
                let all: BTreeSet<_> = dropped.went.iter().map(|(o, w)| (w.at_ms, *o)).collect();
                prop_assert_eq!(&dropped.by_age, &all);
            }
        }
    }
}
