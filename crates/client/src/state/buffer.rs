//! Memory for temporary data: warm pooled buffers while the pool has any, else plain allocations,
//! which are freed soon.

use std::ops::{Deref, DerefMut};
use weir_net::{BufferPool, PooledBuf};

/// A piece of memory with undefined initial contents.
pub enum Buffer {
    /// Memory from the pool.
    Pooled(PooledBuf),
    /// Allocated memory, because the pool was empty.
    Plain(Vec<u8>),
}

impl Buffer {
    /// Takes at least `len` bytes.
    pub(crate) fn take(pool: &BufferPool, len: usize) -> Self {
        match pool.take(len) {
            Some(buffer) => Buffer::Pooled(buffer),
            None => Buffer::Plain(vec![0; len]),
        }
    }

    /// Whether the memory is from the pool.
    pub(crate) fn is_pooled(&self) -> bool {
        matches!(self, Buffer::Pooled(_))
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Buffer::Pooled(buffer) => buffer,
            Buffer::Plain(bytes) => bytes,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Pooled(buffer) => buffer,
            Buffer::Plain(bytes) => bytes,
        }
    }
}
