//! Files that get their name when they are complete and durable.

use crate::copy::Copy;
use crate::failure::{Done, Failure};
use crate::place::{Place, is_copy};
use crate::stream::{Step, Watch};
use rustix::fs::RenameFlags;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How the files are called that have no name yet.
pub const UNNAMED: &str = "tmp-";

/// What a file may take the name of.
#[derive(Clone, Copy, Debug)]
pub enum Instead {
    /// Of whatever has it.
    Anything,
    /// Of nothing.
    Nothing,
    /// Of this one, if nobody has touched it.
    Of(Copy),
}

/// A file that is being written. One that gets no name is removed: at once, or when the
/// directory is opened the next time.
pub struct Unnamed {
    path: PathBuf,
    file: File,
}

impl Unnamed {
    /// Begins one in a directory, for nobody else to read.
    pub fn begin(dir: &Path, number: u64) -> Done<Self> {
        let path = dir.join(format!("{UNNAMED}{number}"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|e| Failure::file(&path, e))?;
        Ok(Self { path, file })
    }

    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Done {
        self.file.write_all(bytes).map_err(|e| Failure::file(&self.path, e))
    }

    /// Makes the bytes durable.
    pub fn sync(&self) -> Done {
        self.file.sync_all().map_err(|e| Failure::file(&self.path, e))
    }

    /// The file, for its attributes.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes the bytes durable, then the name. Returns whether it has it: not if something
    /// else has come there meanwhile.
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
        // It is not there if it has its name; what stays goes when the directory is opened.
        drop(std::fs::remove_file(&self.path));
    }
}

/// Removes a name, durably.
pub fn remove(place: &Place, watch: Watch<'_>) -> Done {
    watch(Step::Change)?;
    place.remove().map_err(|e| Failure::file(&place.path(), e))
}

/// Makes a directory for nobody else to enter, durably.
pub fn make_directory(path: &Path) -> Done {
    let made = DirBuilder::new().mode(0o700).create(path);
    made.map_err(|e| Failure::file(path, e))?;
    let Some(parent) = path.parent() else { return Ok(()) };
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(|e| Failure::file(parent, e))
}
