//! Requests that later ones may have to wait for.
//!
//! The kernel sends requests in order, but several threads read them, and one may be overtaken
//! between its `read` and a first look at what it has read. Who has to know of all that the kernel
//! sent before its own request has every such thread look first ([`Arrivals::settle`]). That
//! costs a few reads of `/proc`, and only where somebody would be told what is not so any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::args::NodeId;

/// A thread that has read a request looks at it within this time.
const LOOKS: Duration = Duration::from_secs(1);
/// So long at most one request waits for earlier ones.
const WAITS: Duration = Duration::from_secs(5);

/// What is remembered of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The last descriptor of an open file is closed. The kernel waits for no answer.
    Close,
    /// Bytes are appended. The kernel sends pieces of one call side by side.
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

/// See the top of the file.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    readers: Mutex<Vec<Arc<Reader>>>,
    state: Mutex<State>,
    done: Condvar,
}

/// A thread that reads requests.
#[derive(Debug)]
pub(super) struct Reader {
    thread: rustix::thread::Pid,
    has_looked: AtomicBool,
}

impl Reader {
    /// It begins to read.
    pub(super) fn reads(&self) {
        self.has_looked.store(false, Ordering::Release);
    }

    /// It has looked at what it has read.
    pub(super) fn has_looked(&self) {
        self.has_looked.store(true, Ordering::Release);
    }

    /// Whether it has nothing that it has not looked at: it sleeps in `read` until something comes.
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

/// A request that is remembered until this is dropped.
#[derive(Debug)]
pub(super) struct Noted {
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

    /// The calling thread is going to read requests.
    pub(super) fn join(&self) -> Arc<Reader> {
        let has_looked = AtomicBool::new(true);
        let reader = Arc::new(Reader { thread: rustix::thread::gettid(), has_looked });
        self.readers().push(reader.clone());
        reader
    }

    /// It reads no more.
    pub(super) fn leave(&self, reader: &Arc<Reader>) {
        self.readers().retain(|one| !Arc::ptr_eq(one, reader));
    }

    /// A request has come.
    pub(super) fn note(self: &Arc<Self>, unique: u64, node: NodeId, what: What) -> Noted {
        self.lock().known.push(Known { unique, node, what });
        Noted { arrivals: Arc::clone(self), unique }
    }

    /// Waits until all that was read before now has been noted.
    pub(super) fn settle(&self) {
        let until = Instant::now() + LOOKS;
        let readers = self.readers().clone();
        for reader in readers {
            while !reader.has_looked.load(Ordering::Acquire)
                && !reader.waits()
                && Instant::now() < until
            {
                std::thread::yield_now();
            }
        }
    }

    /// Waits for what is known to have come before this request.
    pub(super) fn wait_for(&self, what: What, node: NodeId, before: u64) {
        let is_it =
            |known: &Known| known.what == what && known.node == node && known.unique < before;
        let more = |state: &mut State| state.known.iter().any(is_it);
        let waited = self.done.wait_timeout_while(self.lock(), WAITS, more);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            tracing::debug!(node, ?what, "a request that came before takes long");
        }
    }

    /// How many closes have been served.
    pub(super) fn closes(&self) -> u64 {
        self.lock().closes
    }

    /// Waits for closes of a file that came before this request. `false`: there was none since
    /// so many had been served.
    pub(super) fn wait_for_closes(&self, node: NodeId, before: u64, served: u64) -> bool {
        self.settle();
        let is_it = |known: &Known| {
            (known.what, known.node) == (What::Close, node) && known.unique < before
        };
        let state = self.lock();
        let none = state.closes == served && !state.known.iter().any(is_it);
        drop(state);
        if !none {
            self.wait_for(What::Close, node, before);
        }
        !none
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_those_of_its_kind_and_file_that_came_before() {
        let arrivals = Arc::new(Arrivals::default());
        let (before, other) = (arrivals.note(2, 7, What::Close), arrivals.note(4, 8, What::Close));
        let _after = arrivals.note(8, 7, What::Close);
        arrivals.wait_for(What::Append, 7, 6);
        arrivals.wait_for(What::Close, 7, 2);
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
