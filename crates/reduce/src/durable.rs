//! Files that get their name when they are complete and durable.

use crate::failure::{Done, Failure};
use crate::stream::{Step, Watch};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// How the files are called that have no name yet.
pub const UNNAMED: &str = "tmp-";

/// A file that is being written. One that is not named is left where it is: it is removed
/// when the directory is opened the next time.
pub struct Unnamed {
    path: PathBuf,
    file: File,
}

impl Unnamed {
    /// Begins one in a directory.
    pub fn begin(dir: &Path, number: u64) -> Done<Self> {
        let path = dir.join(format!("{UNNAMED}{number}"));
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(|e| Failure::file(&path, e))?;
        Ok(Self { path, file })
    }

    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Done {
        self.file.write_all(bytes).map_err(|e| Failure::file(&self.path, e))
    }

    /// The file, for its attributes.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes the bytes durable, then the name, in place of whatever has it.
    pub fn name(self, name: &Path, watch: Watch<'_>) -> Done {
        self.file.sync_all().map_err(|e| Failure::file(&self.path, e))?;
        watch(Step::Change)?;
        std::fs::rename(&self.path, name).map_err(|e| Failure::file(name, e))?;
        sync_parent(name)
    }

    /// Gives it up.
    pub fn remove(self) -> Done {
        std::fs::remove_file(&self.path).map_err(|e| Failure::file(&self.path, e))
    }
}

/// Removes a name, durably.
pub fn remove(path: &Path, watch: Watch<'_>) -> Done {
    watch(Step::Change)?;
    std::fs::remove_file(path).map_err(|e| Failure::file(path, e))?;
    sync_parent(path)
}

/// Makes a directory and those above it that are missing, durably.
pub fn make_directories(path: &Path) -> Done {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_directories(parent)?;
    }
    std::fs::create_dir(path).map_err(|e| Failure::file(path, e))?;
    sync_parent(path)
}

fn sync_parent(path: &Path) -> Done {
    let Some(parent) = path.parent() else { return Ok(()) };
    let synced = File::open(parent).and_then(|dir| dir.sync_all());
    synced.map_err(|e| Failure::file(parent, e))
}
