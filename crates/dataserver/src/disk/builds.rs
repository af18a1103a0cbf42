//! Orders of the metadata server to compute objects of a target, and how far each is. What they are
//! carried out by: [`crate::copies::build`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_host::clock::now;
use weir_host::sync::Mutex;
use weir_host::thread::JoinHandle;
use weir_types::{ObjectId, TargetId};
use weir_wire::peer::Build;

/// The most orders that are remembered for one target.
const MAX_BUILDS: usize = 1024;
/// After a failure an order is tried again after this time, and after twice as long at each further
/// one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How far an order is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    is_done: bool,
    /// When it may be tried again, and the pause before that.
    again: Option<(Instant, Duration)>,
}

impl Progress {
    fn is_due(&self) -> bool {
        !self.is_done && self.again.is_none_or(|(at, _)| at <= now())
    }

    fn failed(&mut self) {
        let pause = self.again.map_or(FIRST_PAUSE, |(_, pause)| (pause * 2).min(LONGEST_PAUSE));
        self.again = Some((now() + pause, pause));
    }
}

/// The orders of one target, and how far each is.
#[derive(Default)]
pub(crate) struct Builds {
    all: Mutex<BTreeMap<ObjectId, (Build, Progress)>>,
    /// Whether a thread works on them.
    busy: AtomicBool,
    /// The last such thread.
    thread: Mutex<Option<JoinHandle>>,
}

impl Builds {
    /// Takes over the present orders. Earlier ones that are missing do not hold any more.
    pub(crate) fn ordered(&self, target: TargetId, orders: &[Build]) {
        let mut all = self.all.lock();
        let before = std::mem::take(&mut *all);
        let progress = |order: &Build| {
            let known = before.get(&order.object).filter(|(known, _)| known == order);
            known.map_or_else(Progress::default, |(_, progress)| *progress)
        };
        let mine = orders.iter().filter(|order| order.to == target).take(MAX_BUILDS);
        *all = mine.map(|order| (order.object, (order.clone(), progress(order)))).collect();
    }

    /// Orders that were carried out, and still hold.
    pub(crate) fn built(&self) -> Vec<Build> {
        let all = self.all.lock();
        all.values().filter(|(_, of)| of.is_done).map(|(order, _)| order.clone()).collect()
    }

    /// Whether a thread is to be begun, because orders are due that none works on. From then on one
    /// does.
    pub(crate) fn begin(&self) -> bool {
        !self.due().is_empty() && !self.busy.swap(true, Ordering::AcqRel)
    }

    /// Records that no thread works on them any more.
    pub(crate) fn left(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// Keeps the thread that works on them. Only one is left behind by the next.
    pub(crate) fn is_worked_on_by(&self, thread: JoinHandle) {
        *self.thread.lock() = Some(thread);
    }

    /// Waits for the end of the thread that works on them, after the server was told to stop.
    pub(crate) fn end(&self) {
        let thread = self.thread.lock().take();
        // One that panics ends the server.
        let _ = thread.map(JoinHandle::join);
    }

    /// Orders to be carried out now.
    pub(crate) fn due(&self) -> Vec<Build> {
        let all = self.all.lock();
        all.values().filter(|(_, of)| of.is_due()).map(|(order, _)| order.clone()).collect()
    }

    /// Whether an order still holds.
    pub(crate) fn holds(&self, order: &Build) -> bool {
        self.all.lock().get(&order.object).is_some_and(|(known, _)| known == order)
    }

    /// Records the result of an order.
    pub(crate) fn ended(&self, order: &Build, is_done: bool) {
        if let Some((known, progress)) = self.all.lock().get_mut(&order.object)
            && known == order
        {
            progress.is_done = is_done;
            if !is_done {
                progress.failed();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{ColumnIndex, CopyIndex, FileId, Generation, SegmentIndex};

    #[test]
    fn what_has_failed_waits_longer_each_time_and_a_new_order_does_not() {
        let object = ObjectId {
            file: FileId(7),
            segment: SegmentIndex(0),
            column: ColumnIndex(4),
            copy: CopyIndex(0),
        };
        let (to, generation) = (TargetId(1), Generation(3));
        let (columns, parities, coded, len) = (4, 2, false, 1 << 20);
        let order = Build { object, to, generation, columns, parities, coded, len };
        let builds = Builds::default();
        let pause = || builds.all.lock()[&object].1.again.map(|(_, pause)| pause);
        builds.ordered(to, std::slice::from_ref(&order));
        assert_eq!(builds.due(), std::slice::from_ref(&order));
        let mut last = Duration::ZERO;
        for _ in 0..10 {
            builds.ended(&order, false);
            assert!(builds.due().is_empty());
            let now = pause().unwrap();
            assert!(now == LONGEST_PAUSE || now >= 2 * last, "{now:?} after {last:?}");
            last = now;
            // The same order again.
            builds.ordered(to, std::slice::from_ref(&order));
            assert_eq!(pause(), Some(last));
        }
        assert_eq!(last, LONGEST_PAUSE);
        let anew = Build { generation: Generation(4), ..order };
        builds.ordered(to, std::slice::from_ref(&anew));
        assert_eq!(builds.due(), std::slice::from_ref(&anew));
        builds.ended(&anew, true);
        assert_eq!((builds.due(), builds.built()), (Vec::new(), vec![anew]));
    }
}
