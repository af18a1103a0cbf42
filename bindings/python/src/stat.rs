//! Attributes of a file.

use pyo3::prelude::*;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use weir_types::{Attr, FileKind, Timestamp};

/// Attributes of a file, named as in `os.stat_result`.
#[pyclass(frozen, get_all, module = "weir")]
pub(crate) struct Stat {
    /// "file", "directory", "link" or "other".
    r#type: &'static str,
    /// Size, bytes.
    size: u64,
    /// Type and permission bits, as `st_mode`.
    mode: u32,
    /// Owner.
    uid: u32,
    /// Group.
    gid: u32,
    /// Number of hard links.
    nlink: u32,
    /// Inode number.
    ino: u64,
    /// Last access, seconds since 1970.
    atime: f64,
    /// Last modification of the contents.
    mtime: f64,
    /// Last change of contents or attributes.
    ctime: f64,
}

#[pymethods]
impl Stat {
    fn __repr__(&self) -> String {
        format!("weir.Stat(type='{}', size={}, mode={:#o})", self.r#type, self.size, self.mode)
    }
}

impl From<&Attr> for Stat {
    fn from(attr: &Attr) -> Self {
        let directory = attr.kind == FileKind::Directory;
        Self {
            r#type: match attr.kind {
                FileKind::File => "file",
                FileKind::Directory => "directory",
                FileKind::Symlink => "link",
                _ => "other",
            },
            size: if directory { 0 } else { attr.size },
            mode: attr.kind.mode_bits() | u32::from(attr.mode),
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink,
            ino: attr.file.0,
            atime: seconds(attr.atime),
            mtime: seconds(attr.mtime),
            ctime: seconds(attr.ctime),
        }
    }
}

fn seconds(time: Timestamp) -> f64 {
    time.seconds() as f64 + f64::from(time.nanos()) * 1e-9
}

/// Converts names and attributes for Python.
pub(crate) fn shown(found: Vec<(Vec<u8>, Attr)>) -> Vec<(OsString, Stat)> {
    let one = |(name, attr): (Vec<u8>, Attr)| (OsString::from_vec(name), Stat::from(&attr));
    found.into_iter().map(one).collect()
}
