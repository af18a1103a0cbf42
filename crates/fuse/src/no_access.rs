//! Addresses whose memory cannot be read.

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::sync::OnceLock;

/// The longest range, bytes.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// This many unreadable bytes, 1 to [`MAX_BYTES`]. They take addresses of this process, once, and
/// no memory.
pub(crate) fn unreadable(bytes: usize) -> Result<libc::iovec, Errno> {
    static START: OnceLock<usize> = OnceLock::new();
    if !(1..=MAX_BYTES).contains(&bytes) {
        return Err(Errno::INVAL);
    }
    let start = match START.get() {
        Some(start) => *start,
        None => {
            // SAFETY: a new anonymous mapping at an address of the kernel's choice
            // overlaps nothing.
            let made = unsafe {
                let (protection, flags) = (ProtFlags::empty(), MapFlags::PRIVATE);
                mmap_anonymous(std::ptr::null_mut(), MAX_BYTES, protection, flags)
            }?;
            // Whoever comes second leaves its own unused.
            *START.get_or_init(|| made.expose_provenance())
        }
    };
    Ok(libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(start), iov_len: bytes })
}
