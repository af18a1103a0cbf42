//! One pass of a client over its chunks. Producers read ahead of the counting thread.
//!
//! Chunk c belongs to client c mod n. Producers take the client's requests in order, and at most
//! two requests for each producer are read ahead. The counting thread gets whole chunks.

use crate::format::CHUNK_BYTES;
use sio::safe::File;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Maximum number of producers of a client.
pub const MAX_PRODUCERS: usize = 64;
/// Minimum length of a request.
pub const MIN_REQUEST_BYTES: usize = 4 << 10;
/// Number of requests that are read ahead for each producer.
const AHEAD: u64 = 2;

/// The part of a file that a client counts, and how it is read.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Size of the file, bytes.
    pub size: u64,
    /// Number of the client.
    pub rank: u64,
    /// Number of clients.
    pub clients: u64,
    /// Number of reading threads.
    pub producers: usize,
    /// Bytes of a request; a chunk is a multiple of it.
    pub request_bytes: usize,
}

impl Part {
    /// Number of requests for a chunk.
    fn per_chunk(&self) -> u64 {
        (CHUNK_BYTES / self.request_bytes) as u64
    }

    /// Number of chunks of this client.
    fn chunks(&self) -> u64 {
        let all = self.size.div_ceil(CHUNK_BYTES as u64);
        all.saturating_sub(self.rank).div_ceil(self.clients)
    }

    /// Offset and length of a request of this client. The length is 0 beyond the end of the file.
    fn request(&self, number: u64) -> (u64, usize) {
        let chunk = self.rank + number / self.per_chunk() * self.clients;
        let within = number % self.per_chunk() * self.request_bytes as u64;
        let offset = chunk * CHUNK_BYTES as u64 + within;
        let left = self.size.saturating_sub(offset);
        (offset, left.min(self.request_bytes as u64) as usize)
    }
}

#[derive(Default)]
struct State {
    /// The next request for a producer.
    next: u64,
    /// Number of requests that were counted.
    taken: u64,
    ready: BTreeMap<u64, Vec<u8>>,
    free: Vec<Vec<u8>>,
    failure: Option<String>,
    is_over: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, why: String) {
        let mut state = self.state();
        state.failure.get_or_insert(why);
        state.is_over = true;
        self.changed.notify_all();
    }

    /// The body of a producer.
    fn produce(&self, part: &Part, file: &File) {
        let total = part.chunks() * part.per_chunk();
        loop {
            let mut state = self.state();
            while !state.is_over
                && state.next < total
                && state.next >= state.taken + AHEAD * part.producers as u64
            {
                state = self.wait(state);
            }
            if state.is_over || state.next == total {
                return;
            }
            let number = state.next;
            state.next += 1;
            let mut buffer = state.free.pop().unwrap_or_default();
            drop(state);
            let (offset, len) = part.request(number);
            buffer.resize(len, 0);
            match file.read_at(offset, &mut buffer) {
                Ok(bytes) if bytes == len => {
                    self.state().ready.insert(number, buffer);
                    self.changed.notify_all();
                }
                Ok(_) => return self.fail(format!("the file ends before byte {}", part.size)),
                Err(error) => return self.fail(error.to_string()),
            }
        }
    }

    /// Appends the next request to a chunk.
    fn take(&self, chunk: &mut Vec<u8>) -> Result<(), String> {
        let mut state = self.state();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let number = state.taken;
            if let Some(buffer) = state.ready.remove(&number) {
                state.taken += 1;
                chunk.extend_from_slice(&buffer);
                state.free.push(buffer);
                self.changed.notify_all();
                return Ok(());
            }
            state = self.wait(state);
        }
    }
}

/// Ends the queue if a thread panics, so that no other one waits for it.
struct Over<'a>(&'a Queue);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail("internal error: a panic".into());
        }
    }
}

/// Passes each chunk of the part to `count`, with its number in the file; returns the bytes read.
///
/// # Errors
/// That of the first read, or of `count`.
pub fn scan(
    file: &File,
    part: &Part,
    mut count: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<u64, String> {
    let queue = Queue::default();
    thread::scope(|scope| {
        for _ in 0..part.producers {
            scope.spawn(|| {
                let _over = Over(&queue);
                queue.produce(part, file);
            });
        }
        let _over = Over(&queue);
        let (mut chunk, mut bytes) = (Vec::with_capacity(CHUNK_BYTES), 0);
        for number in 0..part.chunks() {
            chunk.clear();
            let counted = (0..part.per_chunk())
                .try_for_each(|_| queue.take(&mut chunk))
                .and_then(|()| count(part.rank + number * part.clients, &chunk));
            if let Err(failure) = counted {
                queue.fail(failure.clone());
                return Err(failure);
            }
            bytes += chunk.len() as u64;
        }
        Ok(bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_read_every_byte_once_in_whole_chunks_in_turn() {
        let chunk = CHUNK_BYTES as u64;
        for (size, clients, request_bytes) in [
            (0, 1, 512 << 10),
            (1, 3, 4 << 10),
            (5 * chunk + 600_000, 3, 512 << 10),
            (2 * chunk, 2, 2 << 20),
        ] {
            let mut read = Vec::new();
            for rank in 0..clients {
                let part = Part { size, rank, clients, producers: 4, request_bytes };
                for number in 0..part.chunks() * part.per_chunk() {
                    let (offset, len) = part.request(number);
                    if len > 0 {
                        assert_eq!(offset / chunk % clients, rank, "in turn");
                        read.push((offset, len as u64));
                    }
                }
            }
            read.sort_unstable();
            let mut end = 0;
            for (offset, len) in read {
                assert_eq!(offset, end);
                end += len;
            }
            assert_eq!(end, size);
        }
    }
}
