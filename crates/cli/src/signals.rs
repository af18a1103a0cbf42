//! Turns SIGTERM and SIGINT into events of a thread, so that a daemon ends in order.

use crate::failure::{Done, Failure};
use libc::{SIG_BLOCK, SIG_UNBLOCK, SIGHUP, SIGINT, SIGTERM, c_int, sigset_t};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

/// The signals that end a daemon, blocked in the threads of this process.
pub struct Signals {
    set: sigset_t,
}

impl Signals {
    /// Blocks the signals in this thread and in those that it starts later. It must be called
    /// before other threads exist.
    pub fn hold() -> Done<Self> {
        let mut set = MaybeUninit::<sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the set, which belongs to this function; `sigaddset`
        // and `pthread_sigmask` then get a valid set, and a null pointer says that the old mask is
        // not wanted.
        let (set, failed) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [SIGTERM, SIGINT, SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let failed = libc::pthread_sigmask(SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            (set.assume_init(), failed)
        };
        match failed {
            0 => Ok(Self { set }),
            code => Err(Failure::new(format!("cannot block signals: error {code}"))),
        }
    }

    /// Unblocks the signals in a program to be started, which would otherwise inherit the blocking.
    pub fn let_go(&self, command: &mut Command) {
        let set = self.set;
        let release = move || {
            // SAFETY: the set is initialised; this is called between fork and exec, where
            // `pthread_sigmask` is permitted.
            match unsafe {
                libc::pthread_sigmask(SIG_UNBLOCK, &raw const set, std::ptr::null_mut())
            } {
                0 => Ok(()),
                code => Err(io::Error::from_raw_os_error(code)),
            }
        };
        // SAFETY: `release` allocates nothing, and takes no lock.
        unsafe { command.pre_exec(release) };
    }

    /// Starts a thread that calls `end` for each of the signals.
    pub fn on_signal(self, mut end: impl FnMut() + Send + 'static) -> Done {
        let wait = move || {
            loop {
                let mut signal: c_int = 0;
                // SAFETY: the set is initialised, and `signal` belongs to this thread.
                let failed = unsafe { libc::sigwait(&raw const self.set, &raw mut signal) };
                if failed != 0 {
                    return;
                }
                tracing::info!("signal {signal}: ending");
                end();
            }
        };
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(wait);
        thread.map(drop).map_err(|e| Failure::new(format!("cannot start a thread: {e}")))
    }
}
