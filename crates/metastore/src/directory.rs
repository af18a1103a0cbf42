//! The directory of the embedded engine: its lock, its format, its files.

use crate::engine::Sequence;
use crate::log::segment_first;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use weir_types::{Error, ErrorKind, Result};

/// The format that this program writes, and the only one it reads.
pub(crate) const FORMAT_VERSION: u32 = 1;

const FORMAT_PREFIX: &str = "weir-metastore ";

/// Keeps every other process out of a directory until dropped.
pub(crate) struct DirectoryLock {
    _file: File,
}

/// Makes the directory if need be, and locks it.
pub(crate) fn lock(dir: &Path) -> Result<DirectoryLock> {
    let path = dir.join("lock");
    let open = || {
        // Names and attributes of everybody's files are nobody's business.
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        OpenOptions::new().create(true).truncate(false).write(true).open(&path)
    };
    let file = open().map_err(|e| Error::from(e).context(path.display()))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(DirectoryLock { _file: file }),
        Err(Errno::WOULDBLOCK) => Err(Error::new(
            ErrorKind::Busy,
            format!("metadata directory {} is already in use by another process", dir.display()),
        )),
        Err(e) => Err(Error::from(std::io::Error::from(e)).context(path.display())),
    }
}

/// Whether the directory holds an engine: `false` if it has yet to be made.
/// Refuses a format that this program does not know.
pub(crate) fn check_format(dir: &Path) -> Result<bool> {
    let path = dir.join("format");
    let text = match std::fs::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(Error::from(e).context(path.display())),
    };
    let version = text
        .strip_prefix(FORMAT_PREFIX)
        .and_then(|rest| rest.trim_end().parse::<u32>().ok())
        .ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("{}: not a format file", path.display()))
        })?;
    if version == FORMAT_VERSION {
        return Ok(true);
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "metadata directory {} has format {version}; this program knows only \
             {FORMAT_VERSION}: use the version of weir that wrote it, or a newer one",
            dir.display()
        ),
    ))
}

/// Marks the directory as complete, and makes its own name durable. The last
/// step of making one.
pub(crate) fn write_format(dir: &Path) -> Result<()> {
    let path = dir.join("format");
    let write = || {
        replace_durably(dir, &path, format!("{FORMAT_PREFIX}{FORMAT_VERSION}\n").as_bytes())?;
        sync_directory(&dir.join(".."))
    };
    write().map_err(|e| Error::from(e).context(path.display()))
}

/// Gives a file these contents, so that after a crash it has the old or the
/// new ones.
pub(crate) fn replace_durably(dir: &Path, path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary)?;
    file.write_all(contents)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    sync_directory(dir)
}

/// Makes names in a directory durable.
pub(crate) fn sync_directory(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

/// A log segment, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentFile {
    /// The sequence of its first record.
    pub first: Sequence,
    /// Where it is.
    pub path: PathBuf,
}

/// The log segments, in order.
pub(crate) fn segments(dir: &Path) -> Result<Vec<SegmentFile>> {
    let list = || {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if let Some(first) = entry.file_name().to_str().and_then(segment_first) {
                found.push(SegmentFile { first, path: entry.path() });
            }
        }
        Ok(found)
    };
    let mut found = list().map_err(|e: std::io::Error| Error::from(e).context(dir.display()))?;
    found.sort_by_key(|segment| segment.first);
    Ok(found)
}
