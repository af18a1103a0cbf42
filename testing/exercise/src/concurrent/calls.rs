//! The calls of the exercises: system calls, or the equivalent ones of a library.

use rustix::fs::{CWD, RenameFlags, SeekFrom, renameat_with, seek};
use std::fs::{self, File, OpenOptions};
use std::io::{Result, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a file is opened, always for reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The file exists.
    Existing,
    /// The file exists; writes without an offset append to it.
    Append,
    /// The file is created or emptied.
    Empty,
    /// The file is created and must not exist.
    New,
}

/// An open file.
pub trait OpenFile: Send {
    /// Reads at an offset, at most the length of the buffer.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes all of the data at an offset.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Appends all of the data with one call.
    fn append(&self, data: &[u8]) -> Result<()>;
    /// Truncates or extends the file.
    fn set_len(&self, len: u64) -> Result<()>;
    /// The size from its attributes.
    fn size(&self) -> Result<u64>;
    /// The size from `SEEK_END`, or the closest equivalent.
    fn end(&self) -> Result<u64>;
    /// The inode number.
    fn inode(&self) -> Result<u64>;
}

/// An implementation of the calls. Errors are errnos of the operating system.
pub trait Calls: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, how: How) -> Result<Box<dyn OpenFile>>;
    /// Makes a directory.
    fn create_dir(&self, path: &Path) -> Result<()>;
    /// Removes a directory of files.
    fn remove_dir_all(&self, path: &Path) -> Result<()>;
    /// Removes a file.
    fn unlink(&self, path: &Path) -> Result<()>;
    /// Renames a file; `keep`: only if the new name does not exist.
    fn rename(&self, from: &Path, to: &Path, keep: bool) -> Result<()>;
    /// Adds a hard link.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;
    /// The inode number of a name; links are not followed.
    fn inode(&self, path: &Path) -> Result<u64>;
}

/// A directory, and the implementation of its calls.
#[derive(Clone)]
pub struct Place {
    /// The implementation of the calls.
    pub calls: Arc<dyn Calls>,
    /// The directory.
    pub dir: PathBuf,
}

impl Place {
    /// A directory of this machine, with system calls.
    pub fn local(dir: &Path) -> Self {
        Self { calls: Arc::new(System), dir: dir.to_owned() }
    }

    /// A place below this one.
    pub fn join(&self, name: &str) -> Self {
        Self { calls: self.calls.clone(), dir: self.dir.join(name) }
    }

    /// Opens a file of this directory.
    pub fn open(&self, name: &str, how: How) -> crate::Outcome<Box<dyn OpenFile>> {
        let path = self.dir.join(name);
        self.calls.open(&path, how).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// System calls.
pub struct System;

impl Calls for System {
    fn open(&self, path: &Path, how: How) -> Result<Box<dyn OpenFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let options = match how {
            How::Existing => &mut options,
            How::Append => options.append(true),
            How::Empty => options.create(true).truncate(true),
            How::New => options.create_new(true),
        };
        Ok(Box::new(options.open(path)?))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        fs::create_dir(path)
    }

    fn remove_dir_all(&self, path: &Path) -> Result<()> {
        fs::remove_dir_all(path)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path, keep: bool) -> Result<()> {
        let flags = if keep { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        Ok(renameat_with(CWD, from, CWD, to, flags)?)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        fs::hard_link(from, to)
    }

    fn inode(&self, path: &Path) -> Result<u64> {
        Ok(fs::symlink_metadata(path)?.ino())
    }
}

impl OpenFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_all_at(data, offset)
    }

    fn append(&self, data: &[u8]) -> Result<()> {
        let mut file = self;
        let written = file.write(data)?;
        // A short write would have to be continued by the program.
        match written == data.len() {
            true => Ok(()),
            false => Err(std::io::Error::other(format!("wrote {written} of {}", data.len()))),
        }
    }

    fn set_len(&self, len: u64) -> Result<()> {
        File::set_len(self, len)
    }

    fn size(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn end(&self) -> Result<u64> {
        Ok(seek(self, SeekFrom::End(0))?)
    }

    fn inode(&self) -> Result<u64> {
        Ok(self.metadata()?.ino())
    }
}
