//! Ctrl-C and other signals: every wait checks for them.

use crate::failure::{Done, Failure};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    STOPPED.store(true, Ordering::Relaxed);
}

/// Makes SIGINT, SIGTERM and SIGHUP end the benchmark in good order.
pub fn catch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe, and exists as
        // long as the program.
        unsafe { libc::signal(signal, note as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

/// Fails after a signal.
pub fn check() -> Done {
    if STOPPED.load(Ordering::Relaxed) { Err(Failure::Stopped) } else { Ok(()) }
}

/// Waits until `ready` returns true.
pub fn wait_until(what: &str, patience: Duration, mut ready: impl FnMut() -> bool) -> Done {
    let begin = Instant::now();
    while !ready() {
        check()?;
        if begin.elapsed() > patience {
            return Err(Failure::other(format!("{what}: not within {} s", patience.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
