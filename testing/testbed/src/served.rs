//! A file system that a thread of this process serves.

use std::io::{Error, Result};
use std::path::Path;
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};
use weir_fuse::{Config, Filesystem, Handle, MountError, Session};

/// How long the kernel may take to let go of it once it is unmounted.
const PATIENCE: Duration = Duration::from_secs(5);

/// Dropped, it is unmounted.
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

    /// Returns when somebody has unmounted it.
    pub fn wait(mut self) -> Result<()> {
        let Some(serving) = self.serving.take() else { return Ok(()) };
        let served = serving.join().map_err(|_| Error::other("who serves it has panicked"))?;
        served.map_err(|e| Error::other(e.to_string()))
    }

    /// To unmount it from another thread.
    pub fn end(&self) -> impl Fn() + Send + use<> {
        let handle = self.handle.clone();
        move || {
            // It may have been unmounted already; users keep it until they have gone.
            let _ = handle.unmount(true);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let Some(serving) = self.serving.take() else { return };
        (self.end())();
        // Who still uses it keeps it: then its thread stays until this process ends, and those
        // get an error.
        let begin = Instant::now();
        while !serving.is_finished() && begin.elapsed() < PATIENCE {
            sleep(Duration::from_millis(5));
        }
    }
}
