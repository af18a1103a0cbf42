//! Open files.

use crate::{extents, residency, simulated};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, FileType, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags, Result, retry_on_intr};
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

/// An open file.
pub struct File(pub(super) FileKind);

pub(super) enum FileKind {
    Os(OwnedFd),
    Simulated(Arc<dyn simulated::File>),
}

impl File {
    /// The file descriptor; `None` on a simulated machine.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            FileKind::Os(fd) => Some(fd.as_fd()),
            FileKind::Simulated(_) => None,
        }
    }

    /// Reads at a position with one system call; returns 0 at the end. With `nowait` it reads only
    /// from the page cache.
    ///
    /// # Errors
    /// `AGAIN` (with `nowait`), `INTR`, those of the disk.
    pub fn read_at(
        &self,
        into: &mut [IoSliceMut<'_>],
        position: u64,
        nowait: bool,
    ) -> Result<usize> {
        match &self.0 {
            FileKind::Os(fd) => {
                let flags = if nowait { ReadWriteFlags::NOWAIT } else { ReadWriteFlags::empty() };
                rustix::io::preadv2(fd, into, position, flags)
            }
            FileKind::Simulated(file) => file.read_at(into, position, nowait),
        }
    }

    /// Writes at a position with one system call; returns the bytes written.
    ///
    /// # Errors
    /// `INTR`, those of the disk.
    pub fn write_at(&self, bytes: &[IoSlice<'_>], position: u64) -> Result<usize> {
        match &self.0 {
            FileKind::Os(fd) => rustix::io::pwritev(fd, bytes, position),
            FileKind::Simulated(file) => file.write_at(bytes, position),
        }
    }

    /// Reads until `into` is full or the file ends; returns the bytes read.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn read_full(&self, into: &mut [u8], position: u64) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            let mut slices = [IoSliceMut::new(&mut into[done..])];
            match self.read_at(&mut slices, position + done as u64, false) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// Those of the disk; some bytes may have been written.
    pub fn write_full(&self, mut bytes: &[u8], mut position: u64) -> Result<()> {
        while !bytes.is_empty() {
            match self.write_at(&[IoSlice::new(bytes)], position) {
                Ok(0) => return Err(Errno::IO),
                Ok(n) => {
                    bytes = &bytes[n..];
                    position += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Length of the file, bytes.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn size(&self) -> Result<u64> {
        match &self.0 {
            FileKind::Os(fd) => Ok(rustix::fs::fstat(fd)?.st_size as u64),
            FileKind::Simulated(file) => file.size(),
        }
    }

    /// Whether it is a regular file.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn is_regular(&self) -> Result<bool> {
        match &self.0 {
            FileKind::Os(fd) => {
                let mode = rustix::fs::fstat(fd)?.st_mode;
                Ok(FileType::from_raw_mode(mode) == FileType::RegularFile)
            }
            FileKind::Simulated(file) => file.is_regular(),
        }
    }

    /// Truncates or extends the file.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        match &self.0 {
            FileKind::Os(fd) => retry_on_intr(|| rustix::fs::ftruncate(fd, bytes)),
            FileKind::Simulated(file) => file.set_len(bytes),
        }
    }

    /// Reserves space. The file grows only without `keep_size`.
    ///
    /// # Errors
    /// `NOSPC`, `OPNOTSUPP`, those of the disk.
    pub fn allocate(&self, position: u64, bytes: u64, keep_size: bool) -> Result<()> {
        match &self.0 {
            FileKind::Os(fd) => {
                let mut flags = FallocateFlags::empty();
                flags.set(FallocateFlags::KEEP_SIZE, keep_size);
                retry_on_intr(|| rustix::fs::fallocate(fd, flags, position, bytes))
            }
            FileKind::Simulated(file) => file.allocate(position, bytes, keep_size),
        }
    }

    /// Makes a range a hole; the length stays.
    ///
    /// # Errors
    /// `OPNOTSUPP`, those of the disk.
    pub fn punch(&self, position: u64, bytes: u64) -> Result<()> {
        match &self.0 {
            FileKind::Os(fd) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                retry_on_intr(|| rustix::fs::fallocate(fd, flags, position, bytes))
            }
            FileKind::Simulated(file) => file.punch(position, bytes),
        }
    }

    /// Whether space is allocated for a whole range, written or reserved, so that a write there
    /// needs no more. If the file system does not tell, reserved space that was never written
    /// counts as a hole.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn has_room(&self, position: u64, bytes: u64) -> Result<bool> {
        match &self.0 {
            FileKind::Os(fd) => match extents::cover(fd, position, bytes) {
                Err(Errno::OPNOTSUPP) => {
                    // The block that contains the end of the file is allocated to its own end.
                    const BLOCK: u64 = 4096;
                    let hole = self.next_hole(position)?.next_multiple_of(BLOCK);
                    Ok(hole >= position.saturating_add(bytes))
                }
                other => other,
            },
            FileKind::Simulated(file) => file.has_room(position, bytes),
        }
    }

    /// Allocated space, bytes.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn allocated(&self) -> Result<u64> {
        /// The unit of `st_blocks`.
        const UNIT: u64 = 512;
        match &self.0 {
            FileKind::Os(fd) => Ok(rustix::fs::fstat(fd)?.st_blocks.cast_unsigned() * UNIT),
            FileKind::Simulated(file) => file.allocated(),
        }
    }

    /// Allocated ranges from a position on, written or reserved, in order; perhaps not all of them.
    /// An empty list: there are none. The answer does not depend on whether the data is on disk
    /// yet. `None`: the file system does not tell.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn extents(&self, position: u64) -> Result<Option<Vec<Range<u64>>>> {
        match &self.0 {
            FileKind::Os(fd) => extents::extents(fd, position),
            FileKind::Simulated(_) => Ok(None),
        }
    }

    /// The first byte at or after a position that is not in a hole; `None` if there is none.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn next_data(&self, position: u64) -> Result<Option<u64>> {
        match &self.0 {
            FileKind::Os(fd) => match rustix::fs::seek(fd, SeekFrom::Data(position)) {
                Ok(found) => Ok(Some(found)),
                Err(Errno::NXIO) => Ok(None),
                Err(e) => Err(e),
            },
            FileKind::Simulated(file) => file.next_data(position),
        }
    }

    /// The first byte at or after a position that is in a hole or at the end of the file.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn next_hole(&self, position: u64) -> Result<u64> {
        match &self.0 {
            FileKind::Os(fd) => match rustix::fs::seek(fd, SeekFrom::Hole(position)) {
                Err(Errno::NXIO) => Ok(position),
                other => other,
            },
            FileKind::Simulated(file) => file.next_hole(position),
        }
    }

    /// Whether a whole range may be in the page cache or on its way there. Asks without a read,
    /// because even a read with `nowait` makes the kernel fetch missing pages. `true` if the kernel
    /// cannot tell (before Linux 6.5).
    pub fn may_be_cached(&self, position: u64, bytes: u64) -> bool {
        match &self.0 {
            FileKind::Os(fd) => residency::may_be_cached(fd, position, bytes),
            // On a simulated machine a read with `nowait` fetches nothing.
            FileKind::Simulated(_) => true,
        }
    }

    /// A hint that a range will be read soon.
    pub fn will_need(&self, position: u64, bytes: u64) {
        if let FileKind::Os(fd) = &self.0 {
            let bytes = std::num::NonZeroU64::new(bytes);
            let _ = rustix::fs::fadvise(fd, position, bytes, rustix::fs::Advice::WillNeed);
        }
    }

    /// Makes the data and length of the file durable.
    ///
    /// # Errors
    /// Those of the disk. Bytes that were not durable may be lost after an error, and no later sync
    /// reports it.
    ///
    /// # Errors
    /// Those of the disk. What was not durable before may be lost then, and no
    /// later sync tells of it.
    pub fn sync(&self, site: &'static str) -> Result<()> {
        match &self.0 {
            FileKind::Os(fd) => retry_on_intr(|| rustix::fs::fdatasync(fd)),
            FileKind::Simulated(file) => file.sync(site),
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("File")
    }
}
