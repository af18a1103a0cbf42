//! Carries out the calls.

use super::model::Op;
use crate::Outcome;
use crate::truncate::truncate;
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;

/// The result of a call.
pub enum Done {
    /// The call succeeded.
    Yes,
    /// The file system does not support the call.
    Refused,
    /// The bytes read.
    Read(Vec<u8>),
    /// The found offset, if any.
    Found(Option<u64>),
}

/// The file, open through one mount.
pub struct OpenFile {
    path: PathBuf,
    file: File,
    append: File,
}

impl OpenFile {
    /// Opens the file twice: for offsets, and for appending.
    pub fn open(path: &Path) -> Outcome<Self> {
        let open = |append| OpenOptions::new().read(true).write(true).append(append).open(path);
        let failed = |e| format!("{}: {e}", path.display());
        Ok(Self {
            path: path.to_owned(),
            file: open(false).map_err(failed)?,
            append: open(true).map_err(failed)?,
        })
    }

    /// Size, and modification time of the contents.
    pub fn attributes(&self) -> Outcome<(u64, (i64, i64))> {
        let metadata = self.file.metadata().map_err(|e| format!("fstat: {e}"))?;
        Ok((metadata.len(), (metadata.mtime(), metadata.mtime_nsec())))
    }

    /// Makes one call; `data` is for writes.
    pub fn perform(&mut self, op: &Op, data: &[u8]) -> Outcome<Done> {
        let failed = |e: std::io::Error| format!("{op:?}: {e}");
        match *op {
            Op::Write { at, .. } => self.file.write_all_at(data, at).map_err(failed)?,
            Op::Append { .. } => self.append.write_all(data).map_err(failed)?,
            Op::Read { at, len } => return self.read(at, len).map(Done::Read).map_err(failed),
            Op::Truncate { to, by_path: false } => self.file.set_len(to).map_err(failed)?,
            Op::Truncate { to, by_path: true } => {
                truncate(&self.path, to).map_err(|e| failed(e.into()))?;
            }
            Op::Allocate { at, len, keep_size } => {
                return self.fallocate(op, keep(keep_size), at, len);
            }
            Op::Punch { at, len } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                return self.fallocate(op, flags, at, len);
            }
            Op::Zero { at, len, keep_size } => {
                return self.fallocate(op, FallocateFlags::ZERO_RANGE | keep(keep_size), at, len);
            }
            Op::MapRead { at, len } => {
                let map = Map::new(&self.file, at, len, false).map_err(failed)?;
                return Ok(Done::Read(map.read()));
            }
            Op::MapWrite { at, len, sync } => {
                let map = Map::new(&self.file, at, len, true).map_err(failed)?;
                map.write(data);
                if sync {
                    map.sync().map_err(failed)?;
                }
            }
            Op::Copy { from, to, len } => self.copy(from, to, len).map_err(failed)?,
            Op::SeekData { at } => return self.seek(op, SeekFrom::Data(at)),
            Op::SeekHole { at } => return self.seek(op, SeekFrom::Hole(at)),
            Op::Reopen => *self = Self::open(&self.path)?,
            Op::Sync { data_only: true } => self.file.sync_data().map_err(failed)?,
            Op::Sync { data_only: false } => self.file.sync_all().map_err(failed)?,
        }
        Ok(Done::Yes)
    }

    fn read(&self, at: u64, len: u64) -> std::io::Result<Vec<u8>> {
        let mut data = vec![0; len as usize];
        let mut done = 0;
        while done < data.len() {
            match self.file.read_at(&mut data[done..], at + done as u64)? {
                0 => break,
                n => done += n,
            }
        }
        data.truncate(done);
        Ok(data)
    }

    fn fallocate(&self, op: &Op, flags: FallocateFlags, at: u64, len: u64) -> Outcome<Done> {
        match fallocate(&self.file, flags, at, len) {
            Ok(()) => Ok(Done::Yes),
            Err(Errno::OPNOTSUPP) => Ok(Done::Refused),
            Err(e) => Err(format!("{op:?}: {e}")),
        }
    }

    fn seek(&self, op: &Op, to: SeekFrom) -> Outcome<Done> {
        match seek(&self.file, to) {
            Ok(found) => Ok(Done::Found(Some(found))),
            Err(Errno::NXIO) => Ok(Done::Found(None)),
            Err(e) => Err(format!("{op:?}: {e}")),
        }
    }

    fn copy(&self, mut from: u64, mut to: u64, len: u64) -> std::io::Result<()> {
        let end = from + len;
        // As `cp` does. The kernel copies up to the size that it knows, and does not ask the file
        // system for it.
        let size = self.file.metadata()?.len();
        if size < end {
            return Err(std::io::Error::other(format!("fstat before copying: size is {size}")));
        }
        while from < end {
            let left = (end - from) as usize;
            let (source, target) = (Some(&mut from), Some(&mut to));
            if copy_file_range(&self.file, source, &self.file, target, left)? == 0 {
                return Err(std::io::Error::other(format!("nothing to copy at {from}")));
            }
        }
        Ok(())
    }
}

fn keep(keep_size: bool) -> FallocateFlags {
    if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() }
}

/// A shared mapping of the pages that contain a range.
struct Map {
    start: *mut c_void,
    map_len: usize,
    /// Offset of the range within the mapping.
    skip: usize,
    len: usize,
}

impl Map {
    fn new(file: &File, at: u64, len: u64, write: bool) -> std::io::Result<Self> {
        // As programs do before they map. An access beyond the size raises SIGBUS.
        let size = file.metadata()?.len();
        if size < at + len {
            return Err(std::io::Error::other(format!("fstat before mmap: size is {size}")));
        }
        let skip = at % PAGE;
        let map_len = (skip + len) as usize;
        let protection = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            mmap(std::ptr::null_mut(), map_len, protection, MapFlags::SHARED, file, at - skip)?
        };
        Ok(Self { start, map_len, skip: skip as usize, len: len as usize })
    }

    fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        // SAFETY: `skip + len` bytes are mapped for reading and lie within the file: the caller's
        // model guarantees it, and nobody else changes the file meanwhile. No Rust reference to
        // them exists.
        unsafe {
            let from = self.start.cast::<u8>().add(self.skip);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), self.len);
        }
        bytes
    }

    fn write(&self, data: &[u8]) {
        let len = data.len().min(self.len);
        // SAFETY: as in `read`; the mapping was made for writing.
        unsafe {
            let to = self.start.cast::<u8>().add(self.skip);
            std::ptr::copy_nonoverlapping(data.as_ptr(), to, len);
        }
    }

    fn sync(&self) -> std::io::Result<()> {
        // SAFETY: the mapping exists until `drop`.
        unsafe { msync(self.start, self.map_len, MsyncFlags::SYNC)? };
        Ok(())
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, unmapped once, and not used afterwards.
        let _ = unsafe { munmap(self.start, self.map_len) };
    }
}
