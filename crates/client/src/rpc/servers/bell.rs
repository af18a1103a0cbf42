//! What wakes the thread that asks for loads, and ends it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weir_host::sync::{Condvar, Mutex};
use weir_types::TargetId;

/// Wakes the thread that asks, which waits here.
#[derive(Debug, Default)]
pub(super) struct Bell {
    /// Set when something is read whose targets are to be asked, or something is to be connected to.
    pub(super) wanted: AtomicBool,
    /// Set when the thread has looked for questions, or is about to, and nothing new was read
    /// since.
    pub(super) rests: AtomicBool,
    /// Targets of opened files to whose servers there is no connection yet.
    pub(super) opened: Mutex<VecDeque<TargetId>>,
    pub(super) ended: Mutex<bool>,
    pub(super) changed: Condvar,
}

impl Bell {
    /// Wakes the thread for a new read, which the paces know already.
    pub(super) fn wake(&self) {
        self.wanted.store(true, Relaxed);
        // Set before it looks at the paces, behind their lock: it sees what is new there, or this.
        if self.rests.load(Relaxed) {
            let _ended = self.ended.lock();
            self.rests.store(false, Relaxed);
            self.changed.notify_all();
        }
    }
}
