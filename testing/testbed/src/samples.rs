//! Periodic samples of the kernel's counters of several disks.

use crate::Disk;
use crate::device::{Counts, Device};
use std::io::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// All counters at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Time since the sampler was started.
    pub at: Duration,
    /// The counters, in the order of the disks.
    pub disks: Vec<Counts>,
}

/// A thread that takes samples until it is stopped.
#[derive(Debug)]
pub struct Sampler {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Sample>>>,
}

impl Sampler {
    /// Starts sampling these disks at an interval.
    pub fn start(disks: &[Disk], every: Duration) -> Self {
        let devices: Vec<Device> = disks.iter().map(|disk| disk.device().clone()).collect();
        let stopped = Arc::new(AtomicBool::new(false));
        let (begin, until) = (Instant::now(), stopped.clone());
        let look = move || {
            let mut samples = Vec::new();
            loop {
                let is_last = until.load(Relaxed);
                let disks = devices.iter().map(Device::counts).collect::<Result<_>>()?;
                samples.push(Sample { at: begin.elapsed(), disks });
                if is_last {
                    return Ok(samples);
                }
                sleep(every);
            }
        };
        Self { stopped, thread: spawn(look) }
    }

    /// Takes a last sample and returns all, in order.
    ///
    /// # Errors
    /// A disk is gone.
    pub fn stop(self) -> Result<Vec<Sample>> {
        self.stopped.store(true, Relaxed);
        self.thread.join().map_err(|_| Error::other("the sampler has failed"))?
    }
}
