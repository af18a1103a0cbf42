//! A loop device: what the kernel says of it.

use crate::run;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// The kernel counts in these, whatever the device has.
const SECTOR_BYTES: u64 = 512;
const DEVICES: &str = "/sys/block";

/// One that is there; nobody's to take away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `loop3`.
    name: String,
}

/// What went through a disk, as the kernel counts it: from before it was made, as it counts on when
/// a device is used anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Device {
    /// Makes one of a file; `direct`: past the page cache.
    pub(crate) fn attach(file: &str, direct: bool) -> Result<Self> {
        let how = if direct { "--direct-io=on" } else { "--direct-io=off" };
        let device = run("losetup", &["--find", "--show", how, file])?;
        Ok(Self { name: device.trim_start_matches("/dev/").to_owned() })
    }

    /// Those of a file.
    ///
    /// # Errors
    /// What there is cannot be listed.
    pub fn of(file: &Path) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(DEVICES)? {
            let entry = entry?;
            // Most have none: they are no loop devices, or of no file.
            let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
            if backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == file) {
                found.push(Self { name: entry.file_name().to_string_lossy().into_owned() });
            }
        }
        Ok(found)
    }

    /// Takes it away, at once or when its last user has gone.
    pub(crate) fn detach(&self) -> Result<()> {
        run("losetup", &["--detach", &self.node()]).map(drop)
    }

    /// `/dev/loop3`.
    pub fn node(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// From now on the kernel reads so much ahead of who reads a file from end to end. Loop
    /// devices may have far more than disks have by default (128 KiB).
    ///
    /// # Errors
    /// It cannot be set.
    pub fn read_ahead(&self, kib: u64) -> Result<()> {
        fs::write(self.kernels("queue/read_ahead_kb"), kib.to_string())
    }

    /// Its number, as `7:3`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn number(&self) -> Result<String> {
        Ok(fs::read_to_string(self.kernels("dev"))?.trim().to_owned())
    }

    /// What the kernel has counted of it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn counts(&self) -> Result<Counts> {
        let stat = self.kernels("stat");
        let text = fs::read_to_string(&stat)?;
        let unknown = || Error::other(format!("{}: not understood: {text}", stat.display()));
        // The third word is sectors read, the seventh sectors written.
        let bytes = |n: usize| {
            let word = text.split_whitespace().nth(n).and_then(|word| word.parse::<u64>().ok());
            word.map(|sectors| sectors * SECTOR_BYTES).ok_or_else(unknown)
        };
        Ok(Counts { read_bytes: bytes(2)?, written_bytes: bytes(6)? })
    }

    /// What the kernel says of it.
    fn kernels(&self, what: &str) -> PathBuf {
        Path::new(DEVICES).join(&self.name).join(what)
    }
}
