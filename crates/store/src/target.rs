//! One target: the directory, its identity and its objects.

use crate::directories::Directories;
use crate::listing::Objects;
use crate::object::Object;
use crate::open_files::OpenFiles;
use crate::site::{Site, os_error};
use crate::superblock::{self, SUPERBLOCK, TargetIdentity};
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, FlockOperation, Mode, OFlags, flock, fstatvfs, fsync, mkdirat, openat};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use weir_types::{Error, ErrorKind, FsUsage, ObjectId, Result, TargetId};

/// The directory of objects.
const OBJECTS: &str = "objects";
/// The file whose lock says that a process serves the target.
const LOCK: &str = "lock";

/// How a target is served.
#[derive(Clone, Copy, Debug)]
pub struct TargetOptions {
    /// Objects that are kept open, each with one descriptor. More are open
    /// only while more are in use at once.
    pub max_open_objects: usize,
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self { max_open_objects: 1024 }
    }
}

/// A target that this process serves: a local directory of objects. All of it
/// may be called from many threads.
pub struct Target {
    identity: TargetIdentity,
    directories: Arc<Directories>,
    open_files: OpenFiles,
    _lock: Lock,
}

impl Target {
    /// Makes a directory a target, durably; makes the directory too, if it is
    /// not there.
    ///
    /// Errors: `Exists` if it is a target already, `NotEmpty` if it holds
    /// objects although it is none, `Busy` if it is being served.
    pub fn create(dir: impl AsRef<Path>, identity: TargetIdentity) -> Result<()> {
        let dir = dir.as_ref();
        let context = || format!("make target directory {}", dir.display());
        Self::create_in(dir, identity).map_err(|e| e.context(context()))
    }

    fn create_in(dir: &Path, identity: TargetIdentity) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        let root = open_directory(dir).map_err(os_error)?;
        let _lock = lock_directory(&root)?;
        match superblock::read(&root) {
            Err(e) if e.kind == ErrorKind::NotFound => {}
            Ok(found) => {
                let what = format!("it is target {} already", found.target);
                return Err(Error::new(ErrorKind::Exists, what));
            }
            Err(e) => return Err(e),
        }
        match mkdirat(&root, OBJECTS, Mode::from(0o700)) {
            Err(Errno::EXIST) if !is_empty(&root, OBJECTS).map_err(os_error)? => {
                let what = format!("it holds `{OBJECTS}` but no `{SUPERBLOCK}`");
                return Err(Error::new(ErrorKind::NotEmpty, what));
            }
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(os_error(e).context(format!("make `{OBJECTS}`"))),
        }
        superblock::write(&root, identity)?;
        let parent = openat(&root, "..", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        parent.and_then(fsync).map_err(|e| os_error(e).context("sync its parent"))
    }

    /// Opens a target with the default options.
    ///
    /// Errors: `NotFound` if the directory is missing or is no target, `Busy`
    /// if another process serves it, `Unsupported` if its format is of another
    /// version, `Corrupt` if its superblock is damaged.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, TargetOptions::default())
    }

    /// Opens a target. Errors as for [`Target::open`].
    pub fn open_with(dir: impl AsRef<Path>, options: TargetOptions) -> Result<Self> {
        let dir = dir.as_ref();
        let shown = dir.display();
        let root = open_directory(dir).map_err(|e| match e {
            Errno::NOENT => {
                let message = format!("target directory {shown} is missing (is its disk mounted?)");
                Error::new(ErrorKind::NotFound, message)
            }
            e => os_error(e).context(format!("open target directory {shown}")),
        })?;
        let context = format!("target directory {shown}");
        let identity = superblock::read(&root).map_err(|e| match e.kind {
            ErrorKind::NotFound => {
                let message =
                    format!("target directory {shown} holds no target: no `{SUPERBLOCK}`");
                Error::new(ErrorKind::NotFound, message)
            }
            _ => e.context(&context),
        })?;
        let lock = lock_directory(&root).map_err(|e| match e.kind {
            ErrorKind::Busy => Error::new(
                ErrorKind::Busy,
                format!("target directory {shown} is already served by another process"),
            ),
            _ => e.context(&context),
        })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let objects = openat(&root, OBJECTS, flags, Mode::empty())
            .map_err(|e| os_error(e).context(format!("open `{OBJECTS}`")).context(&context))?;
        let site = Site { target: identity.target, dir: dir.to_path_buf() };
        Ok(Self {
            identity,
            directories: Arc::new(Directories::new(site, objects)),
            open_files: OpenFiles::new(options.max_open_objects),
            _lock: lock,
        })
    }

    /// Which target of which server and cluster it is.
    pub fn identity(&self) -> TargetIdentity {
        self.identity
    }

    /// Its number.
    pub fn id(&self) -> TargetId {
        self.identity.target
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.directories.site.dir
    }

    /// Number and directory, as messages name it: `target 3 (/disk1)`.
    pub fn name(&self) -> String {
        self.directories.site.to_string()
    }

    /// The object, if it happens to be open. Never waits for the disk, so that
    /// an event loop may try a `Nowait` read with it.
    pub fn open_object(&self, id: ObjectId) -> Option<Arc<Object>> {
        self.open_files.get(id)
    }

    /// The object, `None` if there is none. May wait for the disk.
    ///
    /// Errors: `Corrupt` if its header is damaged or another object's,
    /// `Unsupported` if its format is of another version, `Io`.
    pub fn object(&self, id: ObjectId) -> Result<Option<Arc<Object>>> {
        self.open_files.get_or_open(id, || Object::open(&self.directories, id, false))
    }

    /// The object; an empty one is made if there is none. Errors as for
    /// [`Target::object`], and `NoSpace`, `ReadOnly`.
    pub fn object_or_create(&self, id: ObjectId) -> Result<Arc<Object>> {
        let object =
            self.open_files.get_or_open(id, || Object::open(&self.directories, id, true))?;
        object.ok_or_else(|| {
            self.directories.site.error(ErrorKind::Internal, format!("object {id} was not made"))
        })
    }

    /// Removes the object; no error if there is none. Durable after
    /// [`Target::sync_all`].
    pub fn remove(&self, id: ObjectId) -> Result<()> {
        self.open_files.remove(id, || self.directories.unlink(id))
    }

    /// Space and files of the local file system that the target is on.
    pub fn usage(&self) -> Result<FsUsage> {
        let stat = fstatvfs(&self.directories.root)
            .map_err(|e| self.directories.site.os_error("ask for free space", e))?;
        Ok(FsUsage {
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            total_files: stat.f_files,
            free_files: stat.f_favail,
        })
    }

    /// Makes everything on the target's local file system durable.
    pub fn sync_all(&self) -> Result<()> {
        rustix::io::retry_on_intr(|| rustix::fs::syncfs(&self.directories.root))
            .map_err(|e| self.directories.site.os_error("sync", e))
    }

    /// Every object with its length, for checking and rebuilding.
    pub fn objects(&self) -> Objects {
        Objects::new(self.directories.clone())
    }
}

fn open_directory(dir: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty())
}

fn is_empty(root: &OwnedFd, name: &str) -> rustix::io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    for entry in Dir::new(openat(root, name, flags, Mode::empty())?)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The lock of a target. The kernel gives it back when the process ends,
/// however it ends.
struct Lock(OwnedFd);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child that was forked and has not yet
        // executed its program has the descriptor too.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes the lock of a target. `Busy` if another open target holds it.
fn lock_directory(root: &OwnedFd) -> Result<Lock> {
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(root, LOCK, flags, Mode::from(0o600))
        .map_err(|e| os_error(e).context(format!("open `{LOCK}`")))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(file)),
        Err(Errno::WOULDBLOCK) => {
            Err(Error::new(ErrorKind::Busy, "it is already served by another process"))
        }
        Err(e) => Err(os_error(e).context(format!("lock `{LOCK}`"))),
    }
}
