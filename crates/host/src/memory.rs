//! Memory of this process that it does not use.

/// Gives memory that was freed back to the operating system. The allocator keeps what lies
/// between pieces in use; it takes a while, and is for who has been busy and is not any more.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and may be called from any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
