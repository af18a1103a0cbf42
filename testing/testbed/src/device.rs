//! Loop devices, and the kernel's data on them.

use crate::run;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// Unit of the kernel's counters, for all devices.
const SECTOR_BYTES: u64 = 512;
const DEVICES: &str = "/sys/block";

/// An existing loop device. Dropping this does not remove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name, such as `loop3`.
    name: String,
}

/// The kernel's counters of a disk. They continue when a device is reused, so only differences are
/// meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Device {
    /// Makes a loop device of a file; `direct`: bypasses the page cache.
    pub(crate) fn attach(file: &str, direct: bool) -> Result<Self> {
        let how = if direct { "--direct-io=on" } else { "--direct-io=off" };
        let device = run("losetup", &["--find", "--show", how, file])?;
        Ok(Self { name: device.trim_start_matches("/dev/").to_owned() })
    }

    /// The loop devices of a file.
    ///
    /// # Errors
    /// The devices cannot be listed.
    pub fn of(file: &Path) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(DEVICES)? {
            let entry = entry?;
            // Most devices have no such file: they are not loop devices, or not attached.
            let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
            if backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == file) {
                found.push(Self { name: entry.file_name().to_string_lossy().into_owned() });
            }
        }
        Ok(found)
    }

    /// Removes the device, at once or when its last user is gone.
    pub(crate) fn detach(&self) -> Result<()> {
        run("losetup", &["--detach", &self.node()]).map(drop)
    }

    /// Its path, such as `/dev/loop3`.
    pub fn node(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Sets the kernel's read-ahead for sequential reads. Loop devices may have far more than the
    /// 128 KiB of disks.
    ///
    /// # Errors
    /// It cannot be set.
    pub fn read_ahead(&self, kib: u64) -> Result<()> {
        fs::write(self.kernels("queue/read_ahead_kb"), kib.to_string())
    }

    /// Its device number, such as `7:3`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn number(&self) -> Result<String> {
        Ok(fs::read_to_string(self.kernels("dev"))?.trim().to_owned())
    }

    /// The kernel's counters of the device.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn counts(&self) -> Result<Counts> {
        let stat = self.kernels("stat");
        let text = fs::read_to_string(&stat)?;
        let unknown = || Error::other(format!("{}: not understood: {text}", stat.display()));
        // Word 3 is sectors read, word 7 is sectors written.
        let bytes = |n: usize| {
            let word = text.split_whitespace().nth(n).and_then(|word| word.parse::<u64>().ok());
            word.map(|sectors| sectors * SECTOR_BYTES).ok_or_else(unknown)
        };
        Ok(Counts { read_bytes: bytes(2)?, written_bytes: bytes(6)? })
    }

    /// Path of a file of the kernel about the device.
    fn kernels(&self, what: &str) -> PathBuf {
        Path::new(DEVICES).join(&self.name).join(what)
    }
}
