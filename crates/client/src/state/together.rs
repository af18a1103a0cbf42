//! Confirmed writes of several threads. While one of them waits for the servers, others queue. Whoever
//! comes next sends all that have queued, and waits for them together: they cost one round trip.
//!
//! Invariant: a write that was taken from the queue gets its result, whatever happens to who took it.

use crate::context::Context;
use std::collections::{BTreeMap, VecDeque};
use weir_host::sync::{Condvar, Mutex};
use weir_types::{Error, ErrorKind, Result};

/// The most writes of others that one thread makes, and their bytes: it waits for all of them.
const MAX_TAKEN: usize = 32;
const MAX_TAKEN_BYTES: usize = 2 << 20;

/// The confirmed writes of one file that wait for others.
#[derive(Default)]
pub(crate) struct Together {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Whether a thread is sending.
    is_led: bool,
    next: u64,
    bytes: usize,
    waiting: VecDeque<Waiting>,
    done: BTreeMap<u64, Result<()>>,
}

/// A write whose thread waits.
pub(crate) struct Waiting {
    id: u64,
    /// Whose it is.
    ctx: Context,
    offset: u64,
    data: Vec<u8>,
}

/// Whose a write is, where it goes, and its bytes.
pub(crate) type Write<'a> = (&'a Context, u64, &'a [u8]);

/// What became of a write that has queued.
pub(crate) enum Queued {
    /// Another thread has made it.
    Made(Result<()>),
    /// It is this thread's turn to send: it is not in the queue any more.
    Leads(Waiting),
}

/// A thread's turn to send.
pub(crate) struct Turn<'a> {
    together: &'a Together,
    taken: Vec<u64>,
    /// Results of those that were taken, in their order.
    pub(crate) results: Vec<Result<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.together.queue.lock();
        let mut results = self.results.drain(..);
        for id in self.taken.drain(..) {
            // The thread that had taken it has panicked.
            let lost = || Err(Error::new(ErrorKind::Io, "the write was given up: write it again"));
            queue.done.insert(id, results.next().unwrap_or_else(lost));
        }
        queue.is_led = false;
        drop(queue);
        self.together.changed.notify_all();
    }
}

impl Together {
    /// Whether a thread was sending. From now on one is.
    pub(crate) fn was_led(&self) -> bool {
        std::mem::replace(&mut self.queue.lock().is_led, true)
    }

    /// The turn of the thread that sends.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { together: self, taken: Vec::new(), results: Vec::new() }
    }

    /// Queues a write, and waits until another thread has made it or it is this thread's turn. `None`:
    /// `most_bytes` are queued already, and it has to be made by itself.
    pub(crate) fn wait_for(
        &self,
        ctx: Context,
        (offset, data): (u64, Vec<u8>),
        most_bytes: usize,
    ) -> Option<Queued> {
        let mut queue = self.queue.lock();
        if queue.bytes >= most_bytes {
            return None;
        }
        let id = queue.next;
        queue.next += 1;
        queue.bytes += data.len();
        queue.waiting.push_back(Waiting { id, ctx, offset, data });
        loop {
            if let Some(result) = queue.done.remove(&id) {
                return Some(Queued::Made(result));
            }
            let own = queue.waiting.iter().position(|write| write.id == id);
            if let Some(at) = own.filter(|_| !queue.is_led)
                && let Some(own) = queue.waiting.remove(at)
            {
                queue.is_led = true;
                queue.bytes -= own.data.len();
                return Some(Queued::Leads(own));
            }
            queue = self.changed.wait(queue);
        }
    }
}

impl Waiting {
    /// The write.
    pub(crate) fn write(&self) -> Write<'_> {
        (&self.ctx, self.offset, &self.data)
    }
}

impl Turn<'_> {
    /// Those that have queued first.
    pub(crate) fn take(&mut self) -> Vec<Waiting> {
        let mut queue = self.together.queue.lock();
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < MAX_TAKEN
            && bytes < MAX_TAKEN_BYTES
            && let Some(write) = queue.waiting.pop_front()
        {
            bytes += write.data.len();
            taken.push(write);
        }
        queue.bytes -= bytes;
        self.taken = taken.iter().map(|write| write.id).collect();
        taken
    }
}
