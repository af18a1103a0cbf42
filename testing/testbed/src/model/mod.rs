//! Disks with a head: seeks, and read-ahead that is lost when somebody else reads.
//!
//! ```text
//! ext4 ── loop device ── file (FUSE, answers in time) ── image
//!                          └ core: when a request is done
//! ```

mod core;
mod file;

pub use core::{Drive, Zones};

use crate::served::Served;
use file::{NAME, OneFile};
use std::fs::File;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use weir_fuse::Config;

/// Maximum number of requests in the drive's queue; further ones wait in the kernel's queue.
const QUEUE: u16 = 32;

/// A file that is as slow as a disk, served by threads of this process. Dropping it unmounts it.
#[derive(Debug)]
pub struct Model {
    served: Served,
}

impl Model {
    /// Mounts the bytes of an image at an empty directory, as the file [`Model::file`].
    ///
    /// # Errors
    /// The image cannot be opened; FUSE is missing.
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
        Ok(Self { served: Served::mount(OneFile::new(open, drive)?, at, &config)? })
    }

    /// Path of the file of a model that is mounted there.
    pub fn file(at: &Path) -> PathBuf {
        at.join(NAME)
    }

    /// Waits until it is unmounted by somebody else.
    ///
    /// # Errors
    /// It can no longer be served.
    pub fn wait(self) -> Result<()> {
        self.served.wait()
    }

    /// A function that unmounts it from another thread.
    pub fn end(&self) -> impl Fn() + Send + use<> {
        self.served.end()
    }
}
