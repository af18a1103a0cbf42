//! Returns unused memory of this process to the operating system.

/// Returns freed memory to the operating system. The allocator otherwise keeps free pieces between
/// pieces in use. The call is slow: use it when a burst of work is over.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes no pointer, and may be called from any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
