//! Positions in directories.

use std::ffi::{CStr, CString};
use std::io::{Error, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A directory as the C library reads it.
pub struct Reader(*mut libc::DIR);

impl Reader {
    pub fn open(dir: &Path) -> Result<Self> {
        let name = CString::new(dir.as_os_str().as_bytes())?;
        // SAFETY: a path that ends in zero.
        let opened = unsafe { libc::opendir(name.as_ptr()) };
        if opened.is_null() { Err(Error::last_os_error()) } else { Ok(Self(opened)) }
    }

    /// Where it is, and the name there.
    pub fn next(&self) -> Option<(i64, String)> {
        // SAFETY: open until this is dropped; the entry is used before the next call.
        unsafe {
            let at = libc::telldir(self.0);
            let entry = libc::readdir(self.0).as_ref()?;
            Some((at, CStr::from_ptr(entry.d_name.as_ptr()).to_string_lossy().into_owned()))
        }
    }

    /// The name and the number of the next entry.
    #[allow(dead_code)] // Each test program uses its part.
    pub fn number(&self) -> Option<(String, u64)> {
        // SAFETY: open until this is dropped; the entry is used before the next call.
        unsafe {
            let entry = libc::readdir(self.0).as_ref()?;
            let name = CStr::from_ptr(entry.d_name.as_ptr()).to_string_lossy().into_owned();
            Some((name, entry.d_ino))
        }
    }

    pub fn seek(&self, at: i64) {
        // SAFETY: open until this is dropped.
        unsafe { libc::seekdir(self.0, at) };
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: it was open until now.
        unsafe { libc::closedir(self.0) };
    }
}
