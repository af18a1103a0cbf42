//! Confirmed writes of several threads. While one of them waits for the servers, others queue. Whoever
//! comes next sends all that have queued, and waits for them together: they cost one round trip.
//!
//! Invariant: a write that was taken from the queue gets its result, whatever happens to who took it.

use super::{DIRECT_BYTES, Returns, Writer, patient};
use crate::context::Context;
use crate::drive::Call;
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
struct Waiting {
    id: u64,
    /// Whose it is.
    ctx: Context,
    offset: u64,
    data: Vec<u8>,
}

/// Whose a write is, where it goes, and its bytes.
type Write<'a> = (&'a Context, u64, &'a [u8]);

/// What became of a write that has queued.
enum Place {
    /// Another thread has made it.
    Made(Result<()>),
    /// It is this thread's turn to send: it is not in the queue any more.
    Leads(Waiting),
}

/// A thread's turn to send.
struct Turn<'a> {
    together: &'a Together,
    taken: Vec<u64>,
    results: Vec<Result<()>>,
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
    /// Queues a write, and waits until another thread has made it or it is this thread's turn. `None`:
    /// so much is queued that it has to be made by itself.
    fn wait_for(&self, call: Call<'_>, offset: u64, data: &[u8]) -> Option<Place> {
        // Nobody waits for the copy.
        let (ctx, data) = (patient(call.ctx), data.to_vec());
        let mut queue = self.queue.lock();
        if queue.bytes >= call.inner.config.write_behind_bytes {
            return None;
        }
        let id = queue.next;
        queue.next += 1;
        queue.bytes += data.len();
        queue.waiting.push_back(Waiting { id, ctx, offset, data });
        loop {
            if let Some(result) = queue.done.remove(&id) {
                return Some(Place::Made(result));
            }
            let own = queue.waiting.iter().position(|write| write.id == id);
            if let Some(at) = own.filter(|_| !queue.is_led)
                && let Some(own) = queue.waiting.remove(at)
            {
                queue.is_led = true;
                queue.bytes -= own.data.len();
                return Some(Place::Leads(own));
            }
            queue = self.changed.wait(queue);
        }
    }
}

impl Writer {
    /// Whether a write may wait for others, and be made by their threads.
    pub(super) fn may_wait(call: Call<'_>, len: usize, returns: Returns) -> bool {
        let gathers = call.inner.config.write_behind_bytes > 0 && !call.file.is_graduated();
        gathers && returns == Returns::Confirmed && len < DIRECT_BYTES
    }

    /// Writes a copy of `data` with what other threads write meanwhile.
    pub(super) fn write_together(call: Call<'_>, offset: u64, data: &[u8]) -> Result<()> {
        let together = &call.file.together;
        let is_led = std::mem::replace(&mut together.queue.lock().is_led, true);
        if !is_led {
            return Self::lead(call, (&patient(call.ctx), offset, data));
        }
        match together.wait_for(call, offset, data) {
            None => Self::write_by_itself(call, (offset, data), Returns::Confirmed),
            Some(Place::Made(result)) => result,
            Some(Place::Leads(own)) => Self::lead(call, own.write()),
        }
    }

    /// Makes this thread's write, and those that have queued.
    fn lead(call: Call<'_>, own: Write<'_>) -> Result<()> {
        let together = &call.file.together;
        let mut turn = Turn { together, taken: Vec::new(), results: Vec::new() };
        let taken = turn.take();
        let all = std::iter::once(own).chain(taken.iter().map(Waiting::write));
        let mut results = Self::write_all(call, all);
        let own = results.remove(0);
        turn.results = results;
        own
    }

    /// Makes several writes, each in the name of its own caller. Returns the result of each.
    fn write_all<'a>(call: Call<'_>, writes: impl Iterator<Item = Write<'a>>) -> Vec<Result<()>> {
        let ctx = patient(call.ctx);
        let call = Call { ctx: &ctx, ..call };
        let mut writer = call.file.writer();
        writer.begin_turn();
        // Each in requests of its own, so that it fails only by itself; and so does what was there.
        writer.send_gathered(call);
        let mut made: Vec<(u64, Result<()>)> = Vec::new();
        for (ctx, offset, data) in writes {
            let call = Call { ctx, ..call };
            let taken = writer.prepare(call, offset, data.len());
            let taken = taken.and_then(|()| writer.take(call, offset, data));
            writer.send_gathered(call);
            made.push((writer.calls, taken));
        }
        let (committed, in_place) = writer.confirm(call);
        for (number, result) in made.iter_mut().filter(|(_, result)| result.is_ok()) {
            *result = writer.failures.of_call(*number).and_then(|()| committed.clone());
        }
        // That of an earlier write, which has returned.
        if let Some((_, result)) = made.iter_mut().find(|(_, result)| result.is_ok())
            && let Err(earlier) = writer.failures.tell_next()
        {
            *result = Err(earlier);
        }
        if in_place && made.iter().all(|(_, result)| result.is_ok()) {
            writer.only_time_is_left(call);
        }
        made.into_iter().map(|(_, result)| result).collect()
    }
}

impl Waiting {
    fn write(&self) -> Write<'_> {
        (&self.ctx, self.offset, &self.data)
    }
}

impl Turn<'_> {
    /// Those that have queued first.
    fn take(&mut self) -> Vec<Waiting> {
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
