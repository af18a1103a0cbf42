//! Files that appear under their names only when they are complete and durable.

use crate::copy::Copy;
use crate::failure::{Done, Failure};
use crate::place::{Place, is_copy};
use crate::stream::{Step, Watch};
use rustix::fs::RenameFlags;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Prefix of temporary files, which have no final name yet.
pub const UNNAMED: &str = "tmp-";

/// What a file may replace when it takes its name.
#[derive(Clone, Copy, Debug)]
pub enum Instead {
    /// Replaces whatever has the name.
    Anything,
    /// Replaces nothing: the name must be free.
    Nothing,
    /// Replaces this copy, if it has not changed.
    Of(Copy),
}

/// A temporary file that is being written. If it gets no final name, it is removed at once, or when
/// the directory is opened the next time.
pub struct Unnamed {
    path: PathBuf,
    file: File,
}

impl Unnamed {
    /// Creates a temporary file in a directory, readable by its owner only.
    pub fn begin(dir: &Path, number: u64) -> Done<Self> {
        let path = dir.join(format!("{UNNAMED}{number}"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|e| Failure::file(&path, e))?;
        Ok(Self { path, file })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Done {
        self.file.write_all(bytes).map_err(|e| Failure::file(&self.path, e))
    }

    /// Makes the bytes durable.
    pub fn sync(&self) -> Done {
        self.file.sync_all().map_err(|e| Failure::file(&self.path, e))
    }

    /// The open file, for setting its attributes.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes the bytes durable, then the name. Returns whether the file has its name: `false` if
    /// another file has taken the place meanwhile.
    pub fn name(self, place: &Place, instead: Instead, watch: Watch<'_>) -> Done<bool> {
        self.sync()?;
        watch(Step::Change)?;
        let flags = match instead {
            Instead::Nothing => RenameFlags::NOREPLACE,
            Instead::Of(copy) if !is_copy(place, &copy) => return Ok(false),
            Instead::Of(_) | Instead::Anything => RenameFlags::empty(),
        };
        match place.take(&self.path, flags) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(Failure::file(&place.path(), error)),
        }
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        // A file that got its name is not here any longer. A leftover goes when the directory is
        // opened.
        drop(std::fs::remove_file(&self.path));
    }
}

/// Removes a name, durably.
pub fn remove(place: &Place, watch: Watch<'_>) -> Done {
    watch(Step::Change)?;
    place.remove().map_err(|e| Failure::file(&place.path(), e))
}

/// Makes a directory that only its owner can enter, durably.
pub fn make_directory(path: &Path) -> Done {
    let made = DirBuilder::new().mode(0o700).create(path);
    made.map_err(|e| Failure::file(path, e))?;
    let Some(parent) = path.parent() else { return Ok(()) };
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(|e| Failure::file(parent, e))
}
