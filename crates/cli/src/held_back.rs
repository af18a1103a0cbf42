//! Threads that no signal reaches.

use libc::{SIG_SETMASK, sigset_t};
use std::mem::MaybeUninit;

/// Runs `action` with all signals blocked. Threads that it starts never receive any.
pub fn all_held_back<T>(action: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<sigset_t>::uninit();
    let mut before = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: `sigfillset` initialises the set, and `pthread_sigmask` stores the old mask in the
    // other set; both belong to this function. With a valid set and a valid first argument the call
    // cannot fail.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let done = action();
    // SAFETY: the set with the old mask was initialised above.
    unsafe {
        libc::pthread_sigmask(SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    done
}
