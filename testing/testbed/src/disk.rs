//! A file that is used as a disk.

use crate::device::{Counts, Device};
use crate::model::{Drive, Model};
use crate::{run, text};
use std::fs::{self, File};
use std::io::{self, Error, Result, Write};
use std::path::{Path, PathBuf};

/// A loop device with a mounted ext4 file system. Dropping it removes both.
#[derive(Debug)]
pub struct Disk {
    device: Device,
    at: PathBuf,
    /// Everything else to remove.
    made: Made,
}

/// Things made for a disk, removed in this order.
#[derive(Debug, Default)]
pub(crate) struct Made {
    mounted: Option<PathBuf>,
    device: Option<Device>,
    model: Option<Model>,
    dirs: Vec<PathBuf>,
    image: Option<PathBuf>,
}

impl Disk {
    /// Makes a disk of `bytes` in the file `image`, and mounts it at the directory `at`; neither
    /// may exist. It is as fast as the machine. A failure leaves nothing behind.
    ///
    /// # Errors
    /// The failed program and its error.
    pub fn make(image: &Path, at: &Path, bytes: u64) -> Result<Self> {
        let mut made = Made::default();
        made.image(image, bytes)?;
        made.dir(at)?;
        Self::over(image, at, false, made)
    }

    /// As [`Disk::make`], with a model of a disk head that delays all reads and writes. The model
    /// is mounted beside the disk: see [`Disk::model_at`].
    ///
    /// # Errors
    /// As [`Disk::make`]; FUSE is missing.
    pub fn make_modelled(image: &Path, at: &Path, bytes: u64, drive: Drive) -> Result<Self> {
        let mut made = Made::default();
        let model_at = Self::model_at(at);
        made.image(image, bytes)?;
        made.dir(at)?;
        made.dir(&model_at)?;
        made.model = Some(Model::mount(image, &model_at, drive)?);
        Self::over(&Model::file(&model_at), at, true, made)
    }

    /// Where the model of a disk is mounted.
    pub fn model_at(at: &Path) -> PathBuf {
        let mut path = at.as_os_str().to_owned();
        path.push(".drive");
        path.into()
    }

    /// Mounts a file of [`make_image`], or the file of its [`Model`], at an existing directory.
    /// Dropping the result removes neither.
    ///
    /// # Errors
    /// The failed program and its error.
    pub fn of(file: &Path, at: &Path, is_model: bool) -> Result<Self> {
        Self::over(file, at, is_model, Made::default())
    }

    fn over(file: &Path, at: &Path, is_model: bool, mut made: Made) -> Result<Self> {
        // A model bypasses the page cache. A plain image does not: this machine's own disk may be
        // slower than the set speed.
        let device = Device::attach(text(file)?, is_model)?;
        made.device = Some(device.clone());
        run("mount", &["-o", "noatime", &device.node(), text(at)?])?;
        made.mounted = Some(at.into());
        Ok(Self { device, at: at.into(), made })
    }

    /// An existing disk: the one of a file that is mounted there. Dropping the result does not
    /// remove it.
    ///
    /// # Errors
    /// There is none.
    pub fn found(file: &Path, at: &Path) -> Result<Self> {
        let device = Device::of(file)?.into_iter().next();
        let none = || Error::other(format!("{} is no disk", file.display()));
        Ok(Self { device: device.ok_or_else(none)?, at: at.into(), made: Made::default() })
    }

    /// Leaves the disk in place, until [`Disk::remove`]. A model of its own ends with this process.
    pub fn leave(mut self) {
        self.made.mounted = None;
        self.made.device = None;
        self.made.dirs.clear();
        self.made.image = None;
    }

    /// Unmounts a directory and removes all loop devices of a file, if they exist. The file stays.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(file: &Path, at: &Path) -> Result<()> {
        detach(at)?;
        Device::of(file)?.iter().try_for_each(Device::detach)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Makes the disk hang until the result is dropped: writers wait, and get no error.
    ///
    /// # Errors
    /// Those of the system.
    pub fn freeze(&self) -> Result<Frozen<'_>> {
        run("fsfreeze", &["-f", text(&self.at)?])?;
        Ok(Frozen(self))
    }

    /// Its loop device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes read from it, by the kernel's counters.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read_bytes(&self) -> Result<u64> {
        Ok(self.counts()?.read_bytes)
    }

    /// The kernel's counters of it.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn counts(&self) -> Result<Counts> {
        self.device.counts()
    }
}

/// A hanging disk. It continues when this is dropped.
#[derive(Debug)]
pub struct Frozen<'a>(&'a Disk);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // Otherwise waiting processes could not even be killed.
        let thawed = text(&self.0.at).and_then(|at| run("fsfreeze", &["-u", at]));
        if let Err(error) = thawed {
            let _ = writeln!(io::stderr(), "{}: {error}", self.0.at.display());
        }
    }
}

impl AsRef<Device> for Disk {
    fn as_ref(&self) -> &Device {
        &self.device
    }
}

impl AsRef<Self> for Device {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// Unmounts everything at a directory, even if its server is gone. No mount is no error.
///
/// # Errors
/// Those of the system.
pub fn detach(at: &Path) -> Result<()> {
    let at = text(at)?;
    let all = fs::read_to_string("/proc/self/mounts")?;
    // The table escapes blanks in names; testbeds have none.
    let mounted = all.lines().filter(|line| line.split(' ').nth(1) == Some(at)).count();
    (0..mounted).try_for_each(|_| run("umount", &["-l", at]).map(drop))
}

/// Makes a file of `bytes` with an empty file system. Its bytes take no space before they are
/// written.
///
/// # Errors
/// It exists, or cannot be made; then nothing is left behind.
pub fn make_image(path: &Path, bytes: u64) -> Result<()> {
    let named = |e: Error| Error::new(e.kind(), format!("{}: {e}", path.display()));
    let file = File::options().write(true).create_new(true).open(path).map_err(named)?;
    // Without a journal, and with all tables written at once, so that the file system does no work
    // of its own later.
    let features = "lazy_itable_init=0,nodiscard";
    let format = || {
        run(
            "mkfs.ext4",
            &["-q", "-F", "-b", "4096", "-O", "^has_journal", "-E", features, text(path)?],
        )
        .map(drop)
    };
    file.set_len(bytes).map_err(named).and_then(|()| format()).inspect_err(|_| {
        // The first error is reported.
        let _ = fs::remove_file(path);
    })
}

impl Made {
    /// A disk without a file system; with a head if a drive is given.
    pub(crate) fn disk(image: &Path, bytes: u64, drive: Option<Drive>) -> Result<Self> {
        let named = |e: Error| Error::new(e.kind(), format!("{}: {e}", image.display()));
        let mut made = Self::default();
        let file = File::options().write(true).create_new(true).open(image).map_err(named)?;
        made.image = Some(image.into());
        file.set_len(bytes).map_err(named)?;
        let mut below = image.to_owned();
        if let Some(drive) = drive {
            let model_at = Disk::model_at(image);
            made.dir(&model_at)?;
            made.model = Some(Model::mount(image, &model_at, drive)?);
            below = Model::file(&model_at);
        }
        made.device = Some(Device::attach(text(&below)?, drive.is_some())?);
        Ok(made)
    }

    /// Its loop device.
    pub(crate) fn device(&self) -> Option<Device> {
        self.device.clone()
    }

    /// Notes that something was mounted there.
    pub(crate) fn is_mounted(&mut self, at: &Path) {
        self.mounted = Some(at.into());
    }

    fn image(&mut self, path: &Path, bytes: u64) -> Result<()> {
        make_image(path, bytes)?;
        self.image = Some(path.into());
        Ok(())
    }

    pub(crate) fn dir(&mut self, path: &Path) -> Result<()> {
        // An existing directory is not removed later.
        fs::create_dir(path)
            .map_err(|e| Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        self.dirs.push(path.into());
        Ok(())
    }

    /// Removes everything, and returns the first error.
    fn remove(&mut self) -> Result<()> {
        let unmount = |at: &PathBuf| run("umount", &["-l", text(at)?]).map(drop);
        let unmounted = self.mounted.as_ref().map_or(Ok(()), unmount);
        let detached = self.device.as_ref().map_or(Ok(()), Device::detach);
        self.model = None;
        let dirs = self.dirs.iter().rev().map(fs::remove_dir).fold(Ok(()), Result::and);
        let image = self.image.as_ref().map_or(Ok(()), fs::remove_file);
        unmounted.and(detached).and(dirs).and(image)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            // In a destructor the error can only be printed.
            let _ = writeln!(io::stderr(), "a disk stays: {error}");
        }
    }
}
