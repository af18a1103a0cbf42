//! Of two changes of one object that touch the same bytes, one at a time is under
//! way on all copies, in the order in which they came: so one of the whole object waits for
//! those before it, and not for a moment without any.
//!
//! Invariant: who holds a range of an object takes no other of the same object.

use std::collections::BTreeMap;
use std::ops::Range;
use weir_host::sync::{Condvar, Mutex};
use weir_types::{ObjectId, TargetId};

/// An object of a target.
type Place = (TargetId, ObjectId);

/// The ranges of objects that are being changed, or wait for that. As many as there are
/// threads that change something.
#[derive(Debug, Default)]
pub(crate) struct RangeLocks {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Each has its number, and those of an object are in the order of these.
    ranges: BTreeMap<Place, Vec<(u64, Range<u64>)>>,
    next: u64,
}

impl State {
    /// Whether none that came before touches it.
    fn is_free(&self, place: Place, number: u64, range: &Range<u64>) -> bool {
        let of = self.ranges.get(&place).into_iter().flatten();
        !of.take_while(|(other, _)| *other < number).any(|(_, other)| meet(other, range))
    }
}

/// The right to change a range, until it is dropped.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    locks: &'a RangeLocks,
    place: Place,
    number: u64,
}

impl RangeLocks {
    /// Waits until nobody else changes anything of the range.
    pub(crate) fn lock(&self, target: TargetId, object: ObjectId, range: Range<u64>) -> Locked<'_> {
        let place = (target, object);
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.ranges.entry(place).or_default().push((number, range.clone()));
        while !state.is_free(place, number, &range) {
            state = self.freed.wait(state);
        }
        Locked { locks: self, place, number }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let mut state = self.locks.state.lock();
        if let Some(ranges) = state.ranges.get_mut(&self.place) {
            ranges.retain(|(number, _)| *number != self.number);
            if ranges.is_empty() {
                state.ranges.remove(&self.place);
            }
        }
        drop(state);
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
    use std::time::Duration;
    use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex};

    fn object() -> ObjectId {
        ObjectId {
            file: FileId(1),
            segment: SegmentIndex(0),
            column: ColumnIndex(0),
            copy: CopyIndex(0),
        }
    }

    type Said = Arc<Mutex<Vec<Range<u64>>>>;

    /// A thread that waits for a range, and says when it has it.
    fn waits(
        locks: &Arc<RangeLocks>,
        range: Range<u64>,
        said: &Said,
    ) -> weir_host::thread::JoinHandle {
        let number = locks.state.lock().next;
        let waiting = {
            let (locks, said) = (locks.clone(), said.clone());
            weir_host::thread::spawn("waiting", move || {
                let locked = locks.lock(TargetId(1), object(), range.clone());
                said.lock().push(range);
                drop(locked);
            })
        };
        while locks.state.lock().next == number {
            weir_host::thread::sleep(Duration::from_millis(1));
        }
        waiting.unwrap()
    }

    #[test]
    fn only_what_touches_waits() {
        let (locks, said) = (Arc::new(RangeLocks::default()), Said::default());
        let first = locks.lock(TargetId(1), object(), 0..10);
        drop(locks.lock(TargetId(1), object(), 10..20));
        drop(locks.lock(TargetId(2), object(), 0..10));
        let waiting = waits(&locks, 5..6, &said);
        assert!(said.lock().is_empty());
        drop(first);
        waiting.join().unwrap();
        assert_eq!(said.lock().len(), 1);
        assert!(locks.state.lock().ranges.is_empty());
    }

    #[test]
    fn who_wants_all_waits_for_those_before_and_not_for_those_after() {
        let (locks, said) = (Arc::new(RangeLocks::default()), Said::default());
        let first = locks.lock(TargetId(1), object(), 0..10);
        let all = waits(&locks, 0..u64::MAX, &said);
        let later = waits(&locks, 10..20, &said);
        assert!(said.lock().is_empty());
        drop(first);
        all.join().unwrap();
        later.join().unwrap();
        assert_eq!(*said.lock(), [0..u64::MAX, 10..20]);
    }
}
