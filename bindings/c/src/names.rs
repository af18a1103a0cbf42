//! Names and attributes by path.

use crate::args::{bytes_mut, check_place, put, range, text};
use crate::error::{guard, invalid, status};
use crate::handles::{self, weir_fs_t};
use crate::session::Connection;
use std::ffi::{c_char, c_int, c_void};
use weir_client::{Client, set_nothing};
use weir_types::{Attr, Error, ErrorKind, FileId, FileKind, Result, Timestamp};
use weir_wire::capability::Rights;
use weir_wire::meta::{RenameRequest, SetAttrRequest, SetTime};

/// Attributes of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct weir_stat_t {
    /// The inode number.
    pub ino: u64,
    /// Kind and permission bits, as `st_mode`.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size, bytes.
    pub size: u64,
    /// Last access, nanoseconds since 1970.
    pub atime_ns: i64,
    /// Last change of the contents.
    pub mtime_ns: i64,
    /// Last change of contents or attributes.
    pub ctime_ns: i64,
    /// Grows at each change of the file or directory.
    pub change: u64,
    /// Preferred size of calls, bytes: one whole stripe if the layout is known.
    pub preferred_io_bytes: u32,
    /// Device number of device files.
    pub rdev: u32,
}

pub(crate) fn stat_of(attr: &Attr) -> weir_stat_t {
    weir_stat_t {
        ino: attr.file.0,
        mode: attr.kind.mode_bits() | u32::from(attr.mode),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        atime_ns: attr.atime.0,
        mtime_ns: attr.mtime.0,
        ctime_ns: attr.ctime.0,
        change: attr.change,
        preferred_io_bytes: attr.preferred_io_bytes,
        rdev: attr.rdev,
    }
}

/// A path in a connected cluster.
pub(crate) struct Named<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) client: &'a Client,
    pub(crate) path: &'a [u8],
}

impl<'a> Named<'a> {
    pub(crate) fn attr(&self, follow: bool) -> Result<Attr> {
        self.client.resolve(&self.connection.context, self.path, follow)
    }

    /// The path of the parent directory, and the last part of the path.
    pub(crate) fn split(&self) -> (&'a [u8], &'a [u8]) {
        let end = self.path.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1);
        let begin = self.path[..end].iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        (&self.path[..begin], &self.path[begin..end])
    }

    /// Whether the path is below a directory, at any depth.
    fn is_below(&self, directory: FileId) -> Result<bool> {
        let mut above = self.split().0.to_vec();
        loop {
            let attr = self.client.resolve(&self.connection.context, &above, true)?;
            if attr.file == directory || attr.file == FileId::ROOT {
                return Ok(attr.file == directory);
            }
            above.extend_from_slice(b"/..");
        }
    }

    /// The parent directory, and the last part of the path.
    pub(crate) fn parent(&self) -> Result<(FileId, &'a [u8])> {
        let (dir, name) = self.split();
        if name.is_empty() || name == b"." || name == b".." {
            return Err(invalid("the path has no name at its end"));
        }
        let dir = self.client.resolve(&self.connection.context, dir, true)?;
        // Checked here, so that of two paths the first one's error is reported.
        match dir.kind {
            FileKind::Directory => Ok((dir.file, name)),
            _ => Err(ErrorKind::NotDirectory.into()),
        }
    }

    /// Adds the path to an error.
    pub(crate) fn about<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| e.context(String::from_utf8_lossy(self.path)))
    }
}

/// Runs a function with a path.
///
/// # Safety
/// `path` is NULL or a text of C.
pub(crate) unsafe fn with_path<T>(
    fs: weir_fs_t,
    path: *const c_char,
    run: impl FnOnce(&Named<'_>) -> Result<T>,
) -> Result<T> {
    // SAFETY: by the contract of this function.
    let path = unsafe { text(path, "path") }?;
    let connection = handles::get::<Connection>(fs)?;
    let session = connection.session()?;
    let named = Named { connection: &connection, client: &session.client, path };
    named.about(run(&named))
}

/// Attributes of the file at a path. Symbolic links are followed.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_stat(
    fs: weir_fs_t,
    path: *const c_char,
    stat: *mut weir_stat_t,
) -> c_int {
    // SAFETY: by the contract of this function.
    status(|| unsafe { stat_path(fs, path, true, stat) })
}

/// As `weir_stat`, without following a link at the end of the path.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_lstat(
    fs: weir_fs_t,
    path: *const c_char,
    stat: *mut weir_stat_t,
) -> c_int {
    // SAFETY: by the contract of this function.
    status(|| unsafe { stat_path(fs, path, false, stat) })
}

unsafe fn stat_path(
    fs: weir_fs_t,
    path: *const c_char,
    follow: bool,
    stat: *mut weir_stat_t,
) -> Result<()> {
    // SAFETY: by the contract of the caller.
    let attr = unsafe { with_path(fs, path, |named| named.attr(follow)) }?;
    // SAFETY: as above.
    unsafe { put(stat, stat_of(&attr), "stat") }
}

/// Truncates or extends a file.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_truncate(fs: weir_fs_t, path: *const c_char, size: u64) -> c_int {
    let run = |named: &Named<'_>| {
        range(0, size)?;
        let ctx = &named.connection.context;
        let (file, _) = named.client.open(ctx, named.attr(true)?.file, Rights::WRITE)?;
        file.truncate(ctx, size)?;
        file.close(ctx)
    };
    // SAFETY: by the contract of this function.
    status(|| unsafe { with_path(fs, path, run) })
}

/// Makes a directory. The umask is not applied to `mode`.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_mkdir(fs: weir_fs_t, path: *const c_char, mode: u32) -> c_int {
    let run = |named: &Named<'_>| {
        let (dir, name) = named.parent()?;
        named.client.mkdir(&named.connection.context, dir, name, bits(mode)?).map(drop)
    };
    // SAFETY: by the contract of this function.
    status(|| unsafe { with_path(fs, path, run) })
}

fn bits(mode: u32) -> Result<u16> {
    match mode <= 0o7777 {
        true => Ok(mode as u16),
        false => Err(invalid(format!("mode {mode:#o} has more than permission bits"))),
    }
}

/// Removes an empty directory.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_rmdir(fs: weir_fs_t, path: *const c_char) -> c_int {
    let run = |named: &Named<'_>| {
        let (dir, name) = named.parent()?;
        named.client.rmdir(&named.connection.context, dir, name)
    };
    // SAFETY: by the contract of this function.
    status(|| unsafe { with_path(fs, path, run) })
}

/// Removes a name of anything but a directory.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_unlink(fs: weir_fs_t, path: *const c_char) -> c_int {
    let run = |named: &Named<'_>| {
        let (dir, name) = named.parent()?;
        named.client.unlink(&named.connection.context, dir, name).map(drop)
    };
    // SAFETY: by the contract of this function.
    status(|| unsafe { with_path(fs, path, run) })
}

/// Renames a file or directory, replacing an existing one. `flags`: 0, RENAME_NOREPLACE or
/// RENAME_EXCHANGE.
///
/// # Safety
/// The paths are NULL or texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_rename(
    fs: weir_fs_t,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    status(|| {
        if ![0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE].contains(&flags) {
            return Err(invalid(format!("rename: flags {flags:#x} are not known")));
        }
        // SAFETY: by the contract of this function.
        let to = unsafe { text(to, "to") }?;
        let run = |from: &Named<'_>| {
            let to = Named { path: to, ..*from };
            let ((parent, name), (new_parent, new_name)) = (from.parent()?, to.parent()?);
            let request = RenameRequest {
                parent,
                name: name.into(),
                new_parent,
                new_name: new_name.into(),
                no_replace: flags == libc::RENAME_NOREPLACE,
                exchange: flags == libc::RENAME_EXCHANGE,
                whiteout: false,
                hold: false,
            };
            let renamed = from.client.rename(&from.connection.context, &request);
            let Err(error) = renamed else { return Ok(()) };
            // As on Linux, a directory that contains the file counts as not empty.
            let onto_directory = error.kind == ErrorKind::IsDirectory;
            match onto_directory && from.is_below(to.attr(false)?.file)? {
                true => Err(ErrorKind::NotEmpty.into()),
                false => Err(error),
            }
        };
        // SAFETY: by the contract of this function.
        unsafe { with_path(fs, from, run) }
    })
}

/// Makes a hard link.
///
/// # Safety
/// The paths are NULL or texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_link(
    fs: weir_fs_t,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: by the contract of this function.
        let path = unsafe { text(path, "path") }?;
        let run = |new: &Named<'_>| {
            let old = Named { path, ..*new };
            // In this order, as `link` does: errors of the file are reported first.
            let file = old.attr(false)?.file;
            let (dir, name) = new.parent()?;
            new.client.link(&new.connection.context, file, dir, name).map(drop)
        };
        // SAFETY: by the contract of this function.
        unsafe { with_path(fs, name, run) }
    })
}

/// Makes a symbolic link.
///
/// # Safety
/// Both are NULL or texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_symlink(
    fs: weir_fs_t,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: by the contract of this function.
        let target = unsafe { text(target, "target") }?;
        let run = |named: &Named<'_>| {
            let (dir, name) = named.parent()?;
            named.client.symlink(&named.connection.context, dir, name, target).map(drop)
        };
        // SAFETY: by the contract of this function.
        unsafe { with_path(fs, path, run) }
    })
}

/// Stores the target of a symbolic link, without a final zero byte, and returns its length.
/// `-ERANGE` if it does not fit.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_readlink(
    fs: weir_fs_t,
    path: *const c_char,
    buffer: *mut c_char,
    len: usize,
) -> i64 {
    let run = |named: &Named<'_>| {
        let file = named.attr(false)?.file;
        named.client.readlink(&named.connection.context, file)
    };
    guard(|| {
        // SAFETY: by the contract of this function.
        let said = unsafe { with_path(fs, path, run) }?;
        // SAFETY: as above.
        fill(&said, unsafe { bytes_mut(buffer.cast::<c_void>(), len, "buffer") }?)
    })
}

/// Copies a value, which must fit unless there is no room at all; returns its length.
pub(crate) fn fill(value: &[u8], room: &mut [u8]) -> Result<i64> {
    let size = room.len();
    if let Some(room) = room.get_mut(..value.len()) {
        room.copy_from_slice(value);
    } else if size > 0 {
        let text = format!("{} bytes do not fit into {size}", value.len());
        return Err(Error::new(ErrorKind::AttributeRange, text));
    }
    Ok(value.len() as i64)
}

/// Sets permission bits.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_chmod(fs: weir_fs_t, path: *const c_char, mode: u32) -> c_int {
    let change = |none| Ok(SetAttrRequest { mode: Some(bits(mode)?), ..none });
    // SAFETY: by the contract of this function.
    status(|| unsafe { set(fs, path, change) })
}

/// Sets owner and group. UINT32_MAX leaves one of them unchanged.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_chown(
    fs: weir_fs_t,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    let given = |id: u32| (id != u32::MAX).then_some(id);
    let change = |none| Ok(SetAttrRequest { uid: given(uid), gid: given(gid), ..none });
    // SAFETY: by the contract of this function.
    status(|| unsafe { set(fs, path, change) })
}

/// Sets the times of access and modification, nanoseconds since 1970.
///
/// # Safety
/// `path` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_utime(
    fs: weir_fs_t,
    path: *const c_char,
    atime_ns: i64,
    mtime_ns: i64,
) -> c_int {
    let at = |ns| Some(SetTime::At(Timestamp(ns)));
    let change = |none| Ok(SetAttrRequest { atime: at(atime_ns), mtime: at(mtime_ns), ..none });
    // SAFETY: by the contract of this function.
    status(|| unsafe { set(fs, path, change) })
}

unsafe fn set(
    fs: weir_fs_t,
    path: *const c_char,
    change: impl FnOnce(SetAttrRequest) -> Result<SetAttrRequest>,
) -> Result<()> {
    let run = |named: &Named<'_>| {
        let request = change(set_nothing(named.attr(true)?.file))?;
        named.client.setattr(&named.connection.context, &request).map(drop)
    };
    // SAFETY: by the contract of the caller.
    unsafe { with_path(fs, path, run) }
}

/// Space of a file system.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct weir_space_t {
    /// Total space, bytes.
    pub total_bytes: u64,
    /// Free space, bytes.
    pub free_bytes: u64,
    /// Maximum number of files.
    pub total_files: u64,
    /// Number of further files that can be created.
    pub free_files: u64,
}

/// Space of the file system, or what the quotas of directories leave at a path.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_statfs(
    fs: weir_fs_t,
    path: *const c_char,
    space: *mut weir_space_t,
) -> c_int {
    let run = |named: &Named<'_>| {
        let file = named.attr(true)?.file;
        named.client.statfs(&named.connection.context, file)
    };
    status(|| {
        check_place(space, "space")?;
        // SAFETY: by the contract of this function.
        let of = unsafe { with_path(fs, path, run) }?;
        let found = weir_space_t {
            total_bytes: of.total_bytes,
            free_bytes: of.free_bytes,
            total_files: of.total_files,
            free_files: of.free_files,
        };
        // SAFETY: by the contract of this function.
        unsafe { put(space, found, "space") }
    })
}

/// Makes all names and attributes that this process has changed durable.
#[unsafe(no_mangle)]
pub extern "C" fn weir_sync_names(fs: weir_fs_t) -> c_int {
    status(|| {
        let connection = handles::get::<Connection>(fs)?;
        connection.session()?.client.sync_metadata(&connection.context)
    })
}
