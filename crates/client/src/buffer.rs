//! Memory for bytes in passing: warm pooled buffers while there are any, plain
//! allocations beyond, which are given back soon.

use std::ops::{Deref, DerefMut};
use weir_net::{BufferPool, PooledBuf};

/// Some bytes of memory; their first contents mean nothing.
pub enum Buffer {
    /// From the pool.
    Pooled(PooledBuf),
    /// The pool was empty.
    Plain(Vec<u8>),
}

impl Buffer {
    /// At least `len` bytes.
    pub(crate) fn take(pool: &BufferPool, len: usize) -> Self {
        match pool.take(len) {
            Some(buffer) => Buffer::Pooled(buffer),
            None => Buffer::Plain(vec![0; len]),
        }
    }

    /// Whether the pool still had one.
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
