//! Files of this machine that are held by a descriptor. Owner, mode, times and attributes are set
//! through it, since the owner of the directory might put a link in the file's place.

use crate::failure::{Done, Failure};
use crate::files::near::Near;
use crate::files::tree::{Held, Keep, Meta, PRIVILEGE, Xattrs};
use rustix::fs::{CWD, Mode, OFlags, Timespec, Timestamps, XattrFlags, openat};
use rustix::io::Errno;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, fchown};
use std::path::{Path, PathBuf};
use weir_types::{FileKind, Timestamp};

/// The device and inode of a file.
pub fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|m| (m.dev(), m.ino()))
}

/// A file whose bytes are not opened: a directory, symbolic link or device.
pub struct LocalNode {
    /// A descriptor of the path alone (`O_PATH`).
    file: File,
    /// A path to the file itself that stays valid even if the file's name changes. It does not
    /// follow a symbolic link.
    by: PathBuf,
    path: PathBuf,
}

impl LocalNode {
    /// Opens a file. Follows no symbolic link.
    pub fn hold(path: &Path, near: &Near) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, near.path(), flags, Mode::empty())?);
        let by = Path::new("/proc/self/fd").join(file.as_raw_fd().to_string());
        Ok(Self { file, by, path: path.to_owned() })
    }

    /// The attributes that can be copied. They are read through a path, since the kernel does not
    /// permit this with an `O_PATH` descriptor.
    pub fn xattrs(&self) -> io::Result<Xattrs> {
        let by = &self.by;
        let names = bytes(rustix::fs::listxattr_query(by), |to| rustix::fs::listxattr(by, to));
        each(names, |name| {
            bytes(rustix::fs::getxattr_query(by, name), |to| rustix::fs::getxattr(by, name, to))
        })
    }

    /// The kind of the file.
    pub fn kind(&self) -> io::Result<Option<FileKind>> {
        self.file.metadata().map(|m| FileKind::from_mode(m.mode()))
    }
}

/// The system calls that depend on how a file is held.
struct Calls<'a> {
    chown: &'a dyn Fn(u32, u32) -> io::Result<()>,
    chmod: &'a dyn Fn(Permissions) -> io::Result<()>,
    times: &'a dyn Fn(&Timestamps) -> io::Result<()>,
}

impl Calls<'_> {
    fn set_meta(&self, meta: &Meta, keep: Keep) -> io::Result<bool> {
        // The owner comes first, because a change of owner clears setuid and setgid.
        let (mut mode, mut is_kept) = (meta.mode, true);
        if keep.owner {
            match (self.chown)(meta.uid, meta.gid) {
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    mode &= !PRIVILEGE;
                    is_kept = false;
                }
                done => done?,
            }
        }
        if keep.mode && meta.kind != FileKind::Symlink {
            (self.chmod)(Permissions::from_mode(u32::from(mode)))?;
        }
        if keep.times {
            let time =
                |t: Timestamp| Timespec { tv_sec: t.seconds(), tv_nsec: i64::from(t.nanos()) };
            let (last_access, last_modification) = (time(meta.atime), time(meta.mtime));
            (self.times)(&Timestamps { last_access, last_modification })?;
        }
        Ok(is_kept)
    }
}

impl Held for LocalNode {
    fn identity(&self) -> Done<(u64, u64)> {
        identity(&self.file).map_err(|e| Failure::file(&self.path, e))
    }

    fn set_meta(&self, meta: &Meta, keep: Keep) -> Done<bool> {
        let by = &self.by;
        let calls = Calls {
            chown: &|uid, gid| chown(by, Some(uid), Some(gid)),
            chmod: &|mode| std::fs::set_permissions(by, mode),
            times: &|times| {
                Ok(rustix::fs::utimensat(CWD, by, times, rustix::fs::AtFlags::empty())?)
            },
        };
        calls.set_meta(meta, keep).map_err(|e| Failure::file(&self.path, e))
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Done<bool> {
        let done = rustix::fs::setxattr(&self.by, name, value, XattrFlags::empty());
        is_set(done, name).map_err(|e| Failure::file(&self.path, e))
    }

    fn remove_xattr(&self, name: &[u8]) -> Done {
        is_removed(rustix::fs::removexattr(&self.by, name))
            .map_err(|e| Failure::file(&self.path, e))
    }
}

/// Sets owner, mode and times of an open file. Returns whether the owner could be set.
pub fn set_meta(file: &File, meta: &Meta, keep: Keep) -> io::Result<bool> {
    let calls = Calls {
        chown: &|uid, gid| fchown(file, Some(uid), Some(gid)),
        chmod: &|mode| file.set_permissions(mode),
        times: &|times| Ok(rustix::fs::futimens(file, times)?),
    };
    calls.set_meta(meta, keep)
}

/// Sets an attribute of an open file; `false` if the file system does not support it.
pub fn set_xattr(file: &File, name: &[u8], value: &[u8]) -> io::Result<bool> {
    is_set(rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()), name)
}

/// Removes an attribute of an open file if it has it.
pub fn remove_xattr(file: &File, name: &[u8]) -> io::Result<()> {
    is_removed(rustix::fs::fremovexattr(file, name))
}

/// The attributes of an open file that can be copied.
pub fn xattrs(file: &File) -> io::Result<Xattrs> {
    let names = bytes(rustix::fs::flistxattr_query(file), |to| rustix::fs::flistxattr(file, to));
    each(names, |name| {
        bytes(rustix::fs::fgetxattr_query(file, name), |to| rustix::fs::fgetxattr(file, name, to))
    })
}

/// Calls `get` with a buffer of `len` bytes.
fn bytes(
    len: Result<usize, Errno>,
    get: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; len?];
    // A call with an empty buffer would only return the size again.
    let len = if bytes.is_empty() { 0 } else { get(&mut bytes)? };
    bytes.truncate(len);
    Ok(bytes)
}

/// The values of all named attributes that can be copied.
fn each(
    names: Result<Vec<u8>, Errno>,
    value: impl Fn(&[u8]) -> Result<Vec<u8>, Errno>,
) -> io::Result<Xattrs> {
    let names = match names {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        names => names?,
    };
    let names = names.split(|b| *b == 0).filter(|name| can_be_copied(name));
    names.map(|name| Ok((name.to_vec(), value(name)?))).collect()
}

/// Whether an attribute can be copied. Security labels cannot: the machine's policy gives them to
/// new files.
fn can_be_copied(name: &[u8]) -> bool {
    !name.is_empty() && name != b"security.selinux"
}

fn is_set(done: Result<(), Errno>, name: &[u8]) -> io::Result<bool> {
    match done {
        Err(Errno::OPNOTSUPP) => Ok(false),
        // Only the superuser may set attributes of other classes.
        Err(Errno::PERM) if !name.starts_with(b"user.") => Ok(false),
        done => Ok(done.map(|()| true)?),
    }
}

fn is_removed(done: Result<(), Errno>) -> io::Result<()> {
    match done {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        done => Ok(done?),
    }
}
