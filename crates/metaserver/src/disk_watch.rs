//! Notices that the disk of the metadata hangs: a leader with such a disk gives the lead up.
//!
//! A small file is written and synced again and again. A disk that hangs, or fails, leaves its last
//! time in the past.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weir_host::fs::{Directory, OpenHow};
use weir_host::net::Signal;
use weir_host::{clock, thread};
use weir_types::{Error, ErrorKind, Result};

/// Interval at which the file is written.
const EVERY: Duration = Duration::from_secs(2);
/// After this time without a success the disk hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// The name of the file.
const NAME: &str = "alive";

/// Watches the disk until it is dropped.
pub(crate) struct DiskWatch {
    /// Milliseconds on the clock of [`clock::since_boot`] at the last success.
    last_ms: Arc<AtomicU64>,
    stop: Signal,
}

impl DiskWatch {
    /// Begins to watch the disk that a directory is on.
    ///
    /// Errors: there is no thread or eventfd.
    pub fn start(dir: PathBuf) -> Result<Self> {
        let stop = Signal::new().map_err(crate::run::broken)?;
        let last_ms = Arc::new(AtomicU64::new(now_ms()));
        let (stopped, noted) = (stop.clone(), Arc::clone(&last_ms));
        // Nobody waits for its end, which may not come: it owns what it uses.
        let watch = move || {
            while matches!(stopped.wait(Some(EVERY)), Ok(false)) {
                let write = || {
                    let file = Directory::open(&dir)?.open_file(NAME, OpenHow::REPLACE)?;
                    file.write_full(&now_ms().to_le_bytes(), 0)?;
                    file.sync("meta-alive")
                };
                match write() {
                    Ok(()) => noted.store(now_ms(), Relaxed),
                    Err(error) => {
                        let error = Error::from(std::io::Error::from(error));
                        // It answers: a full disk is no failure.
                        if error.kind == ErrorKind::NoSpace {
                            noted.store(now_ms(), Relaxed);
                        } else {
                            tracing::warn!("the disk of the metadata fails: {error}");
                        }
                    }
                }
            }
        };
        drop(thread::spawn("meta-disk", watch).map_err(crate::run::broken)?);
        Ok(Self { last_ms, stop })
    }

    /// For how long the disk has not answered, if that is too long.
    pub fn hangs(&self) -> Option<Duration> {
        let silent = Duration::from_millis(now_ms().saturating_sub(self.last_ms.load(Relaxed)));
        (silent > PATIENCE).then_some(silent)
    }
}

impl Drop for DiskWatch {
    fn drop(&mut self) {
        self.stop.raise();
    }
}

fn now_ms() -> u64 {
    u64::try_from(clock::since_boot().as_millis()).unwrap_or(u64::MAX)
}
