//! Lines that wait to be written.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most bytes in the queue. Lines that do not fit are dropped.
const MAX_BYTES: usize = 1 << 20;

static LOST: AtomicU64 = AtomicU64::new(0);

/// Counts dropped lines.
pub fn lose(lines: u64) {
    LOST.fetch_add(lines, Relaxed);
}

/// The number of lines dropped so far.
pub fn lost() -> u64 {
    LOST.load(Relaxed)
}

/// The queue between loggers and the writer.
#[derive(Default)]
pub struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Whether the writer has taken lines and not yet asked for more.
    is_writing: bool,
}

impl Queue {
    /// Adds a line, or drops it if there is no room. Never waits.
    pub fn push(&self, line: Vec<u8>) {
        let mut waiting = self.lock();
        if waiting.bytes + line.len() > MAX_BYTES {
            drop(waiting);
            return lose(1);
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line);
        drop(waiting);
        self.changed.notify_all();
    }

    /// Takes all waiting lines. Waits up to `patience` for the first one. The call also says that
    /// the lines taken before are written.
    pub fn take(&self, patience: Duration) -> VecDeque<Vec<u8>> {
        let mut waiting = self.lock();
        waiting.is_writing = false;
        self.changed.notify_all();
        let is_empty = |waiting: &mut Waiting| waiting.lines.is_empty();
        let waited = self.changed.wait_timeout_while(waiting, patience, is_empty);
        waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        waiting.is_writing = !waiting.lines.is_empty();
        waiting.bytes = 0;
        std::mem::take(&mut waiting.lines)
    }

    /// Waits up to `patience` until everything is written.
    pub fn await_written(&self, patience: Duration) {
        let is_not = |waiting: &mut Waiting| waiting.is_writing || !waiting.lines.is_empty();
        // The result does not matter at the end of a process.
        drop(self.changed.wait_timeout_while(self.lock(), patience, is_not));
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_dropped_and_nobody_waits_for_ever() {
        let queue = Queue::default();
        let before = lost();
        queue.push(vec![b'a'; MAX_BYTES]);
        queue.push(b"b".to_vec());
        assert!(lost() > before);
        queue.await_written(Duration::from_millis(1));
        assert_eq!(queue.take(Duration::ZERO).len(), 1);
        queue.push(b"c".to_vec());
        assert_eq!(queue.take(Duration::ZERO), [b"c".to_vec()]);
        assert!(queue.take(Duration::from_millis(1)).is_empty());
        queue.await_written(Duration::from_secs(600));
    }
}
