//! A session belongs to one process. After a fork the child has a copy of the memory, but no
//! threads, and shares the parent's sockets. So it never uses that session, and does not run its
//! destructor.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use weir_client::Context;

/// Number of forks between the process that made the first session and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::AcqRel);
}

/// Identifies this process. The process id alone is not enough: parent and child can both be
/// process 1 of a namespace.
fn this_process() -> (u32, u64) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function takes no argument, lives as long as the library, and only counts.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
    (process::id(), FORKS.load(Ordering::Acquire))
}

/// A value that is used and dropped only by the process that made it.
pub(crate) struct Owned<T> {
    process: (u32, u64),
    value: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: this_process(), value: ManuallyDrop::new(value) }
    }

    /// Whether this process may use it.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == this_process()
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: nothing else takes or drops the value, and `self` is dropped only once.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// A list of all values of a kind, for the end of the program.
pub(crate) struct Registry<T>(Mutex<Vec<Weak<T>>>);

impl<T> Registry<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    pub(crate) fn remember(&self, one: &Arc<T>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == all.capacity() {
            all.retain(|known| known.strong_count() > 0);
        }
        all.push(Arc::downgrade(one));
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

/// A connection to a cluster, and the user of its calls.
pub(crate) struct Session {
    pub(crate) client: weir_client::Client,
    pub(crate) ctx: Context,
}
