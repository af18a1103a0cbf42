//! A file of the C interface, for tests.
#![allow(dead_code, clippy::unwrap_used)] // Each test program uses its part; a panic fails it.

use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weir::error::weir_errmsg;
use weir::files::{
    weir_close, weir_create, weir_fallocate, weir_fstat, weir_fsync, weir_ftruncate, weir_open,
    weir_seek,
};
use weir::fs::{weir_connect, weir_options_t};
use weir::handles::weir_fs_t;
use weir::io::{weir_append, weir_pread, weir_pwrite};
use weir::layouts::weir_layout_t;
use weir::names::{weir_stat_t, weir_unlink};
use weir_conformance::Subject;
use weir_types::LayoutSpec;

const KEEP_SIZE: c_int = libc::FALLOC_FL_KEEP_SIZE;

pub fn checked(result: i64) -> Result<u64, String> {
    // SAFETY: the text is valid until the next error of this thread.
    let text = || unsafe { CStr::from_ptr(weir_errmsg()) }.to_string_lossy().into_owned();
    u64::try_from(result).map_err(|_| format!("{result}: {}", text()))
}

pub fn done(result: c_int) -> Result<(), String> {
    checked(result.into()).map(drop)
}

/// A file of the C interface.
pub struct CFile {
    fs: weir_fs_t,
    path: CString,
    file: u64,
}

/// Connects with a credential file.
pub fn connect(credential: &Path, options: &weir_options_t) -> weir_fs_t {
    let place = CString::new(credential.as_os_str().as_bytes()).unwrap();
    let mut fs = 0;
    // SAFETY: all pointers are of values that live until it returns.
    done(unsafe { weir_connect(place.as_ptr(), options, &mut fs) }).unwrap();
    fs
}

impl CFile {
    /// Makes an empty file, replacing an existing one.
    pub fn create(fs: weir_fs_t, path: &str, spec: &LayoutSpec) -> Result<Self, String> {
        let path = CString::new(path).unwrap();
        let mut fragments = spec.fragment_bytes.clone();
        let layout = weir_layout_t {
            kind: spec.kind as u32,
            stripe_unit_bytes: spec.stripe_unit_bytes,
            count: spec.count.into(),
            has_base: spec.base.is_some().into(),
            base: spec.base.unwrap_or(0),
            copies: spec.copies.into(),
            duplication: 0,
            placement: spec.placement as u32,
            segment_bytes: spec.segment_bytes,
            fragment_bytes: fragments.as_mut_ptr(),
            fragments: fragments.len(),
        };
        let (flags, mut file) = (libc::O_RDWR | libc::O_EXCL, 0);
        // SAFETY: all pointers are of values that live until it returns.
        unsafe {
            weir_unlink(fs, path.as_ptr());
            done(weir_create(fs, path.as_ptr(), flags, 0o600, &layout, &mut file))?;
        }
        Ok(Self { fs, path, file })
    }

    /// Opens an existing file.
    pub fn open(fs: weir_fs_t, path: &str) -> Result<Self, String> {
        let path = CString::new(path).unwrap();
        let mut file = 0;
        // SAFETY: all pointers are of values that live until it returns.
        done(unsafe { weir_open(fs, path.as_ptr(), libc::O_RDWR, 0, &mut file) })?;
        Ok(Self { fs, path, file })
    }

    /// Writes all of `data` at the end.
    pub fn append(&mut self, data: &[u8]) -> Result<(), String> {
        let at = std::ptr::null_mut();
        // SAFETY: `data` lives until it returns.
        done(unsafe { weir_append(self.file, data.as_ptr().cast(), data.len(), at) })
    }
}

impl Drop for CFile {
    fn drop(&mut self) {
        weir_close(self.file);
    }
}

impl Subject for CFile {
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), String> {
        // SAFETY: `data` lives until it returns.
        let n = unsafe { weir_pwrite(self.file, data.as_ptr().cast(), data.len(), offset) };
        assert_eq!(checked(n)?, data.len() as u64);
        Ok(())
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, String> {
        let mut data = vec![0xee; len];
        // SAFETY: `data` lives until it returns.
        let n = unsafe { weir_pread(self.file, data.as_mut_ptr().cast(), len, offset) };
        data.truncate(checked(n)? as usize);
        Ok(data)
    }

    fn truncate(&mut self, len: u64) -> Result<(), String> {
        done(weir_ftruncate(self.file, len))
    }

    fn punch(&mut self, offset: u64, len: u64) -> Result<(), String> {
        done(weir_fallocate(self.file, libc::FALLOC_FL_PUNCH_HOLE | KEEP_SIZE, offset, len))
    }

    fn allocate(&mut self, offset: u64, len: u64, keep_size: bool) -> Result<(), String> {
        done(weir_fallocate(self.file, if keep_size { KEEP_SIZE } else { 0 }, offset, len))
    }

    fn zero(&mut self, offset: u64, len: u64, keep_size: bool) -> Result<(), String> {
        let mode = libc::FALLOC_FL_ZERO_RANGE | if keep_size { KEEP_SIZE } else { 0 };
        done(weir_fallocate(self.file, mode, offset, len))
    }

    fn next_data(&mut self, offset: u64) -> Result<Option<u64>, String> {
        found(weir_seek(self.file, offset, libc::SEEK_DATA))
    }

    fn next_hole(&mut self, offset: u64) -> Result<Option<u64>, String> {
        found(weir_seek(self.file, offset, libc::SEEK_HOLE))
    }

    fn sync(&mut self) -> Result<(), String> {
        done(weir_fsync(self.file))
    }

    fn size(&mut self) -> Result<u64, String> {
        let mut stat = weir_stat_t::default();
        // SAFETY: `stat` lives until it returns.
        done(unsafe { weir_fstat(self.file, &mut stat) })?;
        Ok(stat.size)
    }

    fn reopen(&mut self) -> Result<(), String> {
        done(weir_close(self.file))?;
        // SAFETY: path and handle live until it returns.
        done(unsafe { weir_open(self.fs, self.path.as_ptr(), libc::O_RDWR, 0, &mut self.file) })
    }
}

fn found(result: i64) -> Result<Option<u64>, String> {
    match result == -i64::from(libc::ENXIO) {
        true => Ok(None),
        false => checked(result).map(Some),
    }
}
