//! Locks of byte ranges: of two changes of one object that touch the same bytes, one at a time is
//! under way on all copies.

use std::collections::BTreeMap;
use std::ops::Range;
use weir_host::sync::{Condvar, Mutex};
use weir_types::{ObjectId, TargetId};

/// An object of a target.
type Place = (TargetId, ObjectId);

/// The ranges of objects that are being changed. Bounded by the threads that carry out changes.
#[derive(Debug, Default)]
pub(crate) struct RangeLocks {
    held: Mutex<BTreeMap<Place, Vec<Range<u64>>>>,
    freed: Condvar,
}

/// The right to change a range, until it is dropped.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    locks: &'a RangeLocks,
    place: Place,
    range: Range<u64>,
}

impl RangeLocks {
    /// Waits until no other thread changes anything of the range.
    pub(crate) fn lock(&self, target: TargetId, object: ObjectId, range: Range<u64>) -> Locked<'_> {
        let place = (target, object);
        let mut held = self.held.lock();
        while held.get(&place).is_some_and(|ranges| ranges.iter().any(|r| meet(r, &range))) {
            held = self.freed.wait(held);
        }
        held.entry(place).or_default().push(range.clone());
        Locked { locks: self, place, range }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let mut held = self.locks.held.lock();
        if let Some(ranges) = held.get_mut(&self.place) {
            if let Some(at) = ranges.iter().position(|r| *r == self.range) {
                ranges.swap_remove(at);
            }
            if ranges.is_empty() {
                held.remove(&self.place);
            }
        }
        drop(held);
        self.locks.freed.notify_all();
    }
}

fn meet(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex};

    #[test]
    fn only_what_touches_waits() {
        let object = ObjectId {
            file: FileId(1),
            segment: SegmentIndex(0),
            column: ColumnIndex(0),
            copy: CopyIndex(0),
        };
        let locks = Arc::new(RangeLocks::default());
        let first = locks.lock(TargetId(1), object, 0..10);
        drop(locks.lock(TargetId(1), object, 10..20));
        drop(locks.lock(TargetId(2), object, 0..10));
        let (sender, receiver) = std::sync::mpsc::channel();
        let waiting = {
            let locks = locks.clone();
            weir_host::thread::spawn("waiting", move || {
                drop(locks.lock(TargetId(1), object, 5..6));
                sender.send(()).unwrap();
            })
        };
        assert!(receiver.try_recv().is_err());
        drop(first);
        receiver.recv().unwrap();
        waiting.unwrap().join().unwrap();
        assert!(locks.held.lock().is_empty());
    }
}
