//! POSIX calls on a mounted Weir, the trivial FUSE server, or a local disk.

use crate::failure::{Done, Failure};
use crate::files::Files;
use crate::order::SyncKind;
use rustix::fs::{Advice, Mode, OFlags, fadvise};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Files below a directory.
pub struct Posix {
    /// The directory.
    pub root: PathBuf,
    /// Drop a file's pages from the kernel's cache at open.
    pub cold: bool,
    /// Open with `O_DIRECT`.
    pub direct: bool,
    /// Owner of new directories.
    pub owner: Option<u32>,
}

impl Posix {
    fn open(&self, path: &str, flags: OFlags) -> Done<OwnedFd> {
        let path = self.root.join(path);
        let direct = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
        let file = rustix::fs::open(&path, flags | direct | OFlags::CLOEXEC, Mode::from(0o644))
            .map_err(|e| Failure::file(&path, e))?;
        if self.cold {
            fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| Failure::file(&path, e))?;
        }
        Ok(file)
    }
}

impl Files for Posix {
    type File = OwnedFd;
    type Dir = PathBuf;

    fn open_read(&self, path: &str, random: bool) -> Done<OwnedFd> {
        let file = self.open(path, OFlags::RDONLY)?;
        if random {
            fadvise(&file, 0, None, Advice::Random).map_err(|e| Failure::system("fadvise", e))?;
        }
        Ok(file)
    }

    fn open_write(&self, path: &str) -> Done<OwnedFd> {
        self.open(path, OFlags::RDWR | OFlags::CREATE)
    }

    fn read(&self, file: &OwnedFd, offset: u64, buffer: &mut [u8]) -> Done<usize> {
        rustix::io::pread(file, buffer, offset).map_err(|e| Failure::system("pread", e))
    }

    fn write(&self, file: &OwnedFd, mut offset: u64, mut data: &[u8]) -> Done {
        while !data.is_empty() {
            let n =
                rustix::io::pwrite(file, data, offset).map_err(|e| Failure::system("pwrite", e))?;
            offset += n as u64;
            data = &data[n..];
        }
        Ok(())
    }

    fn sync(&self, file: &OwnedFd, kind: SyncKind) -> Done {
        match kind {
            SyncKind::Data => rustix::fs::fdatasync(file),
            SyncKind::Full => rustix::fs::fsync(file),
        }
        .map_err(|e| Failure::system("fsync", e))
    }

    fn close(&self, file: OwnedFd) -> Done {
        drop(file);
        Ok(())
    }

    fn make_dir(&self, path: &str) -> Done {
        let path = self.root.join(path);
        rustix::fs::mkdir(&path, Mode::from(0o755)).map_err(|e| Failure::file(&path, e))?;
        match self.owner {
            Some(owner) => std::os::unix::fs::chown(&path, Some(owner), Some(owner))
                .map_err(|e| Failure::file(&path, e)),
            None => Ok(()),
        }
    }

    fn dir(&self, path: &str) -> Done<PathBuf> {
        Ok(self.root.join(path))
    }

    fn create(&self, dir: &PathBuf, name: &str) -> Done {
        let path = dir.join(name);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::open(&path, flags, Mode::from(0o644))
            .map(drop)
            .map_err(|e| Failure::file(&path, e))
    }

    fn stat(&self, dir: &PathBuf, name: &str) -> Done {
        on(dir, name, |path| rustix::fs::stat(path).map(drop))
    }

    fn unlink(&self, dir: &PathBuf, name: &str) -> Done {
        on(dir, name, |path| rustix::fs::unlink(path))
    }
}

fn on(dir: &Path, name: &str, call: impl Fn(&Path) -> rustix::io::Result<()>) -> Done {
    let path = dir.join(name);
    call(&path).map_err(|e| Failure::file(&path, e))
}
