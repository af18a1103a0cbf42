//! The directory of the embedded engine: its lock, its format, its files.

use crate::engine::Sequence;
use crate::log::{boot_id, segment_first};
use crate::record::BootId;
use crate::reserve::Reserve;
use rustix::io::Errno;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_host::fs::{Directory, File, Lock, OpenHow};
use weir_types::checksum::crc32c;
use weir_types::{Error, ErrorKind, Result};

/// The format that this program writes, and the only one it reads.
pub(crate) const FORMAT_VERSION: u32 = 2;

const FORMAT_PREFIX: &str = "weir-metastore ";
/// The most bytes of the file `format`.
const MAX_FORMAT_BYTES: usize = 256;
/// Name of an empty file that marks a failed sync: this prefix, then the boot id at that time.
const POISONED: &str = "poisoned.";
/// Marker file of a directory that follows a journal.
const REPLICATED: &str = "replicated";
/// What the administrator can do about damage.
const REMEDY: &str = "restore the metadata directory: `weir meta import` makes a new one \
                      from a file of `weir meta export`";

/// The directory of an engine. Clones share it.
#[derive(Clone)]
pub(crate) struct Home {
    directory: Directory,
    path: PathBuf,
    reserve: Arc<Reserve>,
}

impl Home {
    /// Opens a directory, and makes it if it is missing.
    pub fn open_or_make(path: &Path) -> Result<Self> {
        let open = || {
            let parent = ancestors(path).next().unwrap_or(path);
            Directory::make_all(parent)?;
            let parent = Directory::open(parent)?;
            if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
                // For its owner only, because names and attributes of all users' files are private.
                match parent.make_directory(name) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(e) => return Err(e),
                }
            }
            let directory = Directory::open(path)?;
            let reserve = Arc::new(Reserve::open(directory.clone()));
            Ok(Self { directory, path: path.to_owned(), reserve })
        };
        open().map_err(|e: Errno| system_error(e).context(path.display()))
    }

    /// The reserve of disk space. Writes in this directory go through [`Reserve::make_room`].
    pub fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// Fills the reserve, durably.
    pub fn fill_reserve(&self) -> Result<()> {
        self.reserve.fill_up();
        let Some(file) = self.reserve.take_unsynced() else { return Ok(()) };
        self.sync_file(&file, "meta-reserve").map_err(|e| self.error("reserve", e))?;
        self.sync("meta-reserve-name")
    }

    /// Keeps other processes out until the lock is dropped.
    pub fn lock(&self) -> Result<Lock> {
        self.reserve.make_room(|| self.directory.lock("lock")).map_err(|e| match e {
            Errno::WOULDBLOCK => {
                let dir = self.path.display();
                let what = format!("metadata directory {dir} is already in use by another process");
                Error::new(ErrorKind::Busy, what)
            }
            e => self.error("lock", e),
        })
    }

    /// The error for a failed call on a file of this directory.
    pub fn error(&self, name: &str, errno: Errno) -> Error {
        system_error(errno).context(self.display(name))
    }

    /// The path of a file of this directory, for messages.
    pub fn display(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    /// Id of the kernel's memory of this file system, while which unsynced writes still exist;
    /// zeros if the kernel does not tell.
    pub fn memory_run(&self) -> BootId {
        self.directory.memory_run().unwrap_or(0).to_be_bytes()
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file.
    pub fn file(&self, name: &str, how: OpenHow) -> Result<File> {
        let open = || self.directory.open_file(name, how);
        self.reserve.make_room(open).map_err(|e| self.error(name, e))
    }

    /// Writes to a file of this directory.
    pub fn write(&self, file: &File, bytes: &[u8], position: u64) -> Result<(), Errno> {
        self.reserve.make_room(|| file.write_full(bytes, position))
    }

    /// The contents of a file; `None` if there is none.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let read = || {
            let file = self.directory.open_file(name, OpenHow::READ)?;
            let mut bytes = vec![0; file.size()? as usize];
            let len = file.read_full(&mut bytes, 0)?;
            bytes.truncate(len);
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.error(name, e)),
        }
    }

    /// Whether a file exists.
    pub fn exists(&self, name: &str) -> Result<bool> {
        match self.directory.stat(name) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(self.error(name, e)),
        }
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.directory.unlink(name).map_err(|e| self.error(name, e))
    }

    /// Renames a file, replacing one of the new name. Durable after [`Home::sync`].
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let rename = || self.directory.rename(from, to);
        self.reserve.make_room(rename).map_err(|e| self.error(from, e))
    }

    /// Makes the names in this directory durable.
    pub fn sync(&self, site: &'static str) -> Result<()> {
        let synced = self.directory.sync(site);
        self.judge_sync(synced).map_err(|e| system_error(e).context(self.path.display()))
    }

    /// Makes a file of this directory durable.
    pub fn sync_file(&self, file: &File, site: &'static str) -> Result<(), Errno> {
        self.judge_sync(file.sync(site))
    }

    /// Records a failed sync. After it the kernel may show bytes that are not on disk, and a second
    /// sync would not report that. So nobody may open the engine until the machine has restarted
    /// and the kernel reads the disk.
    fn judge_sync(&self, synced: Result<(), Errno>) -> Result<(), Errno> {
        if let Err(error) = synced {
            let mark = || self.directory.open_file(&poison_name(), OpenHow::CREATE).map(drop);
            // If even that fails, the next start will probably fail too.
            if let Err(again) = self.reserve.make_room(mark) {
                tracing::error!(%error, %again, "cannot mark a failed sync");
            }
        }
        synced
    }

    /// Refuses to open the engine after a failed sync.
    pub fn check_poison(&self) -> Result<()> {
        let now = poison_name();
        let unknown = boot_id() == [0; 16];
        let mut poisoned = None;
        for name in self.names()?.into_iter().filter(|name| name.starts_with(POISONED)) {
            if name == now || unknown {
                poisoned = Some(name);
            } else {
                self.remove(&name)?;
            }
        }
        let Some(name) = poisoned else { return Ok(()) };
        let dir = self.path.display();
        let what = format!(
            "a sync of metadata directory {dir} has failed, so that the kernel may show what is \
             not on the disk: see to the disk, restart the machine (or mount the file system \
             again and remove {}), then start the server",
            self.display(&name)
        );
        Err(Error::new(ErrorKind::Io, what))
    }

    /// Whether the directory follows a journal.
    pub fn is_replicated(&self) -> Result<bool> {
        self.exists(REPLICATED)
    }

    /// Marks durably that the directory follows a journal.
    pub fn mark_replicated(&self) -> Result<()> {
        let file = self.file(REPLICATED, OpenHow::CREATE)?;
        self.sync_file(&file, "meta-replicated").map_err(|e| self.error(REPLICATED, e))?;
        self.sync("meta-replicated-name")
    }

    /// Marks durably that the directory follows no journal.
    pub fn mark_alone(&self) -> Result<()> {
        if self.is_replicated()? {
            self.remove(REPLICATED)?;
        }
        self.sync("meta-replicated-name")
    }

    /// Refuses a directory that follows a journal if no journal is configured.
    pub fn check_alone(&self) -> Result<()> {
        if !self.is_replicated()? {
            return Ok(());
        }
        let (dir, mark) = (self.path.display(), self.display(REPLICATED));
        let what = format!(
            "metadata directory {dir} belongs to metadata servers that share a journal: name it in \
             the configuration (`[journal]`); or stop all of them and remove {mark} from the \
             directory of the last that led, to go on with that one alone"
        );
        Err(Error::new(ErrorKind::InvalidArgument, what))
    }

    /// The names in this directory that are valid text.
    pub fn names(&self) -> Result<Vec<String>> {
        let list = || {
            let names = self.directory.entries()?.collect::<Result<Vec<_>, Errno>>()?;
            Ok(names.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect())
        };
        list().map_err(|e: Errno| system_error(e).context(self.path.display()))
    }

    /// The log segments, in order.
    pub fn segments(&self) -> Result<Vec<Segment>> {
        let segment = |name: String| Some(Segment { first: segment_first(&name)?, name });
        let mut found: Vec<_> = self.names()?.into_iter().filter_map(segment).collect();
        found.sort_by_key(|segment| segment.first);
        Ok(found)
    }

    /// Whether the directory holds an engine: `false` if it has yet to be made.
    /// Refuses a format that this program does not know.
    pub fn check_format(&self) -> Result<bool> {
        let Some(bytes) = self.read("format")? else { return Ok(false) };
        if bytes == format_text(FORMAT_VERSION).as_bytes() {
            return Ok(true);
        }
        let text = String::from_utf8_lossy(&bytes);
        let version = text
            .strip_prefix(FORMAT_PREFIX)
            .and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u32>().ok());
        // Version 1 had no checksum.
        let (Some(version), true) = (
            version.filter(|&v| v != FORMAT_VERSION),
            bytes.len() <= MAX_FORMAT_BYTES
                && (text == "weir-metastore 1\n" || is_sound_format(&text)),
        ) else {
            return Err(damage(self.display("format"), 0, "it is no format file"));
        };
        let dir = self.path.display();
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "metadata directory {dir} has format {version}; this program knows only \
                 {FORMAT_VERSION}: use the version of weir that wrote it, or a newer one"
            ),
        ))
    }

    /// Marks the directory as complete, and makes its own name durable. The
    /// last step of making one. The first log segment after it makes the name
    /// of the mark durable, before anything can be promised.
    pub fn write_format(&self) -> Result<()> {
        let fail = |e| self.error("format", e);
        let write = || {
            let open = || self.directory.open_file("format.new", OpenHow::REPLACE);
            let file = self.reserve.make_room(open)?;
            self.write(&file, format_text(FORMAT_VERSION).as_bytes(), 0)?;
            self.sync_file(&file, "meta-format")
        };
        write().map_err(fail)?;
        let sync_name = |dir: &Path| Directory::open(dir)?.sync("meta-directory-name");
        for (depth, dir) in ancestors(&self.path).enumerate() {
            // Directories further up may belong to others, and may be unreadable.
            match sync_name(dir) {
                Err(e) if depth == 0 => return Err(fail(e)),
                _ => {}
            }
        }
        self.rename("format.new", "format")
    }
}

fn poison_name() -> String {
    format!("{POISONED}{:032x}", u128::from_be_bytes(boot_id()))
}

/// The parents of a path, the nearest first.
fn ancestors(path: &Path) -> impl Iterator<Item = &Path> {
    path.ancestors().skip(1).map(|dir| match dir.as_os_str().is_empty() {
        true => Path::new("."),
        false => dir,
    })
}

fn format_text(version: u32) -> String {
    let text = format!("{FORMAT_PREFIX}{version}");
    format!("{text} {:08x}\n", crc32c(text.as_bytes()))
}

/// Whether the text ends with a valid checksum of what precedes it.
fn is_sound_format(text: &str) -> bool {
    let Some((before, sum)) = text.strip_suffix('\n').and_then(|line| line.rsplit_once(' ')) else {
        return false;
    };
    format!("{:08x}", crc32c(before.as_bytes())) == sum
}

fn system_error(errno: Errno) -> Error {
    Error::from(std::io::Error::from(errno))
}

/// The error for bytes that have changed on disk.
pub(crate) fn damage(file: impl Display, offset: u64, what: &str) -> Error {
    let what = format!("{file}: damaged at byte {offset} ({what}); {REMEDY}");
    Error::new(ErrorKind::Corrupt, what)
}

/// The error for a missing file.
pub(crate) fn missing(what: impl Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what} is missing; {REMEDY}"))
}

/// A log segment, identified by its file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The sequence of its first record.
    pub first: Sequence,
    /// Its file name.
    pub name: String,
}
