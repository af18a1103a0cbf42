//! A session belongs to one process. After a fork the child has a copy of the memory, but not the
//! threads, and its sockets are those of the parent: it never touches that session, and what it
//! would do when it is dropped is not done.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use weir_client::Context;

/// How many forks lie between the process that made the first session and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::AcqRel);
}

/// Which process this is. Its number alone does not say it: parent and child can both be the
/// first one of a namespace.
fn this_process() -> (u32, u64) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function takes no argument, lives as long as the library, and only counts.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
    (process::id(), FORKS.load(Ordering::Acquire))
}

/// Something that only the process that made it uses, and drops.
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
            // SAFETY: nothing else takes or drops the value, and this is not dropped twice.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// All of something that there is, for the end of the program.
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

/// A connection to a cluster, and in whose name calls are made.
pub(crate) struct Session {
    pub(crate) client: weir_client::Client,
    pub(crate) ctx: Context,
}
