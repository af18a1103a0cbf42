//! Ctrl-C and friends: everything that takes long looks here.

use std::io::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};

static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    STOPPED.store(true, Ordering::Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP end the experiment in good order.
pub fn catch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe, and lives
        // as long as the program.
        unsafe { libc::signal(signal, note as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

/// Fails once a signal has come.
pub fn check() -> Result<()> {
    let stopped = STOPPED.load(Ordering::Relaxed);
    if stopped { Err(Error::other("stopped by a signal; all is cleaned up")) } else { Ok(()) }
}
