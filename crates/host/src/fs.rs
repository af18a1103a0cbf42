//! Files and directories: the few calls that a store and a log need, each one system call. Names
//! are relative to an open directory.
//!
//! Every sync names its site, a word for its place in the code. Crash tests leave out one site
//! after another, and must notice each.

mod file;
pub(crate) mod kinds;

pub use file::File;
pub use kinds::{OpenHow, Space, Stat};

use crate::plant::{Bug, planted};
use crate::simulated;
use file::FileKind;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, Result, retry_on_intr};
use std::any::Any;
use std::fmt;
use std::io::Read;
use std::path::{Component, Path};
use std::sync::Arc;

/// An open directory. Clones share it.
#[derive(Clone)]
pub struct Directory(DirectoryKind);

#[derive(Clone)]
enum DirectoryKind {
    Os(Arc<OwnedFd>),
    Simulated(Arc<dyn simulated::Directory>),
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

impl Directory {
    /// Opens a directory by its path.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn open(path: &Path) -> Result<Self> {
        if let Some(machine) = simulated::current() {
            let directory = machine.root().open_directory(&simulated_path(path)?)?;
            return Ok(Self(DirectoryKind::Simulated(directory)));
        }
        // The administrator may use links in the path.
        let flags = DIRECTORY.difference(OFlags::NOFOLLOW);
        Ok(Self::from_fd(retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?))
    }

    /// Makes a directory and its missing parents.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn make_all(path: &Path) -> Result<()> {
        let Some(machine) = simulated::current() else {
            return std::fs::create_dir_all(path)
                .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO));
        };
        let path = simulated_path(path)?;
        let mut at = 0;
        while at < path.len() {
            at = path[at + 1..].find('/').map_or(path.len(), |i| at + 1 + i);
            match machine.root().make_directory(&path[..at]) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn from_fd(fd: OwnedFd) -> Self {
        Self(DirectoryKind::Os(Arc::new(fd)))
    }

    /// The file descriptor; `None` on a simulated machine.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            DirectoryKind::Os(fd) => Some(fd.as_fd()),
            DirectoryKind::Simulated(_) => None,
        }
    }

    /// Opens a subdirectory.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn open_directory(&self, path: &str) -> Result<Self> {
        Ok(match &self.0 {
            DirectoryKind::Os(fd) => {
                let open = || rustix::fs::openat(fd, path, DIRECTORY, Mode::empty());
                Self::from_fd(retry_on_intr(open)?)
            }
            DirectoryKind::Simulated(directory) => {
                Self(DirectoryKind::Simulated(directory.open_directory(path)?))
            }
        })
    }

    /// Makes a subdirectory that only its owner can enter.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn make_directory(&self, path: &str) -> Result<()> {
        match &self.0 {
            DirectoryKind::Os(fd) => rustix::fs::mkdirat(fd, path, Mode::from(0o700)),
            DirectoryKind::Simulated(directory) => directory.make_directory(path),
        }
    }

    /// Opens a file of this directory. A new file is accessible to its owner only. Links are not
    /// followed.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn open_file(&self, path: &str, how: OpenHow) -> Result<File> {
        let fd = match &self.0 {
            DirectoryKind::Os(fd) => fd,
            DirectoryKind::Simulated(directory) => {
                return Ok(File(FileKind::Simulated(directory.open_file(path, how)?)));
            }
        };
        let mut flags = if how.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        flags |= OFlags::CLOEXEC | OFlags::NOFOLLOW;
        flags.set(OFlags::CREATE, how.create);
        flags.set(OFlags::EXCL, how.exclusive);
        flags.set(OFlags::TRUNC, how.truncate);
        let open = || rustix::fs::openat(fd, path, flags, Mode::from(0o600));
        retry_on_intr(open).map(|fd| File(FileKind::Os(fd)))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn unlink(&self, path: &str) -> Result<()> {
        match &self.0 {
            DirectoryKind::Os(fd) => rustix::fs::unlinkat(fd, path, AtFlags::empty()),
            DirectoryKind::Simulated(directory) => directory.unlink(path),
        }
    }

    /// Renames a file within this directory; replaces a file of the new name.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        match &self.0 {
            DirectoryKind::Os(fd) => rustix::fs::renameat(fd, from, fd, to),
            DirectoryKind::Simulated(directory) => directory.rename(from, to),
        }
    }

    /// The names in this directory, without `.` and `..`, one by one.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn entries(&self) -> Result<Entries> {
        Ok(Entries(match &self.0 {
            DirectoryKind::Os(fd) => EntriesKind::Os(Dir::read_from(fd)?),
            DirectoryKind::Simulated(directory) => {
                EntriesKind::Simulated(directory.entries()?.into_iter())
            }
        }))
    }

    /// Size and kind of a name; links are not followed.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn stat(&self, path: &str) -> Result<Stat> {
        let fd = match &self.0 {
            DirectoryKind::Os(fd) => fd,
            DirectoryKind::Simulated(directory) => return directory.stat(path),
        };
        let stat = rustix::fs::statat(fd, path, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        Ok(Stat {
            size: stat.st_size as u64,
            is_file: kind == FileType::RegularFile,
            is_directory: kind == FileType::Directory,
        })
    }

    /// Makes the entries of this directory durable.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn sync(&self, site: &'static str) -> Result<()> {
        match &self.0 {
            DirectoryKind::Os(fd) => retry_on_intr(|| rustix::fs::fsync(fd)),
            DirectoryKind::Simulated(directory) => directory.sync(site),
        }
    }

    /// Makes everything on this directory's file system durable.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn sync_file_system(&self, site: &'static str) -> Result<()> {
        match &self.0 {
            DirectoryKind::Os(fd) => retry_on_intr(|| rustix::fs::syncfs(fd)),
            DirectoryKind::Simulated(directory) => directory.sync_file_system(site),
        }
    }

    /// Free and total space of this directory's file system.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn space(&self) -> Result<Space> {
        let fd = match &self.0 {
            DirectoryKind::Os(fd) => fd,
            DirectoryKind::Simulated(directory) => return directory.space(),
        };
        let stat = rustix::fs::fstatvfs(fd)?;
        Ok(Space {
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            total_files: stat.f_files,
            free_files: stat.f_favail,
        })
    }

    /// The device number of this directory's file system. On a simulated machine it is always the
    /// same.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn device(&self) -> Result<u64> {
        match &self.0 {
            DirectoryKind::Os(fd) => Ok(rustix::fs::fstat(fd)?.st_dev),
            DirectoryKind::Simulated(_) => Ok(0),
        }
    }

    /// An id of the kernel's memory of this file system. While the id is the same, bytes that were
    /// written and not synced are still in memory. The id changes when the machine restarts, and
    /// when the file system is unmounted everywhere and mounted again. `None` if the kernel does
    /// not tell.
    ///
    /// On file systems other than ext4, XFS and F2FS the id is that of the mount. So it also
    /// changes if one mount is replaced while the file system stays mounted elsewhere. Before Linux
    /// 6.8 it is `None` there.
    pub fn memory_run(&self) -> Option<u128> {
        let mounted = match &self.0 {
            DirectoryKind::Os(fd) => superblock(fd).or_else(|| mount_id(fd)).unwrap_or(0),
            DirectoryKind::Simulated(_) if planted(Bug::ForgetMount) => 0,
            DirectoryKind::Simulated(directory) => directory.mounts(),
        };
        crate::boot_id().map(|boot| boot ^ u128::from(mounted))
    }

    /// Locks a file, which is made if it is missing. The lock ends when it is dropped or the
    /// process ends.
    ///
    /// # Errors
    /// `WOULDBLOCK` if another process holds the lock; those of the kernel.
    ///
    /// # Errors
    /// `WOULDBLOCK` if someone has it; those of the kernel.
    pub fn lock(&self, path: &str) -> Result<Lock> {
        let fd = match &self.0 {
            DirectoryKind::Os(fd) => fd,
            DirectoryKind::Simulated(directory) => {
                return directory.lock(path).map(|lock| Lock(LockKind::Simulated(lock)));
            }
        };
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(fd, path, flags, Mode::from(0o600))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Lock(LockKind::Os(file)))
    }
}

/// The kernel's id of a mounted file system: the inode number of its directory below `/sys/fs`. It
/// lasts from the first mount to the last unmount, and is never reused.
fn superblock(fd: &OwnedFd) -> Option<u64> {
    const KINDS: [&str; 3] = ["ext4", "xfs", "f2fs"];
    let device = rustix::fs::fstat(fd).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let link = format!("/sys/dev/block/{major}:{minor}");
    let link = rustix::fs::readlink(link, Vec::new()).ok()?;
    let name = link.to_str().ok()?.rsplit('/').next()?.to_owned();
    let of = |kind| rustix::fs::stat(format!("/sys/fs/{kind}/{name}")).ok();
    KINDS.into_iter().find_map(of).map(|stat| stat.st_ino)
}

/// The unique id of a mount, which is never reused while the machine runs. `None` before Linux 6.8.
fn mount_id(fd: &OwnedFd) -> Option<u64> {
    /// `STATX_MNT_ID_UNIQUE`.
    const UNIQUE: u32 = 0x4000;
    let wanted = StatxFlags::from_bits_retain(UNIQUE);
    let stat = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, wanted).ok()?;
    (stat.stx_mask & UNIQUE != 0).then_some(stat.stx_mnt_id)
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Directory")
    }
}

/// A simulated machine accepts absolute paths only.
fn simulated_path(path: &Path) -> Result<String> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir => {}
            Component::Normal(name) => parts.push(name.to_str().ok_or(Errno::ILSEQ)?),
            _ => return Err(Errno::INVAL),
        }
    }
    Ok(parts.join("/"))
}

/// The names in a directory.
pub struct Entries(EntriesKind);

enum EntriesKind {
    Os(Dir),
    Simulated(std::vec::IntoIter<Vec<u8>>),
}

impl Iterator for Entries {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let dir = match &mut self.0 {
            EntriesKind::Os(dir) => dir,
            EntriesKind::Simulated(names) => return names.next().map(Ok),
        };
        loop {
            match dir.read()? {
                Ok(entry) => match entry.file_name().to_bytes() {
                    b"." | b".." => {}
                    name => return Some(Ok(name.to_vec())),
                },
                Err(e) => return Some(Err(e)),
            }
        }
    }
}

/// A lock that a process holds on a file.
pub struct Lock(LockKind);

enum LockKind {
    Os(OwnedFd),
    Simulated(
        #[expect(dead_code, reason = "dropping it gives the lock back")] Box<dyn Any + Send + Sync>,
    ),
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let LockKind::Os(fd) = &self.0 {
            // Closing is not enough: a forked child has the descriptor too until it executes its
            // program.
            let _ = rustix::fs::flock(fd, FlockOperation::Unlock);
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lock")
    }
}

/// Reads a whole small file by its path, for configuration and keys.
///
/// # Errors
/// Those of the kernel; `FBIG` if it has more than `max_bytes`.
pub fn read_file(path: &Path, max_bytes: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if simulated::current().is_some() {
        let name = path.file_name().and_then(|n| n.to_str()).ok_or(Errno::INVAL)?;
        let parent = path.parent().ok_or(Errno::INVAL)?;
        let file = Directory::open(parent)?.open_file(name, OpenHow::READ)?;
        bytes.resize(max_bytes + 1, 0);
        let len = file.read_full(&mut bytes, 0)?;
        bytes.truncate(len);
    } else {
        // Links and pipes are allowed here: administrators use them.
        let read = |file: std::fs::File| file.take(max_bytes as u64 + 1).read_to_end(&mut bytes);
        let done = std::fs::File::open(path).and_then(read);
        done.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    }
    if bytes.len() > max_bytes { Err(Errno::FBIG) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_directories_of_the_operating_system() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("a/b");
        Directory::make_all(&path).unwrap();
        let directory = Directory::open(&path).unwrap();
        let file = directory.open_file("f", OpenHow::CREATE).unwrap();
        file.write_full(b"hello", 3).unwrap();
        file.sync("test").unwrap();
        directory.sync("test").unwrap();
        assert_eq!(file.size(), Ok(8));
        let mut bytes = [1; 10];
        assert_eq!(file.read_full(&mut bytes, 0), Ok(8));
        assert_eq!(&bytes[..8], b"\0\0\0hello");
        directory.rename("f", "g").unwrap();
        let names: Vec<_> = directory.entries().unwrap().map(|n| n.unwrap()).collect();
        assert_eq!(names, [b"g".to_vec()]);
        assert_eq!(directory.stat("g").unwrap().size, 8);
        let lock = directory.lock("lock").unwrap();
        assert_eq!(directory.lock("lock").unwrap_err(), Errno::WOULDBLOCK);
        drop(lock);
        directory.lock("lock").unwrap();
        assert_eq!(read_file(&path.join("g"), 8).unwrap().len(), 8);
        assert_eq!(read_file(&path.join("g"), 7).unwrap_err(), Errno::FBIG);
        directory.unlink("g").unwrap();
        assert_eq!(directory.stat("g").unwrap_err(), Errno::NOENT);
    }
}
