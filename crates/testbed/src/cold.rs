//! Cold caches, of one directory at a time: nobody else on the machine notices.

use rustix::fs::{Advice, fadvise, fsync};
use std::fs::{self, File};
use std::io::Result;
use std::path::Path;

/// What is below a directory is written to its disk, and then nothing of it is left in memory.
///
/// # Errors
/// Something cannot be opened, read or synced.
pub fn forget(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            forget(&entry.path())?;
        } else if kind.is_file() {
            let file = File::open(entry.path())?;
            // Pages that are still to be written stay.
            fsync(&file)?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
