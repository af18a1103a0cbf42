//! Buffers for bulk data: page-aligned, in a few sizes, and reused while their pages are in the CPU
//! caches. On a virtual machine the first touch of a fresh page costs up to ten times a copy into a
//! warm one. So memory that is used now and then is not freed ([`BufferPool::trim`]), and buffers
//! are never cleared.
//!
//! Invariant: all buffers of a pool together have at most `limit_bytes`.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use weir_host::pages::Pages;
use weir_host::sync::Mutex;
use weir_types::limits::MAX_PAYLOAD_BYTES;

/// Sizes of buffers, bytes, ascending.
const CLASSES: [usize; 6] = [64 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];

const _: () = assert!(CLASSES[CLASSES.len() - 1] >= MAX_PAYLOAD_BYTES);

/// A bounded set of reusable buffers. Clones share it.
#[derive(Clone, Debug)]
pub struct BufferPool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limit_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of all buffers, in use or not.
    allocated_bytes: usize,
    /// Free buffers of each size, the last used one at the end.
    free: [Vec<Memory>; CLASSES.len()],
    /// For each size, the lowest number of free buffers since the last trim.
    spare: [usize; CLASSES.len()],
}

/// The memory of one buffer.
#[derive(Debug)]
struct Memory {
    pages: Pages,
    class: usize,
}

impl Memory {
    fn new(class: usize) -> Option<Self> {
        Some(Self { pages: Pages::new(CLASSES[class]).ok()?, class })
    }
}

impl BufferPool {
    /// Makes an empty pool whose buffers have at most `limit_bytes` in all. One buffer of the
    /// largest size is always possible.
    pub fn new(limit_bytes: usize) -> Self {
        let limit_bytes = limit_bytes.max(CLASSES[CLASSES.len() - 1]);
        Self { inner: Arc::new(Inner { limit_bytes, state: Mutex::default() }) }
    }

    /// Takes a buffer of length `len`. Returns `None` while all buffers are in use, and always if
    /// `len` is over 4 MiB. Its bytes are those of its last use.
    pub fn take(&self, len: usize) -> Option<PooledBuf> {
        let class = CLASSES.iter().position(|size| *size >= len)?;
        let memory = self.inner.state.lock().take(class, self.inner.limit_bytes)?;
        Some(PooledBuf { memory: Some(memory), len, pool: self.inner.clone() })
    }

    /// Frees the buffers that were never in use since the last call, and returns their bytes.
    pub fn trim(&self) -> usize {
        let unused: Vec<Memory> = {
            let mut state = self.inner.state.lock();
            let State { allocated_bytes, free, spare } = &mut *state;
            let mut unused = Vec::new();
            for ((free, spare), size) in free.iter_mut().zip(spare).zip(CLASSES) {
                // The free buffers used least recently.
                unused.extend(free.drain(..*spare));
                *allocated_bytes -= *spare * size;
                *spare = free.len();
            }
            unused
        };
        unused.iter().map(|memory| CLASSES[memory.class]).sum()
    }

    /// Bytes of all buffers, in use or not.
    pub fn allocated_bytes(&self) -> usize {
        self.inner.state.lock().allocated_bytes
    }

    /// Bytes of buffers that are in use.
    pub fn used_bytes(&self) -> usize {
        let state = self.inner.state.lock();
        let free: usize = state.free.iter().zip(CLASSES).map(|(f, size)| f.len() * size).sum();
        state.allocated_bytes - free
    }
}

impl State {
    fn take(&mut self, class: usize, limit_bytes: usize) -> Option<Memory> {
        let taken = self.take_any(class, limit_bytes);
        for (spare, free) in self.spare.iter_mut().zip(&self.free) {
            *spare = free.len().min(*spare);
        }
        taken
    }

    fn take_any(&mut self, class: usize, limit_bytes: usize) -> Option<Memory> {
        if let Some(memory) = self.free[class].pop() {
            return Some(memory);
        }
        if self.allocated_bytes + CLASSES[class] > limit_bytes {
            // A larger buffer serves as well. If there is none, idle ones of other sizes are freed.
            if let Some(memory) = self.free[class..].iter_mut().find_map(Vec::pop) {
                return Some(memory);
            }
            self.release_idle(CLASSES[class], limit_bytes);
        }
        if self.allocated_bytes + CLASSES[class] > limit_bytes {
            return None;
        }
        let memory = Memory::new(class)?;
        self.allocated_bytes += CLASSES[class];
        Some(memory)
    }

    fn release_idle(&mut self, wanted_bytes: usize, limit_bytes: usize) {
        for class in (0..CLASSES.len()).rev() {
            while self.allocated_bytes + wanted_bytes > limit_bytes {
                if self.free[class].pop().is_none() {
                    break;
                }
                self.allocated_bytes -= CLASSES[class];
            }
        }
    }
}

/// A buffer of a pool. It returns to the pool when dropped.
#[derive(Debug)]
pub struct PooledBuf {
    memory: Option<Memory>,
    len: usize,
    pool: Arc<Inner>,
}

impl PooledBuf {
    /// The most bytes that the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.memory.as_ref().map_or(0, |m| CLASSES[m.class])
    }

    /// Sets the length, at most the capacity.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity());
    }
}

impl Deref for PooledBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.memory {
            Some(memory) => &memory.pages[..self.len],
            None => &[],
        }
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Some(memory) => &mut memory.pages[..self.len],
            None => &mut [],
        }
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.state.lock().free[memory.class].push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warmest_buffer_is_reused_first_and_not_cleared() {
        let pool = BufferPool::new(64 << 20);
        let (cold, mut warm) = (pool.take(100_000).unwrap(), pool.take(100_000).unwrap());
        warm[99_999] = 7;
        let address = warm.as_ptr();
        assert_eq!(address as usize % 4096, 0);
        drop(cold);
        drop(warm);
        let again = pool.take(100_000).unwrap();
        assert_eq!((again.as_ptr(), again[99_999], again.len()), (address, 7, 100_000));
        assert_eq!(pool.allocated_bytes(), 512 << 10);
        assert_eq!(pool.used_bytes(), 256 << 10);
    }

    #[test]
    fn what_was_not_in_use_since_the_last_trim_is_freed() {
        let pool = BufferPool::new(64 << 20);
        let three: Vec<_> = (0..3).filter_map(|_| pool.take(1 << 20)).collect();
        drop(three);
        assert_eq!(pool.trim(), 0, "they were in use");
        let (warm, large) = (pool.take(1 << 20), pool.take(4 << 20));
        drop((warm, large));
        assert_eq!(pool.trim(), 2 << 20, "two were not");
        assert_eq!(pool.allocated_bytes(), 5 << 20);
        let kept = pool.take(1 << 20);
        assert_eq!(pool.trim(), 4 << 20);
        drop(kept);
        assert_eq!((pool.trim(), pool.trim(), pool.allocated_bytes()), (0, 1 << 20, 0));
    }

    #[test]
    fn the_limit_holds_whatever_the_sizes() {
        let pool = BufferPool::new(8 << 20);
        let large = [pool.take(4 << 20).unwrap(), pool.take(4 << 20).unwrap()];
        assert!(pool.take(1).is_none());
        assert!(pool.take((4 << 20) + 1).is_none());
        drop(large);
        // First a larger buffer serves, then idle ones make room for many small ones.
        let small: Vec<_> = std::iter::from_fn(|| pool.take(1000)).collect();
        assert!(pool.allocated_bytes() <= 8 << 20);
        drop(small);
        assert_eq!(pool.used_bytes(), 0);
        let large = [pool.take(3 << 20), pool.take(3 << 20)];
        assert!(large.iter().all(Option::is_some));
        assert!(pool.allocated_bytes() <= 8 << 20);
    }
}
