//! State that must not be shared with a child of `fork`: everything that talks to a server.
//!
//! Invariants: the holder of the gate does no I/O. A lock of this crate that a child may need is
//! taken with the gate held, so that `fork`, which waits for the gate, finds the lock free.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use weir_types::{Error, ErrorKind, Result};

/// Number of forks between the process that loaded the library and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);
static GATE: Mutex<()> = Mutex::new(());

thread_local! {
    /// The gate, while this thread forks.
    static FORKING: RefCell<Option<MutexGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Number of this process among those that `fork` made of one.
pub fn this() -> u64 {
    FORKS.load(Ordering::Acquire)
}

/// Takes the gate, which delays `fork`. Hold it for a few instructions only.
pub(crate) fn gate() -> MutexGuard<'static, ()> {
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the handlers of `fork`.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the three functions take no argument, live as long as the library, and take one
        // lock of this crate.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
}

unsafe extern "C" fn prepare() {
    let held = gate();
    // A thread that is ending cannot store it, and does without.
    let _ = FORKING.try_with(|slot| *slot.borrow_mut() = Some(held));
}

unsafe extern "C" fn parent() {
    let _ = FORKING.try_with(|slot| slot.borrow_mut().take());
}

unsafe extern "C" fn child() {
    FORKS.fetch_add(1, Ordering::AcqRel);
    let _ = FORKING.try_with(|slot| slot.borrow_mut().take());
}

/// A value that each process has for itself. A child never uses or drops the parent's value: the
/// threads behind it do not exist in the child, and its sockets belong to the parent.
#[derive(Debug)]
pub(crate) struct PerProcess<T>(Mutex<Slot<T>>);

#[derive(Debug)]
enum Slot<T> {
    /// The value of a process.
    Of(u64, Arc<T>),
    /// The value was taken, and no other is made.
    Closed,
}

fn closed() -> Error {
    Error::new(ErrorKind::BadHandle, "it is closed")
}

impl<T> PerProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(Slot::Of(this(), Arc::new(value))))
    }

    /// The value of this process. If there is none, `make` makes it.
    ///
    /// # Errors
    /// `BadHandle` after [`PerProcess::take`]; those of `make`.
    pub(crate) fn get(&self, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        if let Some(value) = self.look()? {
            return Ok(value);
        }
        let fresh = Arc::new(make()?);
        let _gate = gate();
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // On an early return, `fresh` is dropped after the guards.
        match &*slot {
            // Another thread was faster.
            Slot::Of(process, value) if *process == this() => return Ok(value.clone()),
            Slot::Closed => return Err(closed()),
            Slot::Of(..) => {}
        }
        std::mem::forget(std::mem::replace(&mut *slot, Slot::Of(this(), fresh.clone())));
        Ok(fresh)
    }

    fn look(&self) -> Result<Option<Arc<T>>> {
        let _gate = gate();
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Slot::Of(process, value) if *process == this() => Ok(Some(value.clone())),
            Slot::Of(..) => Ok(None),
            Slot::Closed => Err(closed()),
        }
    }

    /// Takes the value of this process. Afterwards there is none.
    pub(crate) fn take(&self) -> Option<Arc<T>> {
        let _gate = gate();
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *slot, Slot::Closed) {
            Slot::Of(process, value) if process == this() => Some(value),
            old => {
                std::mem::forget(old);
                None
            }
        }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_out_is_not_made_again() {
        let value = PerProcess::new(1);
        assert_eq!(*value.get(|| Ok(2)).unwrap(), 1);
        assert_eq!(value.take().as_deref(), Some(&1));
        assert_eq!(value.get(|| Ok(2)).unwrap_err().kind, ErrorKind::BadHandle);
        assert!(value.take().is_none());
        let late = PerProcess::new(3);
        // Closed while a child makes its own value.
        late.0.lock().map(|mut slot| *slot = Slot::Of(u64::MAX, Arc::new(4))).unwrap();
        let made = late.get(|| Ok(late.take().map_or(5, |_| 6)));
        assert_eq!(made.unwrap_err().kind, ErrorKind::BadHandle);
    }

    #[test]
    fn a_child_makes_its_own_value_and_leaves_that_of_its_parent_alone() {
        struct Loud(u32);
        impl Drop for Loud {
            fn drop(&mut self) {
                assert_ne!(self.0, 1, "the child drops what is its parent's");
            }
        }
        watch_forks();
        let value = std::mem::ManuallyDrop::new(PerProcess::new(Loud(1)));
        assert_eq!(value.get(|| Ok(Loud(2))).unwrap().0, 1);
        // SAFETY: the child only allocates and locks with the gate held, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = value.get(|| Ok(Loud(2))).map(|value| value.0).unwrap_or(0);
            let same = value.get(|| Ok(Loud(3))).map(|value| value.0).unwrap_or(0);
            // SAFETY: ends the process without running the parent's exit handlers.
            unsafe { libc::_exit(if own == 2 && same == 2 { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for this child only.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(value.get(|| Ok(Loud(4))).unwrap().0, 1);
    }
}
