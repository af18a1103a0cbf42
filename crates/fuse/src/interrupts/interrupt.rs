//! Interrupts: a signal to a process that waits in an operation reaches the thread that serves it.
//!
//! Invariant: an interrupt is never lost. One worker may receive it before another has registered
//! the request; then it is kept until that happens. Request ids are never reused, so a late
//! interrupt does no harm.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::interrupts::heeds::Heeds;

/// The most interrupts kept for unregistered requests. Most such requests have just been answered;
/// the oldest are dropped.
const MAX_EARLY: usize = 256;

type Waker = Arc<dyn Fn() + Send + Sync>;

/// Whether the caller of an operation wants it to end early.
///
/// Three ways to learn of it while waiting: ask [`Interrupt::interrupted`], poll the descriptor
/// ([`AsFd`], readable once interrupted), or get a callback ([`Interrupt::wake_with`]). Then return
/// `EINTR`.
pub struct Interrupt {
    raised: AtomicBool,
    event: OwnedFd,
    waker: Mutex<Option<Waker>>,
}

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Interrupt({})", self.interrupted())
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Interrupt {
    /// Makes an interrupt that is not raised.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ok(Self {
            raised: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            waker: Mutex::new(None),
        })
    }

    /// Whether the caller was interrupted.
    pub fn interrupted(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    /// Runs `body`. If the caller is interrupted meanwhile (or was before), `waker` is called at
    /// least once, on another thread or this one. It must be quick, such as notifying a condition
    /// variable.
    pub fn wake_with<R>(
        &self,
        waker: impl Fn() + Send + Sync + 'static,
        body: impl FnOnce() -> R,
    ) -> R {
        let waker: Waker = Arc::new(waker);
        *self.waker() = Some(Arc::clone(&waker));
        if self.interrupted() {
            waker();
        }
        let result = body();
        *self.waker() = None;
        result
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn raise(&self) {
        if self.raised.swap(true, Ordering::SeqCst) {
            return;
        }
        // A full counter is readable as well.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        let waker = self.waker().clone();
        if let Some(waker) = waker {
            waker();
        }
    }

    /// Prepares for the next request.
    fn reset(&self) {
        *self.waker() = None;
        if self.raised.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        }
    }
}

/// Requests being served, with their workers.
#[derive(Debug, Default)]
pub(crate) struct InterruptTable {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    active: Vec<(u64, Arc<Interrupt>, Heeds)>,
    early: VecDeque<u64>,
    closed: bool,
}

impl State {
    fn keep_early(&mut self, unique: u64) {
        if self.early.len() == MAX_EARLY {
            self.early.pop_front();
        }
        self.early.push_back(unique);
    }
}

impl InterruptTable {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request until the guard is dropped. `interrupt` belongs to the worker and serves
    /// one request at a time.
    pub(crate) fn begin<'a>(
        &'a self,
        unique: u64,
        interrupt: &'a Arc<Interrupt>,
        heeds: Heeds,
    ) -> Active<'a> {
        let (early, closed) = {
            let mut state = self.lock();
            let early = state.early.iter().position(|&id| id == unique);
            if let Some(index) = early {
                state.early.remove(index);
            }
            state.active.push((unique, Arc::clone(interrupt), heeds));
            (early.is_some(), state.closed)
        };
        if closed || (early && heeds.now()) {
            interrupt.raise();
        }
        Active { table: self, unique, interrupt, handed_on: false }
    }

    /// Interrupts a registered request, whatever signals it reacts to.
    pub(crate) fn raise(&self, unique: u64) {
        if let Some((_, interrupt, _)) = self.lock().active.iter().find(|(id, ..)| *id == unique) {
            interrupt.raise();
        }
    }

    /// Handles a signal to a request's caller: interrupts the request, now or when it is
    /// registered, if it reacts to the signal.
    pub(crate) fn interrupt(&self, unique: u64) {
        let heeds = {
            let mut state = self.lock();
            let found = state.active.iter().find(|(id, ..)| *id == unique).map(|found| found.2);
            if found.is_none() {
                state.keep_early(unique);
            }
            found
        };
        if heeds.is_some_and(Heeds::now)
            && let Some((_, interrupt, _)) =
                self.lock().active.iter().find(|(id, ..)| *id == unique)
        {
            // Under the lock, so that it cannot hit the worker's next request.
            interrupt.raise();
        }
    }

    /// Interrupts all requests being served.
    pub(crate) fn interrupt_all(&self) {
        self.lock().active.iter().for_each(|(_, interrupt, _)| interrupt.raise());
    }

    /// Interrupts all requests, present and future.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.interrupt_all();
    }
}

/// A registered request.
pub(crate) struct Active<'a> {
    table: &'a InterruptTable,
    unique: u64,
    interrupt: &'a Interrupt,
    handed_on: bool,
}

impl Active<'_> {
    /// Ends the registration of a request that is not answered yet and that another worker will
    /// register again. That worker learns of interrupts until now. (The kernel sends each once.)
    pub(crate) fn hand_on(mut self) {
        self.handed_on = true;
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        let mut state = self.table.lock();
        state.active.retain(|(id, ..)| *id != self.unique);
        if self.handed_on && self.interrupt.interrupted() {
            state.keep_early(self.unique);
        }
        self.interrupt.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn readable(interrupt: &Interrupt) -> bool {
        let mut fds = [PollFd::new(interrupt, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn an_interrupt_hits_its_request_and_no_later_one() {
        let table = InterruptTable::default();
        let interrupt = Arc::new(Interrupt::new().unwrap());
        let first = table.begin(2, &interrupt, Heeds::Any);
        table.interrupt(2);
        assert!(interrupt.interrupted() && readable(&interrupt));
        drop(first);
        let _second = table.begin(4, &interrupt, Heeds::Any);
        table.interrupt(2);
        assert!(!interrupt.interrupted() && !readable(&interrupt));
    }

    #[test]
    fn an_interrupt_that_comes_first_is_kept() {
        let table = InterruptTable::default();
        let interrupt = Arc::new(Interrupt::new().unwrap());
        for id in 0..2 * MAX_EARLY as u64 {
            table.interrupt(1000 + id);
        }
        assert_eq!(table.lock().early.len(), MAX_EARLY);
        table.interrupt(2);
        let _request = table.begin(2, &interrupt, Heeds::Any);
        assert!(interrupt.interrupted() && readable(&interrupt));
    }

    #[test]
    fn an_interrupt_follows_its_request_to_another_worker() {
        let table = InterruptTable::default();
        let [first, second] = [(); 2].map(|()| Arc::new(Interrupt::new().unwrap()));
        let request = table.begin(2, &first, Heeds::Any);
        table.interrupt(2);
        request.hand_on();
        assert!(!first.interrupted());
        let request = table.begin(2, &second, Heeds::Any);
        assert!(second.interrupted());
        drop(request);
        table.begin(4, &first, Heeds::Any).hand_on();
        let _request = table.begin(4, &second, Heeds::Any);
        assert!(!second.interrupted());
    }

    #[test]
    fn wakers_are_called_also_when_late() {
        use std::sync::atomic::AtomicUsize;
        let table = InterruptTable::default();
        let interrupt = Arc::new(Interrupt::new().unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let count = |calls: &Arc<AtomicUsize>| {
            let calls = Arc::clone(calls);
            move || {
                calls.fetch_add(1, Ordering::SeqCst);
            }
        };
        let request = table.begin(2, &interrupt, Heeds::Any);
        interrupt.wake_with(count(&calls), || table.interrupt(2));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        interrupt.wake_with(count(&calls), || ());
        assert_eq!(calls.load(Ordering::SeqCst), 2);
        drop(request);
        table.close();
        let _next = table.begin(4, &interrupt, Heeds::Any);
        assert!(interrupt.interrupted());
    }

    /// A signal that this thread would survive.
    #[test]
    fn an_operation_of_who_lives_on_is_not_interrupted() {
        let table = InterruptTable::default();
        let interrupt = Arc::new(Interrupt::new().unwrap());
        let alive = Heeds::Death(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        table.interrupt(2);
        let request = table.begin(2, &interrupt, alive);
        table.interrupt(2);
        assert!(!interrupt.interrupted());
        // The end of the mount spares nobody.
        table.interrupt_all();
        assert!(interrupt.interrupted());
        drop(request);
        let _dead = table.begin(4, &interrupt, Heeds::Death(u32::MAX));
        table.interrupt(4);
        assert!(interrupt.interrupted());
    }
}
