//! Keeps a thread that makes or updates copies to its speed.

use super::pace::{Pace, Steps};
use crate::counters::add;
use crate::state::Shared;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weir_host::clock;
use weir_host::net::Signal;
use weir_types::{ErrorKind, Result};

/// The speed of one thread.
pub(super) struct Pacer {
    shared: Arc<Shared>,
    shutdown: Signal,
    /// Number of threads that share the limits, this one included.
    threads: u32,
    steps: Cell<Steps>,
}

impl Pacer {
    pub(super) fn new(shared: Arc<Shared>, shutdown: Signal, threads: u32) -> Self {
        let steps = Cell::new(Steps::new(shared.counters.asked(), clock::now()));
        Self { shared, shutdown, threads, steps }
    }

    /// Pauses as configured. To be called with the bytes of each step before it.
    ///
    /// # Errors
    /// `Interrupted` when the server stops.
    pub(super) fn pace(&self, bytes: u64) -> Result<()> {
        let counters = &self.shared.counters;
        add(&counters.resynced_bytes, bytes);
        let mut steps = self.steps.get();
        let step = steps.end(bytes, counters.asked(), counters.is_asked(), clock::now());
        let pace = Pace {
            bytes_per_s: self.shared.resync_bytes_per_s,
            busy_percent: self.shared.busy_percent.load(Relaxed),
            threads: self.threads,
        };
        let pause = pace.pause(step);
        if !pause.is_zero() {
            add(&counters.resync_paused_ms, pause.as_millis() as u64);
            self.pause(pause)?;
        }
        steps.begin(clock::now());
        self.steps.set(steps);
        Ok(())
    }

    fn pause(&self, time: Duration) -> Result<()> {
        match self.shutdown.wait(Some(time)) {
            Ok(false) => Ok(()),
            Ok(true) => Err(ErrorKind::Interrupted.into()),
            Err(e) => Err(std::io::Error::from(e).into()),
        }
    }
}
