//! The calls of concurrent callers.

use super::{checked, done, list, stat_of, text};
use std::io::Result;
use std::path::Path;
use weir::files::{weir_close, weir_fstat, weir_ftruncate, weir_open};
use weir::handles::{weir_file_t, weir_fs_t};
use weir::io::{weir_append, weir_pread, weir_pwrite};
use weir::names::{weir_link, weir_mkdir, weir_rename, weir_rmdir, weir_stat_t, weir_unlink};
use weir_exercise::concurrent::{Calls, How, OpenFile};

/// A connection to a cluster.
pub struct CCalls(pub weir_fs_t);

struct CFile(weir_file_t);

impl Calls for CCalls {
    fn open(&self, path: &Path, how: How) -> Result<Box<dyn OpenFile>> {
        let (path, mut file) = (text(path), 0);
        let flags = match how {
            How::Existing => 0,
            How::Append => libc::O_APPEND,
            How::Empty => libc::O_CREAT | libc::O_TRUNC,
            How::New => libc::O_CREAT | libc::O_EXCL,
        };
        let flags = libc::O_RDWR | flags;
        // SAFETY: path and place live until it returns.
        done(unsafe { weir_open(self.0, path.as_ptr(), flags, 0o600, &mut file) })?;
        Ok(Box::new(CFile(file)))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        // SAFETY: the path lives until it returns.
        Ok(done(unsafe { weir_mkdir(self.0, text(path).as_ptr(), 0o700) })?)
    }

    fn remove_dir_all(&self, path: &Path) -> Result<()> {
        for (name, _) in list(self.0, &text(path))? {
            self.unlink(&path.join(name))?;
        }
        // SAFETY: the path lives until it returns.
        Ok(done(unsafe { weir_rmdir(self.0, text(path).as_ptr()) })?)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        // SAFETY: the path lives until it returns.
        Ok(done(unsafe { weir_unlink(self.0, text(path).as_ptr()) })?)
    }

    fn rename(&self, from: &Path, to: &Path, keep: bool) -> Result<()> {
        let flags = if keep { libc::RENAME_NOREPLACE } else { 0 };
        let (from, to) = (text(from), text(to));
        // SAFETY: the paths live until it returns.
        Ok(done(unsafe { weir_rename(self.0, from.as_ptr(), to.as_ptr(), flags) })?)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        // SAFETY: the paths live until it returns.
        Ok(done(unsafe { weir_link(self.0, text(from).as_ptr(), text(to).as_ptr()) })?)
    }

    fn inode(&self, path: &Path) -> Result<u64> {
        Ok(stat_of(self.0, &text(path), false)?.ino)
    }
}

impl CFile {
    fn stat(&self) -> Result<weir_stat_t> {
        let mut stat = weir_stat_t::default();
        // SAFETY: the place lives until it returns.
        done(unsafe { weir_fstat(self.0, &mut stat) })?;
        Ok(stat)
    }
}

impl OpenFile for CFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        // SAFETY: the memory lives until it returns.
        let read = unsafe { weir_pread(self.0, buffer.as_mut_ptr().cast(), buffer.len(), offset) };
        Ok(checked(read)? as usize)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        // SAFETY: the memory lives until it returns.
        let written = unsafe { weir_pwrite(self.0, data.as_ptr().cast(), data.len(), offset) };
        assert_eq!(checked(written)?, data.len() as u64);
        Ok(())
    }

    fn append(&self, data: &[u8]) -> Result<()> {
        let at = std::ptr::null_mut();
        // SAFETY: the memory lives until it returns.
        Ok(done(unsafe { weir_append(self.0, data.as_ptr().cast(), data.len(), at) })?)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        Ok(done(weir_ftruncate(self.0, len))?)
    }

    fn size(&self) -> Result<u64> {
        Ok(self.stat()?.size)
    }

    /// `weir_seek` cannot find the end of a file; `weir_fstat` has it.
    fn end(&self) -> Result<u64> {
        self.size()
    }

    fn inode(&self) -> Result<u64> {
        Ok(self.stat()?.ino)
    }
}

impl Drop for CFile {
    fn drop(&mut self) {
        weir_close(self.0);
    }
}
