//! Requests that later ones may have to wait for.
//!
//! The kernel sends requests in order, but several threads read them, and one may be overtaken
//! between its `read` and its first look at the request. A request that depends on all earlier ones
//! makes every such thread look first ([`Arrivals::settle`]). That costs a few reads of `/proc`,
//! and happens only if the reply might otherwise be outdated.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::interrupts::interrupt::Interrupt;
use crate::protocol::args::NodeId;

/// A thread that has read a request looks at it within this time.
const LOOKS: Duration = Duration::from_secs(1);
/// Longest wait of a lock request for earlier ones.
const WAITS: Duration = Duration::from_secs(5);

/// Kind of a remembered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The last close of an open file. The kernel waits for no reply.
    Close,
    /// An append. The kernel sends pieces of one call in parallel.
    Append,
}

#[derive(Debug)]
struct Known {
    unique: u64,
    node: NodeId,
    what: What,
}

#[derive(Debug, Default)]
struct State {
    known: Vec<Known>,
    closes: u64,
}

/// The remembered requests; see the top of the file.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    readers: Mutex<Vec<Arc<Reader>>>,
    state: Mutex<State>,
    done: Condvar,
}

/// A thread that reads requests.
#[derive(Debug)]
pub(crate) struct Reader {
    thread: rustix::thread::Pid,
    has_looked: AtomicBool,
}

impl Reader {
    /// Records that the thread begins to read.
    pub(crate) fn reads(&self) {
        self.has_looked.store(false, Ordering::Release);
    }

    /// Records that the thread has looked at its request, or that there is nothing more to read.
    pub(crate) fn has_looked(&self) {
        self.has_looked.store(true, Ordering::Release);
    }

    /// Whether the thread has no request that it has not looked at: it sleeps in `read`.
    fn waits(&self) -> bool {
        let read = |name| {
            let thread = self.thread.as_raw_nonzero();
            std::fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).unwrap_or_default()
        };
        let nowhere = |place: &str| matches!(place, "0" | "");
        let place = read("wchan");
        if !nowhere(&place) {
            // Asleep elsewhere it may be copying a request, or wait to note it.
            return place.starts_with("fuse_dev");
        }
        // It is at work, and may fall asleep elsewhere the next moment; or the kernel does not say
        // where threads sleep.
        sleeps(&read("stat")) && nowhere(&read("wchan")) && sleeps(&read("stat"))
    }
}

fn sleeps(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// A remembered request, until this is dropped.
#[derive(Debug)]
pub(crate) struct Noted {
    arrivals: Arc<Arrivals>,
    unique: u64,
}

impl Drop for Noted {
    fn drop(&mut self) {
        let mut state = self.arrivals.lock();
        if let Some(index) = state.known.iter().position(|known| known.unique == self.unique) {
            state.closes += u64::from(state.known[index].what == What::Close);
            state.known.swap_remove(index);
        }
        drop(state);
        self.arrivals.done.notify_all();
    }
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Arc<Reader>>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the calling thread as a reader.
    pub(crate) fn join(&self) -> Arc<Reader> {
        let has_looked = AtomicBool::new(true);
        let reader = Arc::new(Reader { thread: rustix::thread::gettid(), has_looked });
        self.readers().push(reader.clone());
        reader
    }

    /// Removes a reader.
    pub(crate) fn leave(&self, reader: &Arc<Reader>) {
        reader.has_looked();
        self.readers().retain(|one| !Arc::ptr_eq(one, reader));
    }

    /// Records a request.
    pub(crate) fn note(self: &Arc<Self>, unique: u64, node: NodeId, what: What) -> Noted {
        self.lock().known.push(Known { unique, node, what });
        Noted { arrivals: Arc::clone(self), unique }
    }

    /// Waits until every request that was read before now is recorded, or until `enough`. Returns
    /// `false` if some may be missing.
    fn settle(&self, enough: impl Fn() -> bool) -> bool {
        let readers = self.readers().clone();
        readers.iter().all(|reader| {
            while !reader.has_looked.load(Ordering::Acquire) && !reader.waits() {
                if enough() {
                    return false;
                }
                std::thread::yield_now();
            }
            true
        })
    }

    /// Waits until all earlier appends to this file have ended, however long that takes: this one's
    /// bytes follow theirs. (They wait for no later one, and not for ever for servers.) `all_known`
    /// says that every one is recorded. Returns `false` if interrupted.
    pub(crate) fn take_turn(
        self: &Arc<Self>,
        (node, unique): (NodeId, u64),
        all_known: bool,
        interrupt: &Interrupt,
    ) -> bool {
        if !all_known && !self.settle(|| interrupt.interrupted()) {
            return false;
        }
        let earlier = |known: &Known| {
            (known.what, known.node) == (What::Append, node) && known.unique < unique
        };
        let must_wait = |state: &State| state.known.iter().any(earlier);
        if !must_wait(&self.lock()) {
            return true;
        }
        let wakes = Arc::clone(self);
        let wake = move || {
            drop(wakes.lock());
            wakes.done.notify_all();
        };
        interrupt.wake_with(wake, || {
            let waits = |state: &mut State| must_wait(state) && !interrupt.interrupted();
            let waited = self.done.wait_while(self.lock(), waits);
            !must_wait(&waited.unwrap_or_else(PoisonError::into_inner))
        })
    }

    /// Number of served closes.
    pub(crate) fn closes(&self) -> u64 {
        self.lock().closes
    }

    /// Waits for closes of a file that came before this request. Returns `false` if there was none
    /// since `served` closes.
    pub(crate) fn wait_for_closes(&self, node: NodeId, before: u64, served: u64) -> bool {
        let until = Instant::now() + LOOKS;
        self.settle(|| Instant::now() >= until);
        let is_it = |known: &Known| {
            (known.what, known.node) == (What::Close, node) && known.unique < before
        };
        let more = |state: &mut State| state.known.iter().any(is_it);
        let mut state = self.lock();
        if state.closes == served && !more(&mut state) {
            return false;
        }
        let waited = self.done.wait_timeout_while(state, WAITS, more);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            tracing::debug!(node, "a close that came before takes long");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupts::heeds::Heeds;
    use crate::interrupts::interrupt::InterruptTable;

    #[test]
    fn an_append_waits_for_those_that_came_before_until_it_is_interrupted() {
        let (arrivals, table) = (Arc::new(Arrivals::default()), InterruptTable::default());
        let interrupt = Arc::new(Interrupt::new().unwrap());
        let active = table.begin(6, &interrupt, Heeds::Any);
        let before = arrivals.note(2, 7, What::Append);
        let _others = (arrivals.note(4, 8, What::Append), arrivals.note(4, 7, What::Close));
        let _after = arrivals.note(8, 7, What::Append);
        assert!(arrivals.take_turn((7, 2), false, &interrupt));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| arrivals.take_turn((7, 6), false, &interrupt));
            table.interrupt(6);
            assert!(!waits.join().unwrap());
        });
        drop(active);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| arrivals.take_turn((7, 6), false, &interrupt));
            drop(before);
            assert!(waits.join().unwrap());
        });
    }

    #[test]
    fn an_append_does_not_go_on_before_all_threads_have_looked() {
        let (arrivals, table) = (Arc::new(Arrivals::default()), InterruptTable::default());
        let interrupt = Arc::new(Interrupt::new().unwrap());
        let _active = table.begin(6, &interrupt, Heeds::Any);
        let reader = arrivals.join();
        reader.reads();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| arrivals.take_turn((7, 6), false, &interrupt));
            // This thread is at work, and has not looked: for longer than others would wait.
            let until = Instant::now() + LOOKS + LOOKS / 2;
            while Instant::now() < until {
                assert!(!waits.is_finished());
            }
            table.interrupt(6);
            // It is at work until the other one has ended: who joins waits.
            while !waits.is_finished() {}
            assert!(!waits.join().unwrap());
            let waits = scope.spawn(|| arrivals.take_turn((7, 6), true, &interrupt));
            assert!(waits.join().unwrap(), "nothing can be unknown");
        });
        arrivals.leave(&reader);
        assert!(reader.has_looked.load(Ordering::Acquire), "who looks at it must not wait");
    }

    #[test]
    fn a_request_waits_for_those_of_its_kind_and_file_that_came_before() {
        let arrivals = Arc::new(Arrivals::default());
        let (before, other) = (arrivals.note(2, 7, What::Close), arrivals.note(4, 8, What::Close));
        let _after = arrivals.note(8, 7, What::Close);
        assert!(!arrivals.wait_for_closes(7, 2, 0));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| arrivals.wait_for_closes(7, 6, 0));
            drop(before);
            assert!(waits.join().unwrap());
        });
        assert!(!arrivals.wait_for_closes(7, 6, 1));
        drop(other);
        assert!(arrivals.wait_for_closes(7, 6, 1), "one was served meanwhile");
        assert_eq!(arrivals.closes(), 2);
    }

    #[test]
    fn a_thread_that_has_not_looked_yet_is_waited_for() {
        let arrivals = Arc::new(Arrivals::default());
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let shared = arrivals.clone();
            scope.spawn(move || {
                let reader = shared.join();
                reader.reads();
                tell.send(()).unwrap();
                let noted = shared.note(2, 7, What::Close);
                reader.has_looked();
                drop(noted);
                shared.leave(&reader);
            });
            told.recv().unwrap();
            assert!(arrivals.wait_for_closes(7, 4, 0));
        });
        assert!(arrivals.readers().is_empty());
    }

    #[test]
    fn a_thread_that_sleeps_is_told_from_one_at_work() {
        assert!(sleeps("12 (weir-fuse) S 1 1 1 0") && !sleeps("12 (a) S) D 1") && !sleeps(""));
        let here = Arrivals::default().join();
        assert!(!here.waits(), "it asks");
    }
}
