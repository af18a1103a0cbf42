//! Objects that were removed of late since their copies have gone. Who still goes by a
//! layout of before could take such a copy, of which there is nothing, for an empty one, and
//! bring the others to that.

use std::collections::{BTreeSet, VecDeque};
use weir_host::sync::Mutex;
use weir_types::{ObjectId, TargetId};

/// Those that are remembered. Layouts are looked up anew every few seconds.
const MOST: usize = 1 << 16;

#[derive(Debug, Default)]
pub(crate) struct Removed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: BTreeSet<(TargetId, ObjectId)>,
    order: VecDeque<(TargetId, ObjectId)>,
}

impl Removed {
    /// To be called before it is removed: who does not find it finds it here.
    pub(crate) fn add(&self, target: TargetId, object: ObjectId) {
        let mut state = self.0.lock();
        if !state.known.insert((target, object)) {
            return;
        }
        state.order.push_back((target, object));
        if state.order.len() > MOST
            && let Some(oldest) = state.order.pop_front()
        {
            state.known.remove(&oldest);
        }
    }

    pub(crate) fn contains(&self, target: TargetId, object: ObjectId) -> bool {
        self.0.lock().known.contains(&(target, object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex};

    #[test]
    fn the_last_ones_are_remembered() {
        let object = |file| ObjectId {
            file: FileId(file),
            segment: SegmentIndex(1),
            column: ColumnIndex(0),
            copy: CopyIndex(0),
        };
        let (removed, target) = (Removed::default(), TargetId(1));
        (0..=MOST as u64).for_each(|file| removed.add(target, object(file)));
        assert!(!removed.contains(target, object(0)) && removed.contains(target, object(1)));
        assert!(!removed.contains(TargetId(2), object(1)));
    }
}
