//! Threads that take turns: stackful coroutines with stacks from a pool.
//!
//! All that is unsafe about them is here. A fiber is resumed by the driver,
//! runs on its own stack and comes back with [`suspend`] or when it has ended.

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::{Cell, RefCell};
use std::ptr;

/// Stacks kept for reuse by each thread of the operating system.
const MAX_SPARE_STACKS: usize = 1024;

thread_local! {
    /// Of the fiber that runs now; null outside.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A simulated thread that has begun, or is about to.
pub(crate) struct Fiber {
    /// `None` only while it is being dropped.
    coroutine: Option<Coroutine<(), (), (), DefaultStack>>,
}

impl Fiber {
    /// One that will run `body`, which must not unwind, on a stack of so many bytes.
    ///
    /// # Errors
    /// Those of the kernel when it has no memory for a stack.
    pub(crate) fn new(stack_bytes: usize, body: impl FnOnce() + 'static) -> std::io::Result<Self> {
        let stack = take_stack(stack_bytes)?;
        let coroutine = Coroutine::with_stack(stack, move |yielder, ()| {
            YIELDER.set(yielder);
            body();
        });
        Ok(Self { coroutine: Some(coroutine) })
    }

    /// Lets it run until it suspends itself; true if it has ended.
    pub(crate) fn resume(&mut self) -> bool {
        let Some(coroutine) = &mut self.coroutine else { return true };
        let outer = YIELDER.replace(ptr::null());
        let result = coroutine.resume(());
        YIELDER.set(outer);
        matches!(result, CoroutineResult::Return(()))
    }
}

/// Dropping a fiber in the middle is what `kill -9` does to a thread: nothing
/// on its stack is dropped, and nothing of it ever runs again.
impl Drop for Fiber {
    fn drop(&mut self) {
        let Some(mut coroutine) = self.coroutine.take() else { return };
        if !coroutine.done() {
            // SAFETY: the stack is given up without unwinding. What is on it is
            // leaked, as by `mem::forget`. Whoever could refer to it is a thread
            // of the same simulated process: all of them are dropped together
            // and none runs again. The scheduler keeps no reference into it.
            unsafe { coroutine.force_reset() };
        }
        give_stack(coroutine.into_stack());
    }
}

/// Ends this turn of the running fiber; returns when it has the next.
pub(crate) fn suspend() {
    let yielder = YIELDER.get();
    assert!(!yielder.is_null(), "only a simulated thread can wait for something");
    // SAFETY: it was set by the fiber that runs now, either when it began or
    // below; its yielder is on its stack until its body returns.
    unsafe { (*yielder).suspend(()) };
    YIELDER.set(yielder);
}

fn take_stack(bytes: usize) -> std::io::Result<DefaultStack> {
    let spare = STACKS.with_borrow_mut(|stacks| {
        let fits = |s: &DefaultStack| s.base().get() - s.limit().get() >= bytes;
        stacks.pop().filter(fits)
    });
    spare.map_or_else(|| DefaultStack::new(bytes), Ok)
}

fn give_stack(stack: DefaultStack) {
    // When the operating system's thread ends, the pool may be gone already.
    let _ = STACKS.try_with(|stacks| {
        if let Ok(mut stacks) = stacks.try_borrow_mut()
            && stacks.len() < MAX_SPARE_STACKS
        {
            stacks.push(stack);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn a_dropped_fiber_drops_nothing_and_gives_its_stack_back() {
        let value = Rc::new(());
        let held = value.clone();
        let mut fiber = Fiber::new(64 << 10, move || {
            let _held = held;
            loop {
                suspend();
            }
        })
        .unwrap();
        assert!(!fiber.resume());
        assert!(!fiber.resume());
        let before = STACKS.with_borrow(Vec::len);
        drop(fiber);
        assert_eq!(Rc::strong_count(&value), 2, "a destructor ran");
        assert_eq!(STACKS.with_borrow(Vec::len), before + 1);
    }

    #[test]
    fn a_fiber_may_run_others() {
        let mut outer = Fiber::new(64 << 10, || {
            let mut inner = Fiber::new(64 << 10, suspend).unwrap();
            assert!(!inner.resume());
            suspend();
            assert!(inner.resume());
        })
        .unwrap();
        assert!(!outer.resume());
        assert!(outer.resume());
    }
}
