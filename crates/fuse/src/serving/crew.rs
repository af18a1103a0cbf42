//! How many threads read requests, serve them and rest.
//!
//! Invariant: while fewer than the most threads exist, one always waits for requests, so an
//! operation that blocks stalls no other. When all exist, the last one to wait puts requests into a
//! bounded queue instead of serving them, so that interrupts still arrive. Extra threads are
//! reserved for requests that others may be waiting for ([`Urgency`]): operations that block cannot
//! take them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a thread rests before it exits.
const REST: Duration = Duration::from_secs(30);

/// Extra threads for each step of urgency.
const RESERVE: usize = 8;

/// Urgency of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Only its caller waits.
    Normal = 0,
    /// It fills pages of the kernel, which stay locked meanwhile: a drop of pages waits for it.
    Fills = 1,
    /// The kernel writes pages back: a drop of pages, or an allocation of memory, may wait for it.
    WritesBack = 2,
}

/// The count of threads; `T` is a request that waits for a thread.
pub(crate) struct Crew<T> {
    keep_waiting: usize,
    max_threads: usize,
    max_queued: usize,
    state: Mutex<State<T>>,
    /// Wakes resting threads.
    call: Condvar,
    /// Wakes [`Crew::wait`].
    ended: Condvar,
}

struct State<T> {
    /// Number of threads.
    total: usize,
    /// Threads in `read(2)`, or on their way there.
    waiting: usize,
    /// Resting threads.
    resting: usize,
    /// Threads called back from rest that have not woken yet.
    called: usize,
    queue: VecDeque<T>,
    closed: bool,
}

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Serve it.
    Serve,
    /// Start another thread, then serve it.
    StartAnother,
    /// Queue it, or serve it if that fails: all threads are busy.
    Enqueue,
}

/// What a thread does after a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<T> {
    /// Read the next request.
    Read,
    /// Serve this one.
    Serve(T),
    /// Exit.
    Leave,
}

impl<T> State<T> {
    /// Number of threads that serve, or have something to serve.
    fn busy(&self) -> usize {
        self.total - self.waiting - self.resting
    }
}

impl<T> Crew<T> {
    pub(crate) fn new(keep_waiting: usize, max_threads: usize, max_queued: usize) -> Self {
        let state = State {
            total: 0,
            waiting: 0,
            resting: 0,
            called: 0,
            queue: VecDeque::new(),
            closed: false,
        };
        Self {
            keep_waiting,
            max_threads,
            max_queued,
            state: Mutex::new(state),
            call: Condvar::new(),
            ended: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a thread that is about to start and will read first.
    pub(crate) fn join(&self) {
        let mut state = self.lock();
        state.total += 1;
        state.waiting += 1;
    }

    /// Uncounts a thread that could not be started, or stopped reading.
    pub(crate) fn leave_reading(&self) {
        let mut state = self.lock();
        state.total -= 1;
        state.waiting -= 1;
        self.ended.notify_all();
    }

    /// Records that a reading thread has a request.
    pub(crate) fn took(&self, urgency: Urgency) -> Taken {
        let most_busy = self.max_threads - 1 + urgency as usize * RESERVE;
        let mut state = self.lock();
        state.waiting -= 1;
        if state.closed {
            Taken::Serve
        } else if state.busy() > most_busy {
            if state.total > 1 && state.queue.len() < self.max_queued {
                Taken::Enqueue
            } else {
                Taken::Serve
            }
        } else if state.waiting > 0 {
            Taken::Serve
        } else if state.resting > 0 {
            state.resting -= 1;
            state.called += 1;
            state.waiting += 1;
            self.call.notify_one();
            Taken::Serve
        } else {
            state.total += 1;
            state.waiting += 1;
            Taken::StartAnother
        }
    }

    /// After [`Taken::Enqueue`]: queues the request, and the thread reads on. Returns the request
    /// if no busy thread is left to serve it.
    pub(crate) fn enqueue(&self, item: T) -> Result<(), T> {
        let mut state = self.lock();
        let busy_others = state.busy() - 1;
        if busy_others == 0 || state.queue.len() >= self.max_queued {
            return Err(item);
        }
        state.queue.push_back(item);
        state.waiting += 1;
        Ok(())
    }

    /// Maps all queued requests.
    pub(crate) fn queued<R>(&self, of: impl FnMut(&T) -> R) -> Vec<R> {
        self.lock().queue.iter().map(of).collect()
    }

    /// Removes a queued request.
    pub(crate) fn remove_queued(&self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let mut state = self.lock();
        let index = state.queue.iter().position(wanted)?;
        state.queue.remove(index)
    }

    /// Records that a thread has served a request. It rests if enough others wait.
    pub(crate) fn done(&self) -> Next<T> {
        let mut state = self.lock();
        // What was queued is not for the reserve.
        if (state.busy() <= self.max_threads || state.closed)
            && let Some(item) = state.queue.pop_front()
        {
            return Next::Serve(item);
        }
        if !state.closed && state.waiting < self.keep_waiting {
            state.waiting += 1;
            return Next::Read;
        }
        state.resting += 1;
        let until = Instant::now() + REST;
        loop {
            if state.called > 0 {
                state.called -= 1;
                return Next::Read;
            }
            let left = until.saturating_duration_since(Instant::now());
            if state.closed || left.is_zero() {
                state.resting -= 1;
                state.total -= 1;
                self.ended.notify_all();
                return Next::Leave;
            }
            let waited = self.call.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Records that there will be no more requests.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.call.notify_all();
        self.ended.notify_all();
    }

    /// Waits until closed, calls `closing`, then waits for the threads to exit, at most
    /// `drain_timeout`. Returns how many are left.
    pub(crate) fn wait(&self, drain_timeout: Duration, closing: impl FnOnce()) -> usize {
        let mut state = self.lock();
        while !state.closed {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        closing();
        let until = Instant::now() + drain_timeout;
        let mut state = self.lock();
        while state.total > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crew(keep_waiting: usize, max_threads: usize) -> Crew<u32> {
        let crew = Crew::new(keep_waiting, max_threads, 2);
        for _ in 0..keep_waiting {
            crew.join();
        }
        crew
    }

    #[test]
    fn one_always_waits_until_all_threads_exist() {
        let crew = crew(2, 4);
        assert_eq!(crew.took(Urgency::Normal), Taken::Serve);
        assert_eq!(crew.took(Urgency::Normal), Taken::StartAnother);
        assert_eq!(crew.took(Urgency::Normal), Taken::StartAnother);
        assert_eq!(crew.took(Urgency::Normal), Taken::Enqueue);
        assert_eq!(crew.enqueue(7), Ok(()));
        assert_eq!(crew.took(Urgency::Normal), Taken::Enqueue);
        assert_eq!(crew.enqueue(8), Ok(()));
        assert_eq!(crew.took(Urgency::Normal), Taken::Serve);
        assert_eq!(crew.remove_queued(|&item| item == 7), Some(7));
        assert_eq!(crew.done(), Next::Serve(8));
        assert_eq!(crew.done(), Next::Read);
    }

    #[test]
    fn requests_that_others_wait_for_have_threads_that_no_other_takes() {
        let crew = crew(1, 2);
        assert_eq!(crew.took(Urgency::Normal), Taken::StartAnother);
        assert_eq!(crew.took(Urgency::Normal), Taken::Enqueue);
        assert_eq!(crew.enqueue(7), Ok(()));
        for _ in 0..RESERVE {
            assert_eq!(crew.took(Urgency::Fills), Taken::StartAnother);
        }
        assert_eq!(crew.took(Urgency::Fills), Taken::Enqueue);
        assert_eq!(crew.enqueue(8), Ok(()));
        assert_eq!(crew.took(Urgency::WritesBack), Taken::StartAnother);
        // One of the reserve is done: it leaves the queue to the others.
        assert_eq!(crew.lock().waiting, 1);
        let mut state = crew.lock();
        state.waiting = 0;
        state.total -= 1;
        drop(state);
        assert_eq!(crew.done(), Next::Read);
        assert_eq!(crew.lock().queue.len(), 2);
    }

    #[test]
    fn nothing_is_queued_when_nobody_would_come_for_it() {
        let crew = crew(2, 2);
        assert_eq!(crew.took(Urgency::Normal), Taken::Serve);
        assert_eq!(crew.took(Urgency::Normal), Taken::Enqueue);
        assert_eq!(crew.done(), Next::Read);
        assert_eq!(crew.enqueue(1), Err(1));
    }

    #[test]
    fn a_single_thread_serves_what_it_reads() {
        let crew = crew(1, 1);
        for _ in 0..3 {
            assert_eq!(crew.took(Urgency::Normal), Taken::Serve);
            assert_eq!(crew.done(), Next::Read);
        }
    }

    #[test]
    fn a_resting_thread_is_called_back_and_all_leave_at_the_end() {
        let crew = crew(1, 4);
        assert_eq!(crew.took(Urgency::Normal), Taken::StartAnother);
        std::thread::scope(|scope| {
            let rests = scope.spawn(|| crew.done());
            while crew.lock().resting == 0 {
                std::thread::yield_now();
            }
            assert_eq!(crew.took(Urgency::Normal), Taken::Serve);
            assert_eq!(rests.join().unwrap(), Next::Read);
            let ends = scope.spawn(|| crew.done());
            crew.close();
            assert_eq!(ends.join().unwrap(), Next::Leave);
        });
        assert_eq!(crew.wait(Duration::from_millis(1), || ()), 1);
        crew.leave_reading();
        assert_eq!(crew.wait(Duration::from_millis(1), || ()), 0);
    }
}
