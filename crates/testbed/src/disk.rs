//! A file that is used as a disk.

use crate::{run, text};
use std::fs::{self, File};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// The kernel counts in these, whatever the device has.
const SECTOR_BYTES: u64 = 512;

/// A loop device with an ext4 file system, mounted; both go when it is dropped.
#[derive(Debug)]
pub struct Disk {
    /// `loop3`.
    name: String,
    at: PathBuf,
    image: PathBuf,
    mounted: bool,
}

impl Disk {
    /// Makes a disk of so many bytes in the file `image`, and mounts it at the directory `at`;
    /// neither may be there.
    ///
    /// # Errors
    /// What the system says, with the program that it was said to.
    pub fn make(image: &Path, at: &Path, bytes: u64) -> Result<Self> {
        let named =
            |e: Error, path: &Path| Error::new(e.kind(), format!("{}: {e}", path.display()));
        fs::create_dir(at).map_err(|e| named(e, at))?;
        let file = File::options().write(true).create_new(true).open(image);
        file.and_then(|file| file.set_len(bytes)).map_err(|e| named(e, image))?;
        let device = run("losetup", &["--find", "--show", text(image)?])?;
        let name = device.trim_start_matches("/dev/").to_owned();
        let mut disk = Self { name, at: at.into(), image: image.into(), mounted: false };
        // No journal, and all tables written now: nothing of its own goes on afterwards.
        let features = "lazy_itable_init=0,nodiscard";
        run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", "-E", features, &device])?;
        run("mount", &["-o", "noatime", &device, text(at)?])?;
        disk.mounted = true;
        Ok(disk)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Its number, as `7:3`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn number(&self) -> Result<String> {
        let number = fs::read_to_string(format!("/sys/block/{}/dev", self.name))?;
        Ok(number.trim().to_owned())
    }

    /// Bytes that were read from it since it was made, as the kernel counts them.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_bytes(&self) -> Result<u64> {
        let stat = fs::read_to_string(format!("/sys/block/{}/stat", self.name))?;
        let sectors = stat.split_whitespace().nth(2).and_then(|word| word.parse::<u64>().ok());
        let unknown = || Error::other(format!("{}: not understood: {stat}", self.name));
        Ok(sectors.ok_or_else(unknown)? * SECTOR_BYTES)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let device = format!("/dev/{}", self.name);
        // What cannot be taken back now is named by the next `losetup`; nobody is here to
        // be told.
        if self.mounted {
            let _ = text(&self.at).and_then(|at| run("umount", &["-l", at]));
        }
        let _ = run("losetup", &["--detach", &device]);
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_dir(&self.at);
    }
}
