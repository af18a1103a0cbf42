//! The calls that the exercises make: those of the operating system, or of a library that has the
//! same ones.

use rustix::fs::{CWD, RenameFlags, SeekFrom, renameat_with, seek};
use std::fs::{self, File, OpenOptions};
use std::io::{Result, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a file is opened: always to read and to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is there.
    Existing,
    /// It is there, and what is written without an offset goes to its end.
    Append,
    /// It is made, or emptied if it is there.
    Empty,
    /// It is made, and must not be there.
    New,
}

/// An open file.
pub trait OpenFile: Send {
    /// Reads what there is, up to the length of the buffer, at an offset.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes all of it at an offset.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Writes all of it at the end, by one call.
    fn append(&self, data: &[u8]) -> Result<()>;
    /// Cuts or extends it.
    fn set_len(&self, len: u64) -> Result<()>;
    /// Its size by its attributes.
    fn size(&self) -> Result<u64>;
    /// Its size by `SEEK_END`, or as near as there is to it.
    fn end(&self) -> Result<u64>;
    /// Its number.
    fn inode(&self) -> Result<u64>;
}

/// Who makes the calls. Errors have the number of the operating system.
pub trait Calls: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, how: How) -> Result<Box<dyn OpenFile>>;
    /// Makes a directory.
    fn create_dir(&self, path: &Path) -> Result<()>;
    /// Removes a directory of files.
    fn remove_dir_all(&self, path: &Path) -> Result<()>;
    /// Removes a file.
    fn unlink(&self, path: &Path) -> Result<()>;
    /// Gives a file another name; `keep`: only where there is none.
    fn rename(&self, from: &Path, to: &Path, keep: bool) -> Result<()>;
    /// Gives a file one more name.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;
    /// The number of the file with this name; links are not followed.
    fn inode(&self, path: &Path) -> Result<u64>;
}

/// A directory, and who makes the calls there.
#[derive(Clone)]
pub struct Place {
    /// The calls.
    pub calls: Arc<dyn Calls>,
    /// The directory.
    pub dir: PathBuf,
}

impl Place {
    /// A directory of this machine.
    pub fn local(dir: &Path) -> Self {
        Self { calls: Arc::new(System), dir: dir.to_owned() }
    }

    /// A place below.
    pub fn join(&self, name: &str) -> Self {
        Self { calls: self.calls.clone(), dir: self.dir.join(name) }
    }

    /// Opens a file of the directory.
    pub fn open(&self, name: &str, how: How) -> crate::Outcome<Box<dyn OpenFile>> {
        let path = self.dir.join(name);
        self.calls.open(&path, how).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// The operating system.
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
        // A short write would be for the program to go on with.
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
