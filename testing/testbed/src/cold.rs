//! Drops the page cache of single directories, without effect on other users of the machine.

use crate::{run, text};
use rustix::fs::{Advice, fadvise, fsync};
use std::fs::{self, File};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(50);
/// Number of files for one call of `fincore`.
const AT_ONCE: usize = 200;

/// Writes everything below a directory to disk, then drops it from the page cache. Files that are
/// removed meanwhile are ignored.
///
/// # Errors
/// Something cannot be opened, read or synced.
pub fn forget(dir: &Path) -> Result<()> {
    files_below(dir)?.iter().try_for_each(|path| there(path, forget_file(path)).map(drop))
}

fn forget_file(path: &Path) -> Result<()> {
    let file = File::open(path)?;
    // Dirty pages cannot be dropped.
    fsync(&file)?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// As [`forget`], repeated until nothing is cached or `patience` is over, because pages under
/// read-ahead can be dropped only when they have arrived. Returns the bytes that stay cached.
///
/// # Errors
/// As [`forget`]; `fincore` is missing.
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

/// Reads the first `percent` of each file below a directory into the page cache, as far as there is
/// room.
///
/// # Errors
/// Something cannot be read.
pub fn remember(dir: &Path, percent: u64) -> Result<()> {
    let read = |path: &PathBuf| {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len() * percent.min(100) / 100;
        // Prevents read-ahead beyond that part.
        if percent < 100 {
            fadvise(&file, 0, None, Advice::Random)?;
        }
        std::io::copy(&mut file.take(bytes), &mut std::io::sink())
    };
    files_below(dir)?.iter().try_for_each(|path| there(path, read(path)).map(drop))
}

/// Cached bytes of the files below a directory.
///
/// # Errors
/// Something cannot be read; `fincore` is missing.
pub fn in_memory(dir: &Path) -> Result<u64> {
    files_below(dir)?.chunks(AT_ONCE).map(|some| some_in_memory(some.to_vec())).sum()
}

fn some_in_memory(files: Vec<PathBuf>) -> Result<u64> {
    let files = not_empty(files)?;
    if files.is_empty() {
        return Ok(0);
    }
    let mut words = vec!["--bytes", "--noheadings", "--raw", "--output", "RES"];
    words.extend(files.iter().map(|path| text(path)).collect::<Result<Vec<_>>>()?);
    match run("fincore", &words) {
        Ok(said) => resident(&said),
        Err(error) => {
            // `fincore` fails if a file is removed meanwhile. Then it is called again for the
            // others.
            let left = not_empty(files.clone())?;
            if left.len() < files.len() { some_in_memory(left) } else { Err(error) }
        }
    }
}

/// The sum of the sizes in `fincore`'s output.
fn resident(said: &str) -> Result<u64> {
    let unknown = |_| Error::other(format!("fincore: not understood: {said}"));
    said.lines().map(|line| line.parse::<u64>().map_err(unknown)).sum()
}

/// Files that are not empty: `fincore` cannot handle empty ones.
fn not_empty(files: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for path in files {
        if there(&path, path.metadata())?.is_some_and(|file| file.len() > 0) {
            left.push(path);
        }
    }
    Ok(left)
}

/// The files below a directory, which must exist.
fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    list(dir, fs::read_dir(dir).map_err(|e| about(dir, &e))?, &mut files)?;
    Ok(files)
}

fn list(dir: &Path, entries: fs::ReadDir, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in entries {
        let entry = entry.map_err(|e| about(dir, &e))?;
        let path = entry.path();
        let Some(kind) = there(&path, entry.file_type())? else { continue };
        if kind.is_file() {
            files.push(path);
        } else if kind.is_dir()
            && let Some(below) = there(&path, fs::read_dir(&path))?
        {
            list(&path, below, files)?;
        }
    }
    Ok(())
}

/// The result, or `None` if the file was removed meanwhile.
fn there<T>(path: &Path, result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some).map_err(|e| about(path, &e)),
    }
}

fn about(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[test]
    fn files_that_come_and_go_do_not_matter_and_errors_name_the_path() {
        let dir = std::env::temp_dir().join(format!("weir-cold-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("stays"), "something").unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (file, below) = (dir.join("goes"), dir.join("below"));
                while !done.load(Relaxed) {
                    fs::create_dir(&below).unwrap();
                    fs::write(&file, "something else").unwrap();
                    fs::remove_file(&file).unwrap();
                    fs::remove_dir(&below).unwrap();
                }
            });
            let results: Vec<Result<()>> = (0..200).map(|_| forget(&dir)).collect();
            let counted = crate::have(&["fincore"], "--version").then(|| in_memory(&dir));
            // The other thread must end whatever the results are.
            done.store(true, Relaxed);
            results.into_iter().for_each(Result::unwrap);
            counted.into_iter().for_each(|counted| _ = counted.unwrap());
        });
        fs::remove_dir_all(&dir).unwrap();
        let gone = forget(&dir).unwrap_err().to_string();
        assert!(gone.starts_with(dir.to_str().unwrap()), "{gone}");
    }
}
