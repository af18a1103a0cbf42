//! Names, attributes and files by path through the C interface, for the exercises of
//! `weir-exercise`.
#![allow(dead_code, clippy::unwrap_used)] // Each test program uses its part; a panic fails it.

mod calls;
mod tree;

pub use calls::CCalls;
pub use tree::CTree;

use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weir::dirs::{WEIR_NAME_BYTES, weir_closedir, weir_dirent_t, weir_opendir, weir_readdir};
use weir::handles::weir_fs_t;
use weir::names::{weir_lstat, weir_stat, weir_stat_t};

/// The result of a call, or its error.
fn checked(result: i64) -> Result<u64, Errno> {
    u64::try_from(result).map_err(|_| Errno::from_raw_os_error(-result as i32))
}

fn done(result: i32) -> Result<(), Errno> {
    checked(result.into()).map(drop)
}

fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn stat_of(fs: weir_fs_t, path: &CStr, follow: bool) -> Result<weir_stat_t, Errno> {
    let mut stat = weir_stat_t::default();
    let call = if follow { weir_stat } else { weir_lstat };
    // SAFETY: path and place live until it returns.
    done(unsafe { call(fs, path.as_ptr(), &mut stat) })?;
    Ok(stat)
}

/// All entries, in the order of the directory.
fn list(fs: weir_fs_t, path: &CStr) -> Result<Vec<(String, weir_stat_t)>, Errno> {
    let mut dir = 0;
    // SAFETY: path and place live until it returns.
    done(unsafe { weir_opendir(fs, path.as_ptr(), &mut dir) })?;
    let mut entry =
        weir_dirent_t { name: [0; WEIR_NAME_BYTES], has_stat: 0, stat: weir_stat_t::default() };
    let mut entries = Vec::new();
    // SAFETY: the place lives until it returns.
    while checked(unsafe { weir_readdir(dir, &mut entry) }.into())? == 1 {
        // SAFETY: the name ends with a zero byte.
        let name = unsafe { CStr::from_ptr(entry.name.as_ptr()) };
        entries.push((name.to_str().unwrap().to_owned(), entry.stat));
        // An entry with unknown attributes has only its kind and number.
        assert!(entry.has_stat == 1 || entry.stat.mode & 0o7777 == 0);
    }
    done(weir_closedir(dir))?;
    Ok(entries)
}
