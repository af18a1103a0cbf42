//! Disks with a head: seeks, and reads ahead that are lost when somebody else reads.
//!
//! ```text
//! ext4 ── loop device ── file (FUSE, answers in time) ── image
//!                          └ core: when a request is done
//! ```

mod core;
mod file;

pub use core::Drive;

use file::{NAME, OneFile};
use std::fs::File;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};
use weir_mount::fuse::{Config, Handle, MountError, Session};

/// How long the kernel may take to let go of the file once it is unmounted.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many requests wait in the drive's queue at most; the others wait in that of the kernel.
const QUEUE: u16 = 32;

/// A file that is as slow as a disk, served by threads of this process. Dropped, it is
/// unmounted.
#[derive(Debug)]
pub struct Model {
    handle: Handle,
    serving: Option<JoinHandle<std::result::Result<(), MountError>>>,
}

impl Model {
    /// Mounts the bytes of an image at an empty directory, where they are a file: see
    /// [`Model::file`].
    ///
    /// # Errors
    /// The image cannot be opened; no FUSE.
    pub fn mount(image: &Path, at: &Path, drive: Drive) -> Result<Self> {
        let named = |e: Error| Error::new(e.kind(), format!("{}: {e}", image.display()));
        let open = File::options().read(true).write(true).open(image).map_err(named)?;
        let config = Config {
            source: "weir-testbed".into(),
            subtype: "weir-testbed".into(),
            default_permissions: true,
            max_background: QUEUE,
            readdirplus: false,
            ..Config::default()
        };
        let failed = |e: MountError| Error::other(format!("{}: {e}", at.display()));
        let session = Session::mount(OneFile::new(open, drive)?, at, &config).map_err(failed)?;
        let handle = session.handle();
        let serving = Builder::new().name("disk".into()).spawn(move || session.run())?;
        Ok(Self { handle, serving: Some(serving) })
    }

    /// Where the file is of a model that is mounted there.
    pub fn file(at: &Path) -> PathBuf {
        at.join(NAME)
    }

    /// Returns when somebody has unmounted it.
    ///
    /// # Errors
    /// It can no longer be served.
    pub fn wait(mut self) -> Result<()> {
        let Some(serving) = self.serving.take() else { return Ok(()) };
        let served = serving.join().map_err(|_| Error::other("a disk's thread has panicked"))?;
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

impl Drop for Model {
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
