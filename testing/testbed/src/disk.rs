//! A file that is used as a disk.

use crate::device::{Counts, Device};
use crate::model::{Drive, Model};
use crate::{run, text};
use std::fs::{self, File};
use std::io::{self, Error, Result, Write};
use std::path::{Path, PathBuf};

/// A loop device with an ext4 file system, mounted; both go when it is dropped.
#[derive(Debug)]
pub struct Disk {
    device: Device,
    at: PathBuf,
    /// What else is to go.
    made: Made,
}

/// What was made for a disk, and goes in this order.
#[derive(Debug, Default)]
pub(crate) struct Made {
    mounted: Option<PathBuf>,
    device: Option<Device>,
    model: Option<Model>,
    dirs: Vec<PathBuf>,
    image: Option<PathBuf>,
}

impl Disk {
    /// Makes a disk of so many bytes in the file `image`, and mounts it at the directory `at`;
    /// neither may be there. It is as fast as the machine. If it cannot be made nothing of it is
    /// left.
    ///
    /// # Errors
    /// What the system says, with the program that it was said to.
    pub fn make(image: &Path, at: &Path, bytes: u64) -> Result<Self> {
        let mut made = Made::default();
        made.image(image, bytes)?;
        made.dir(at)?;
        Self::over(image, at, false, made)
    }

    /// The same with a head, which everybody's reads and writes wait for. Its model is mounted
    /// beside it: see [`Disk::model_at`].
    ///
    /// # Errors
    /// As above; no FUSE.
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

    /// Mounts a file of [`make_image`], or the one of its [`Model`], at a directory that is there.
    /// Both stay when the disk is dropped.
    ///
    /// # Errors
    /// What the system says, with the program that it was said to.
    pub fn of(file: &Path, at: &Path, is_model: bool) -> Result<Self> {
        Self::over(file, at, is_model, Made::default())
    }

    fn over(file: &Path, at: &Path, is_model: bool, mut made: Made) -> Result<Self> {
        // What a model has is in no page cache; a plain image is, for this machine's own disk
        // may be slower than what is set.
        let device = Device::attach(text(file)?, is_model)?;
        made.device = Some(device.clone());
        run("mount", &["-o", "noatime", &device.node(), text(at)?])?;
        made.mounted = Some(at.into());
        Ok(Self { device, at: at.into(), made })
    }

    /// One that was left: the disk of a file that is mounted there. It stays.
    ///
    /// # Errors
    /// There is none.
    pub fn found(file: &Path, at: &Path) -> Result<Self> {
        let device = Device::of(file)?.into_iter().next();
        let none = || Error::other(format!("{} is no disk", file.display()));
        Ok(Self { device: device.ok_or_else(none)?, at: at.into(), made: Made::default() })
    }

    /// It stays when it is dropped, until [`Disk::remove`]; if it has a model of its own that
    /// ends with this process.
    pub fn leave(mut self) {
        self.made.mounted = None;
        self.made.device = None;
        self.made.dirs.clear();
        self.made.image = None;
    }

    /// Unmounts what is mounted at a directory, and takes away all devices of a file, whatever
    /// of both is there. The file stays.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(file: &Path, at: &Path) -> Result<()> {
        detach(at)?;
        Device::of(file)?.iter().try_for_each(Device::detach)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Has it hang: who writes to it waits, and nobody is told of an error, until what is returned
    /// is dropped.
    ///
    /// # Errors
    /// What the system says.
    pub fn freeze(&self) -> Result<Frozen<'_>> {
        run("fsfreeze", &["-f", text(&self.at)?])?;
        Ok(Frozen(self))
    }

    /// What it is for the kernel.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes that were read from it, as the kernel counts them.
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
        self.device.counts()
    }
}

/// A disk that hangs; it goes on when this is dropped.
#[derive(Debug)]
pub struct Frozen<'a>(&'a Disk);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // Else whoever waits for it could not even be killed.
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

/// Takes away whatever is mounted at a directory, also if nobody serves it any more; nothing is
/// fine.
///
/// # Errors
/// What the system says.
pub fn detach(at: &Path) -> Result<()> {
    let at = text(at)?;
    let all = fs::read_to_string("/proc/self/mounts")?;
    // Blanks in names are written otherwise there; testbeds have none.
    let mounted = all.lines().filter(|line| line.split(' ').nth(1) == Some(at)).count();
    (0..mounted).try_for_each(|_| run("umount", &["-l", at]).map(drop))
}

/// Makes a file of so many bytes with an empty file system; they take no room before they are
/// written.
///
/// # Errors
/// It is there already, or cannot be made: then nothing of it is left.
pub fn make_image(path: &Path, bytes: u64) -> Result<()> {
    let named = |e: Error| Error::new(e.kind(), format!("{}: {e}", path.display()));
    let file = File::options().write(true).create_new(true).open(path).map_err(named)?;
    // No journal, and all tables written now: nothing of its own goes on afterwards.
    let features = "lazy_itable_init=0,nodiscard";
    let format = || {
        run(
            "mkfs.ext4",
            &["-q", "-F", "-b", "4096", "-O", "^has_journal", "-E", features, text(path)?],
        )
        .map(drop)
    };
    file.set_len(bytes).map_err(named).and_then(|()| format()).inspect_err(|_| {
        // The first error is the one to tell.
        let _ = fs::remove_file(path);
    })
}

impl Made {
    /// A disk without a file system, and with a head if that is named.
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

    /// Its device.
    pub(crate) fn device(&self) -> Option<Device> {
        self.device.clone()
    }

    /// Something was mounted there.
    pub(crate) fn is_mounted(&mut self, at: &Path) {
        self.mounted = Some(at.into());
    }

    fn image(&mut self, path: &Path, bytes: u64) -> Result<()> {
        make_image(path, bytes)?;
        self.image = Some(path.into());
        Ok(())
    }

    pub(crate) fn dir(&mut self, path: &Path) -> Result<()> {
        // One that was there is not ours to remove.
        fs::create_dir(path)
            .map_err(|e| Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        self.dirs.push(path.into());
        Ok(())
    }

    /// Everything is tried; the first error is told.
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
            // Nobody is here to be told but whoever reads what the program says.
            let _ = writeln!(io::stderr(), "a disk stays: {error}");
        }
    }
}
