//! A file below a directory of the tree. Its path is walked without following links and within one
//! file system, so that nobody who can write there can lead the walk elsewhere.

use crate::copy::Copy;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use std::fs::{File, Metadata, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// See the top of the file.
#[derive(Clone, Debug)]
pub struct Place {
    dir: PathBuf,
    name: String,
}

impl Place {
    /// The place of a path below a directory.
    pub fn new(dir: &Path, name: impl Into<String>) -> Self {
        Self { dir: dir.to_owned(), name: name.into() }
    }

    /// The full path, for messages.
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// Opens a regular file for reading.
    pub fn open(&self) -> Result<File> {
        let file = self.beneath(&self.name, OFlags::RDONLY | OFlags::NONBLOCK)?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(Error::new(ErrorKind::InvalidInput, "is no regular file")),
        }
    }

    /// The metadata of the file, without following a link.
    pub fn metadata(&self) -> Result<Metadata> {
        self.beneath(&self.name, OFlags::PATH | OFlags::NOFOLLOW)?.metadata()
    }

    /// Makes the name durable.
    pub fn sync_name(&self) -> Result<()> {
        self.parent()?.0.sync_all()
    }

    /// Renames a file to this place. Fails if the name is taken and the flags forbid replacing.
    pub fn take(&self, file: &Path, flags: RenameFlags) -> Result<()> {
        let (parent, name) = self.parent()?;
        rustix::fs::renameat_with(rustix::fs::CWD, file, &parent, name, flags)?;
        parent.sync_all()
    }

    /// Renames the file to another place of the same file system, durably. The new name must be
    /// free.
    pub fn move_to(&self, to: &Self) -> Result<()> {
        let ((from, name), (parent, new)) = (self.parent()?, to.parent()?);
        rustix::fs::renameat_with(&from, name, &parent, new, RenameFlags::NOREPLACE)?;
        parent.sync_all()?;
        from.sync_all()
    }

    /// Gives the file a second name in the same file system, durably. The new name must be free.
    pub fn link_to(&self, to: &Self) -> Result<()> {
        let ((from, name), (parent, new)) = (self.parent()?, to.parent()?);
        rustix::fs::linkat(&from, name, &parent, new, AtFlags::empty())?;
        parent.sync_all()
    }

    /// Removes the file, durably.
    pub fn remove(&self) -> Result<()> {
        let (parent, name) = self.parent()?;
        rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
        parent.sync_all()
    }

    /// Makes the missing parent directories, durably, with the owner and permissions that `like`
    /// returns for them. A directory for which `like` returns nothing is for its owner only.
    pub fn make_parents(&self, like: impl Fn(&str) -> Option<Metadata>) -> Result<()> {
        for (end, _) in self.name.match_indices('/') {
            let above = Self { dir: self.dir.clone(), name: self.name[..end].to_owned() };
            match above.metadata() {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
                Ok(_) => continue,
            }
            let (parent, name) = above.parent()?;
            rustix::fs::mkdirat(&parent, name, Mode::RWXU)?;
            let made = above.beneath(&above.name, OFlags::RDONLY | OFlags::DIRECTORY)?;
            if let Some(meta) = like(&above.name) {
                fchown(&made, Some(meta.uid()), Some(meta.gid()))?;
                made.set_permissions(Permissions::from_mode(meta.mode() & 0o7777))?;
            }
            made.sync_all()?;
            parent.sync_all()?;
        }
        Ok(())
    }

    fn parent(&self) -> Result<(File, &str)> {
        let (above, name) = self.name.rsplit_once('/').unwrap_or((".", &self.name));
        Ok((self.beneath(above, OFlags::RDONLY | OFlags::DIRECTORY)?, name))
    }

    fn beneath(&self, name: &str, flags: OFlags) -> Result<File> {
        let dir = File::open(&self.dir)?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = flags | OFlags::CLOEXEC;
        Ok(rustix::fs::openat2(&dir, name, flags, Mode::empty(), resolve)?.into())
    }
}

/// Whether a file is still this copy, unchanged.
pub fn is_copy(place: &Place, copy: &Copy) -> bool {
    place.metadata().is_ok_and(|meta| meta.is_file() && Copy::of(&meta) == *copy)
}
