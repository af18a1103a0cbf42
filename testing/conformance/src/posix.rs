//! A file of a mounted or local file system, as a subject of the suite.

use crate::Subject;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A file, by path.
pub struct PosixFile {
    path: PathBuf,
    file: File,
}

impl PosixFile {
    /// Makes an empty file.
    pub fn create(path: PathBuf) -> std::io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        Ok(Self { path, file })
    }
}

impl PosixFile {
    fn fallocate(&self, flags: FallocateFlags, offset: u64, len: u64) -> Result<(), String> {
        fallocate(&self.file, flags, offset, len).map_err(|e| format!("{flags:?}: {e}"))
    }

    fn seek(&self, to: SeekFrom) -> Result<Option<u64>, String> {
        match seek(&self.file, to) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(e) => Err(e.to_string()),
        }
    }
}

fn size_flag(keep_size: bool) -> FallocateFlags {
    if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() }
}

impl Subject for PosixFile {
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), String> {
        self.file.write_all_at(data, offset).map_err(|e| e.to_string())
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, String> {
        let mut data = vec![0; len];
        let mut done = 0;
        while done < len {
            match self.file.read_at(&mut data[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) => return Err(e.to_string()),
            }
        }
        data.truncate(done);
        Ok(data)
    }

    fn truncate(&mut self, len: u64) -> Result<(), String> {
        self.file.set_len(len).map_err(|e| e.to_string())
    }

    fn punch(&mut self, offset: u64, len: u64) -> Result<(), String> {
        self.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)
    }

    fn allocate(&mut self, offset: u64, len: u64, keep_size: bool) -> Result<(), String> {
        self.fallocate(size_flag(keep_size), offset, len)
    }

    fn zero(&mut self, offset: u64, len: u64, keep_size: bool) -> Result<(), String> {
        self.fallocate(FallocateFlags::ZERO_RANGE | size_flag(keep_size), offset, len)
    }

    fn next_data(&mut self, offset: u64) -> Result<Option<u64>, String> {
        self.seek(SeekFrom::Data(offset))
    }

    fn next_hole(&mut self, offset: u64) -> Result<Option<u64>, String> {
        self.seek(SeekFrom::Hole(offset))
    }

    fn sync(&mut self) -> Result<(), String> {
        self.file.sync_all().map_err(|e| e.to_string())
    }

    fn size(&mut self) -> Result<u64, String> {
        self.file.metadata().map(|m| m.len()).map_err(|e| e.to_string())
    }

    fn reopen(&mut self) -> Result<(), String> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path);
        self.file = file.map_err(|e| e.to_string())?;
        Ok(())
    }
}
