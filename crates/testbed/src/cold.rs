//! Cold caches, of one directory at a time: nobody else on the machine notices.

use crate::{run, text};
use rustix::fs::{Advice, fadvise, fsync};
use std::fs::{self, File};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(50);
/// Files that one `fincore` is asked for.
const AT_ONCE: usize = 200;

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

/// The same, until nothing of it is in memory, for as long as that may take: what is being read
/// ahead cannot be dropped before it is there. Returns the bytes that stay.
///
/// # Errors
/// As above; `fincore` is missing.
pub fn forget_whole(dir: &Path, patience: Duration) -> Result<u64> {
    let begin = Instant::now();
    loop {
        forget(dir)?;
        let left = in_memory(dir)?;
        if left == 0 || begin.elapsed() >= patience {
            return Ok(left);
        }
        sleep(PAUSE);
    }
}

/// What is below a directory is in memory, as far as there is room.
///
/// # Errors
/// Something cannot be read.
pub fn remember(dir: &Path) -> Result<()> {
    let mut files = Vec::new();
    list(dir, &mut files)?;
    let read = |path: &PathBuf| std::io::copy(&mut File::open(path)?, &mut std::io::sink());
    files.iter().try_for_each(|path| read(path).map(drop))
}

/// Bytes that are in memory of the files below a directory.
///
/// # Errors
/// Something cannot be read; `fincore` is missing.
pub fn in_memory(dir: &Path) -> Result<u64> {
    let mut files = Vec::new();
    list(dir, &mut files)?;
    let mut bytes = 0;
    for some in files.chunks(AT_ONCE) {
        let mut words = vec!["--bytes", "--noheadings", "--raw", "--output", "RES"];
        words.extend(some.iter().map(|path| text(path)).collect::<Result<Vec<_>>>()?);
        let said = run("fincore", &words)?;
        let unknown = |_| Error::other(format!("fincore: not understood: {said}"));
        for line in said.lines() {
            bytes += line.parse::<u64>().map_err(unknown)?;
        }
    }
    Ok(bytes)
}

/// The files below a directory in which something is.
fn list(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(&entry.path(), files)?;
        } else if kind.is_file() && entry.metadata()?.len() > 0 {
            files.push(entry.path());
        }
    }
    Ok(())
}
