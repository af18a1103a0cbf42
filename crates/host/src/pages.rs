//! Page-aligned memory directly from the kernel. Freed memory returns to the kernel at once and
//! does not fragment the allocator's heap.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Alignment of buffers, bytes.
pub const PAGE_BYTES: usize = 4096;

/// A private anonymous mapping: readable and writable, page-aligned.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and is plain memory.
unsafe impl Send for Pages {}
// SAFETY: shared access only reads.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps at least `length` zero bytes, rounded up to whole pages. The kernel allocates a page
    /// when it is first touched. Fails if the kernel refuses.
    pub fn new(length: usize) -> Result<Self, rustix::io::Errno> {
        let length = length.max(1).next_multiple_of(PAGE_BYTES);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice
        // overlaps nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self { start, length })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`, and no borrow of it is left. Unmapping one's
        // own mapping cannot fail.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `length` mapped, initialised bytes that live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are mapped and initialised for the life of `self`, and `&mut self`
        // excludes every other access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_zeroed_and_writable() {
        let mut pages = Pages::new(5000).unwrap();
        assert_eq!(pages.len(), 8192);
        assert_eq!(pages.as_ptr() as usize % PAGE_BYTES, 0);
        assert!(pages.iter().all(|&byte| byte == 0));
        pages[8191] = 7;
        assert_eq!(pages[8191], 7);
    }
}
