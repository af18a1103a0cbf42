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
    /// `loop3`; none before there is one.
    name: Option<String>,
    at: PathBuf,
    image: PathBuf,
    mounted: bool,
}

/// What went through a disk since it was made, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Disk {
    /// Makes a disk of so many bytes in the file `image`, and mounts it at the directory `at`;
    /// neither may be there. If it cannot be made nothing of it is left.
    ///
    /// # Errors
    /// What the system says, with the program that it was said to.
    pub fn make(image: &Path, at: &Path, bytes: u64) -> Result<Self> {
        let named =
            |e: Error, path: &Path| Error::new(e.kind(), format!("{}: {e}", path.display()));
        let file = File::options().write(true).create_new(true).open(image);
        let file = file.map_err(|e| named(e, image))?;
        if let Err(e) = fs::create_dir(at) {
            // A directory that was there is not ours to remove.
            let _ = fs::remove_file(image);
            return Err(named(e, at));
        }
        // From here on it is dropped, with all that there is of it, when something fails.
        let mut disk = Self { name: None, at: at.into(), image: image.into(), mounted: false };
        file.set_len(bytes).map_err(|e| named(e, image))?;
        let device = run("losetup", &["--find", "--show", text(image)?])?;
        disk.name = Some(device.trim_start_matches("/dev/").to_owned());
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

    /// From now on the kernel reads so much ahead of who reads a file from end to end. Loop
    /// devices may have far more than disks have by default (128 KiB).
    ///
    /// # Errors
    /// It cannot be set.
    pub fn read_ahead(&self, kib: u64) -> Result<()> {
        fs::write(self.kernels("queue/read_ahead_kb")?, kib.to_string())
    }

    /// Its number, as `7:3`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn number(&self) -> Result<String> {
        Ok(fs::read_to_string(self.kernels("dev")?)?.trim().to_owned())
    }

    /// Bytes that were read from it since it was made, as the kernel counts them.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_bytes(&self) -> Result<u64> {
        Ok(self.counts()?.read_bytes)
    }

    /// What the kernel has counted of it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn counts(&self) -> Result<Counts> {
        counts(&self.stat()?)
    }

    /// The file in which the kernel counts.
    pub(crate) fn stat(&self) -> Result<PathBuf> {
        self.kernels("stat")
    }

    /// What the kernel says of it.
    fn kernels(&self, what: &str) -> Result<PathBuf> {
        let name = self.name.as_ref().ok_or_else(|| Error::other("a disk without a device"))?;
        Ok(Path::new("/sys/block").join(name).join(what))
    }
}

/// What such a file says: the third word is sectors read, the seventh sectors written.
pub(crate) fn counts(stat: &Path) -> Result<Counts> {
    let text = fs::read_to_string(stat)?;
    let unknown = || Error::other(format!("{}: not understood: {text}", stat.display()));
    let bytes = |n: usize| {
        let word = text.split_whitespace().nth(n).and_then(|word| word.parse::<u64>().ok());
        word.map(|sectors| sectors * SECTOR_BYTES).ok_or_else(unknown)
    };
    Ok(Counts { read_bytes: bytes(2)?, written_bytes: bytes(6)? })
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What cannot be taken back now is named by the next `losetup`; nobody is here to
        // be told.
        if self.mounted {
            let _ = text(&self.at).and_then(|at| run("umount", &["-l", at]));
        }
        if let Some(name) = &self.name {
            let _ = run("losetup", &["--detach", &format!("/dev/{name}")]);
        }
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_dir(&self.at);
    }
}
