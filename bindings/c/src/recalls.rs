//! The holders of layout leases, and the notification of recalls.

use crate::args::copy_text;
use crate::queue::{Queue, WEIR_DONE_RECALL, weir_completion_t};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_client::UpperCache;
use weir_types::{ErrorKind, FileId};

/// Time that a program has to return a lease. The metadata server would revoke it later.
const GIVE_BACK: Duration = Duration::from_secs(3);

struct Held {
    file: FileId,
    queue: Arc<Queue>,
    handle: u64,
    told: bool,
}

#[derive(Default)]
struct State {
    held: BTreeMap<u64, Held>,
    next: u64,
}

/// The layout leases of a session, and the queue to notify for each.
#[derive(Default)]
pub(crate) struct Recalls {
    state: Mutex<State>,
    returned: Condvar,
}

impl Recalls {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, file: FileId, queue: Arc<Queue>) -> u64 {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        state.held.insert(number, Held { file, queue, handle: 0, told: false });
        number
    }

    /// Sets the handle by which the program knows a lease. Returns whether the lease is still held.
    pub(crate) fn named(&self, number: u64, handle: u64) -> bool {
        let mut state = self.lock();
        let Some(held) = state.held.get_mut(&number).filter(|held| !held.told) else {
            return false;
        };
        held.handle = handle;
        true
    }

    /// Whether a lease is still held.
    pub(crate) fn holds(&self, number: u64) -> bool {
        self.lock().held.contains_key(&number)
    }

    pub(crate) fn give_back(&self, number: u64) {
        self.lock().held.remove(&number);
        self.returned.notify_all();
    }

    /// Notifies the holders of leases on these files.
    fn tell(&self, is_meant: impl Fn(FileId) -> bool, result: i64, text: &str) {
        let mut state = self.lock();
        for held in state.held.values_mut().filter(|held| is_meant(held.file) && !held.told) {
            held.told = true;
            let (tag, message) = (held.handle, copy_text(text));
            held.queue.complete(weir_completion_t { tag, result, kind: WEIR_DONE_RECALL, message });
        }
    }
}

impl UpperCache for Recalls {
    /// This library caches no pages, and its own writes recall no lease of the program.
    fn drop_before_own_write(&self, _file: FileId, _start: u64, _end: u64) {}

    fn drop_pages(&self, file: FileId, _start: u64, _end: u64) {
        let text = "somebody is about to change the file or to move its bytes: give the lease back";
        self.tell(|held| held == file, 0, text);
        let until = Instant::now() + GIVE_BACK;
        let mut state = self.lock();
        while state.held.values().any(|held| held.file == file) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The lease is gone, even if the program does not know it yet: its handle reports
                // that.
                state.held.retain(|_, held| held.file != file);
                return;
            }
            let waited = self.returned.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn drop_everything(&self) {
        let lost = -i64::from(ErrorKind::LeaseLost.errno());
        let text = "the lease was lost: this process was cut off from the metadata server";
        self.tell(|_| true, lost, text);
        self.lock().held.clear();
        self.returned.notify_all();
    }
}
