//! The data of a write: readable in place, or taken over without a copy.
//!
//! A worker reads requests into a buffer placed so that the data of a write is page-aligned.
//! [`WriteData::take`] swaps that buffer for another warm one of a bounded pool, so write-behind
//! keeps the data without copying it.
//!
//! Invariant: taken data never exceeds the pool's limit; further calls wait.

use std::ops::{Deref, Range};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::interrupts::interrupt::Interrupt;
use crate::protocol::abi::{MIN_READ_BUFFER, WRITE_HEADERS_BYTES};
use crate::protocol::errno::Errno;
use weir_host::pages::{PAGE_BYTES, Pages};

/// Shorter data is copied: it would leave most of a whole buffer empty.
const COPY_BELOW_BYTES: usize = 64 << 10;
/// Interval at which a waiting call checks for an interrupt.
const INTERRUPT_CHECK: Duration = Duration::from_millis(20);

/// Start of requests in their buffer, such that the data of writes begins on the next page.
pub(crate) const REQUEST_START: usize = PAGE_BYTES - WRITE_HEADERS_BYTES;

/// The size of a buffer for requests with up to `max_write` bytes of data.
pub(crate) fn request_buffer_bytes(max_write: usize) -> usize {
    PAGE_BYTES + max_write.max(MIN_READ_BUFFER).next_multiple_of(PAGE_BYTES)
}

/// Spare request buffers, and the count of taken ones.
#[derive(Debug)]
pub(crate) struct WritePool {
    state: Mutex<PoolState>,
    returned: Condvar,
    buffer_bytes: usize,
    limit_bytes: usize,
}

struct PoolState {
    spare: Vec<Pages>,
    taken_bytes: usize,
}

impl std::fmt::Debug for PoolState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} spare, {} bytes taken", self.spare.len(), self.taken_bytes)
    }
}

impl WritePool {
    /// A pool that lends at most `limit_bytes` (but always one buffer).
    pub(crate) fn new(buffer_bytes: usize, limit_bytes: usize) -> Self {
        Self {
            state: Mutex::new(PoolState { spare: Vec::new(), taken_bytes: 0 }),
            returned: Condvar::new(),
            buffer_bytes,
            limit_bytes: limit_bytes.max(buffer_bytes),
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves `bytes`, waiting until that many are free.
    fn book(&self, bytes: usize, interrupt: Option<&Interrupt>) -> Result<(), Errno> {
        let mut state = self.lock();
        while state.taken_bytes + bytes > self.limit_bytes {
            match interrupt {
                None => return Err(Errno(libc::EAGAIN)),
                Some(interrupt) if interrupt.interrupted() => return Err(Errno::EINTR),
                Some(_) => {}
            }
            state = self
                .returned
                .wait_timeout(state, INTERRUPT_CHECK)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.taken_bytes += bytes;
        Ok(())
    }

    /// A spare buffer or a new one, after its reservation.
    fn spare(&self) -> Result<Pages, Errno> {
        let spare = self.lock().spare.pop();
        match spare {
            Some(pages) => Ok(pages),
            None => Ok(Pages::new(self.buffer_bytes)?),
        }
    }

    /// Frees the unused buffers.
    pub(crate) fn free_spare(&self) {
        let spare = std::mem::take(&mut self.lock().spare);
        drop(spare);
    }

    fn give_back(&self, bytes: usize, pages: Option<Pages>) {
        let mut state = self.lock();
        state.taken_bytes -= bytes;
        state.spare.extend(pages);
        drop(state);
        self.returned.notify_all();
    }
}

/// The data of one WRITE request, in the buffer it arrived in.
#[derive(Debug)]
pub struct WriteData<'a> {
    pub(crate) request: &'a mut RequestBuffer,
    pub(crate) range: Range<usize>,
    pub(crate) pool: &'a Arc<WritePool>,
    pub(crate) interrupt: &'a Interrupt,
}

/// A worker's buffer for requests.
pub(crate) struct RequestBuffer(pub(crate) Pages);

impl std::fmt::Debug for RequestBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Deref for WriteData<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.request.0[self.range.clone()]
    }
}

impl WriteData<'_> {
    /// Takes the data over. Data of 64 KiB or more keeps its page-aligned buffer; less is copied.
    ///
    /// All data taken and not dropped yet is bounded by [`crate::Config::write_pool_bytes`], where
    /// a kept buffer counts in full (one write of the largest size). Beyond it this call waits
    /// until data is dropped: so never hold a lock that dropping needs.
    ///
    /// # Errors
    /// `EINTR` if the writer was interrupted while this call waited; `ENOMEM`.
    pub fn take(self) -> Result<OwnedWriteData, Errno> {
        let interrupt = Some(self.interrupt);
        self.take_with(interrupt).map_err(|(errno, _)| errno)
    }

    /// Like [`WriteData::take`], but returns the data instead of waiting.
    ///
    /// # Errors
    /// The data itself, if the pool is exhausted or memory is short.
    pub fn try_take(self) -> Result<OwnedWriteData, Self> {
        self.take_with(None).map_err(|(_, data)| data)
    }

    fn take_with(self, interrupt: Option<&Interrupt>) -> Result<OwnedWriteData, (Errno, Self)> {
        let pool = Arc::clone(self.pool);
        let copied = self.range.len() < COPY_BELOW_BYTES;
        let booked_bytes = if copied { self.range.len() } else { pool.buffer_bytes };
        if let Err(errno) = pool.book(booked_bytes, interrupt) {
            return Err((errno, self));
        }
        if copied {
            let storage = Storage::Copy(self.to_vec());
            return Ok(OwnedWriteData { storage, pool, booked_bytes });
        }
        match pool.spare() {
            Ok(spare) => {
                let pages = std::mem::replace(&mut self.request.0, spare);
                let storage = Storage::Pages(Some(pages), self.range);
                Ok(OwnedWriteData { storage, pool, booked_bytes })
            }
            Err(errno) => {
                pool.give_back(booked_bytes, None);
                Err((errno, self))
            }
        }
    }
}

/// Data of a write that the file system has taken over. Dropping it frees space for others; it may
/// be dropped on any thread.
#[derive(Debug)]
pub struct OwnedWriteData {
    storage: Storage,
    pool: Arc<WritePool>,
    booked_bytes: usize,
}

enum Storage {
    Copy(Vec<u8>),
    /// Always present until dropped.
    Pages(Option<Pages>, Range<usize>),
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Storage::Copy(bytes) => write!(f, "a copy of {} bytes", bytes.len()),
            Storage::Pages(_, range) => write!(f, "{} bytes in place", range.len()),
        }
    }
}

impl Deref for OwnedWriteData {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.storage {
            Storage::Copy(bytes) => bytes,
            Storage::Pages(Some(pages), range) => &pages[range.clone()],
            Storage::Pages(None, _) => &[],
        }
    }
}

impl AsRef<[u8]> for OwnedWriteData {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for OwnedWriteData {
    fn drop(&mut self) {
        let pages = match &mut self.storage {
            Storage::Copy(_) => None,
            Storage::Pages(pages, _) => pages.take(),
        };
        self.pool.give_back(self.booked_bytes, pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const MAX_WRITE: usize = 128 << 10;

    struct Worker {
        buffer: RequestBuffer,
        pool: Arc<WritePool>,
        interrupt: Interrupt,
    }

    impl Worker {
        fn new(buffers: usize) -> Self {
            let bytes = request_buffer_bytes(MAX_WRITE);
            Self {
                buffer: RequestBuffer(Pages::new(bytes).unwrap()),
                pool: Arc::new(WritePool::new(bytes, buffers * bytes)),
                interrupt: Interrupt::new().unwrap(),
            }
        }

        fn write(&mut self, byte: u8, length: usize) -> WriteData<'_> {
            let range = PAGE_BYTES..PAGE_BYTES + length;
            self.buffer.0[range.clone()].fill(byte);
            WriteData {
                request: &mut self.buffer,
                range,
                pool: &self.pool,
                interrupt: &self.interrupt,
            }
        }
    }

    #[test]
    fn taken_data_survives_the_next_request_without_a_copy() {
        let mut worker = Worker::new(4);
        let data = worker.write(1, MAX_WRITE);
        let address = data.as_ptr();
        let first = data.take().unwrap();
        assert_eq!((first.as_ptr(), address as usize % PAGE_BYTES), (address, 0));
        let second = worker.write(2, MAX_WRITE).take().unwrap();
        let small = worker.write(3, 10).take().unwrap();
        worker.write(4, MAX_WRITE);
        assert!(first.len() == MAX_WRITE && first.iter().all(|&byte| byte == 1));
        assert!(second.iter().all(|&byte| byte == 2));
        assert_eq!(&*small, &[3; 10]);
    }

    #[test]
    fn an_exhausted_pool_makes_takers_wait_until_data_is_dropped() {
        let mut worker = Worker::new(1);
        let held = worker.write(1, MAX_WRITE).take().unwrap();
        let back = worker.write(2, MAX_WRITE).try_take().unwrap_err();
        assert!(back.iter().all(|&byte| byte == 2));
        let dropped = Arc::new(AtomicBool::new(false));
        let dropper = std::thread::spawn({
            let dropped = Arc::clone(&dropped);
            move || {
                std::thread::sleep(Duration::from_millis(30));
                dropped.store(true, Ordering::SeqCst);
                drop(held);
            }
        });
        let next = worker.write(3, MAX_WRITE).take().unwrap();
        assert!(dropped.load(Ordering::SeqCst));
        dropper.join().unwrap();
        drop(next);
        assert_eq!(worker.pool.lock().taken_bytes, 0);
        assert!(worker.pool.lock().spare.len() <= 2);
    }

    #[test]
    fn an_interrupt_ends_the_wait() {
        let mut worker = Worker::new(1);
        let _held = worker.write(1, MAX_WRITE).take().unwrap();
        worker.interrupt.raise();
        assert_eq!(worker.write(2, MAX_WRITE).take().unwrap_err(), Errno::EINTR);
    }
}
