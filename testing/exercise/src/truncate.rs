//! `truncate` of a path, which the standard library has only for open files.

use rustix::io::Errno;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `truncate(2)`.
pub fn truncate(path: &Path, len: u64) -> Result<(), Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let len = i64::try_from(len).map_err(|_| Errno::INVAL)?;
    // SAFETY: `path` is a string with a NUL at its end, and lives until the call is over.
    if unsafe { libc::truncate(path.as_ptr(), len) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
