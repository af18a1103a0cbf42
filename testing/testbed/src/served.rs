//! File systems served by a thread of this process.

use std::io::{Error, Result};
use std::path::Path;
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};
use weir_fuse::{Config, Filesystem, Handle, MountError, Session};

/// Maximum time until the kernel releases an unmounted file system.
const PATIENCE: Duration = Duration::from_secs(5);

/// A served file system. Dropping it unmounts it.
#[derive(Debug)]
pub struct Served {
    handle: Handle,
    serving: Option<JoinHandle<std::result::Result<(), MountError>>>,
}

impl Served {
    /// Mounts a file system at an empty directory.
    pub fn mount(files: impl Filesystem, at: &Path, config: &Config) -> Result<Self> {
        let failed = |e: MountError| Error::other(format!("{}: {e}", at.display()));
        let session = Session::mount(files, at, config).map_err(failed)?;
        let handle = session.handle();
        let serving = Builder::new().name("served".into()).spawn(move || session.run())?;
        Ok(Self { handle, serving: Some(serving) })
    }

    /// Waits until it is unmounted by somebody else.
    pub fn wait(mut self) -> Result<()> {
        let Some(serving) = self.serving.take() else { return Ok(()) };
        let served = serving.join().map_err(|_| Error::other("who serves it has panicked"))?;
        served.map_err(|e| Error::other(e.to_string()))
    }

    /// A function that unmounts it from another thread.
    pub fn end(&self) -> impl Fn() + Send + use<> {
        let handle = self.handle.clone();
        move || {
            // It may have been unmounted already. Users keep it alive until they are gone.
            let _ = handle.unmount(true);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let Some(serving) = self.serving.take() else { return };
        (self.end())();
        // While users keep it alive, its thread stays until this process ends, and they get errors.
        let begin = Instant::now();
        while !serving.is_finished() && begin.elapsed() < PATIENCE {
            sleep(Duration::from_millis(5));
        }
    }
}
