//! An NFS export as a read-only file system of this machine.
//!
//! The kernel's page cache and read-ahead serve programs as on a native NFS mount. Names are looked
//! up at each open, and attributes are cached for a while. Pages are dropped when the time or size
//! of a file has changed. So a file that is opened after its writer has closed it has the new
//! bytes.

use super::connection::{Connection, File};
use super::library::Stat;
use std::collections::BTreeMap;
use std::ffi::{CString, c_int};
use std::io::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_fuse::{
    Attributes, Entry, Errno, Filesystem, IoArgs, NodeId, OpenArgs, Opened, ROOT, Reply,
    RequestContext,
};
use weir_types::{Attr, Extras, FileId, FileKind, Generation, Timestamp};

/// Lifetime of attributes: Linux's minimum (`acregmin`).
const TTL: Duration = Duration::from_secs(3);

pub struct NfsFiles {
    connection: Connection,
    /// Whether the kernel caches pages.
    keeps: bool,
    paths: Mutex<BTreeMap<NodeId, CString>>,
    open: Mutex<BTreeMap<u64, File>>,
    handles: AtomicU64,
}

impl NfsFiles {
    pub fn new(connection: Connection, keeps: bool) -> Self {
        let paths = Mutex::new(BTreeMap::from([(ROOT, c"/".to_owned())]));
        let handles = AtomicU64::new(1);
        Self { connection, keeps, paths, open: Mutex::default(), handles }
    }

    fn paths(&self) -> MutexGuard<'_, BTreeMap<NodeId, CString>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_files(&self) -> MutexGuard<'_, BTreeMap<u64, File>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, node: NodeId) -> Reply<CString> {
        self.paths().get(&node).cloned().ok_or(Errno::ENOENT)
    }
}

impl Filesystem for NfsFiles {
    fn lookup(&self, _: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        let mut path = self.path(parent)?.into_bytes();
        if path != b"/" {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let path = CString::new(path).map_err(|_| Errno::EINVAL)?;
        let attr = attributes(&self.connection.stat(&path).map_err(errno)?)?;
        self.paths().insert(attr.file.0, path);
        Ok(Entry { node: attr.file.0, attr, entry_ttl: Duration::ZERO, attr_ttl: TTL })
    }

    fn getattr(&self, _: &RequestContext<'_>, node: NodeId, _: Option<u64>) -> Reply<Attributes> {
        let stat = self.connection.stat(&self.path(node)?).map_err(errno)?;
        let mut attr = attributes(&stat)?;
        attr.file = FileId(node);
        Ok(Attributes { attr, allocated: None, ttl: TTL })
    }

    fn open(&self, _: &RequestContext<'_>, node: NodeId, args: OpenArgs) -> Reply<Opened> {
        if args.flags as c_int & libc::O_ACCMODE != libc::O_RDONLY {
            return Err(Errno(libc::EROFS));
        }
        let file = self.connection.open_file(&self.path(node)?).map_err(errno)?;
        let fh = self.handles.fetch_add(1, Relaxed);
        self.open_files().insert(fh, file);
        Ok(Opened {
            fh,
            direct_io: !self.keeps,
            keep_cache: self.keeps,
            noflush: true,
            ..Opened::default()
        })
    }

    fn read(
        &self,
        _: &RequestContext<'_>,
        _: NodeId,
        fh: u64,
        offset: u64,
        buffer: &mut [u8],
        _: &IoArgs,
    ) -> Reply<usize> {
        let file = *self.open_files().get(&fh).ok_or(Errno::EBADF)?;
        let mut had = 0;
        while had < buffer.len() {
            let left = (buffer.len() - had) as u64;
            let bytes = self.connection.read(file, offset + had as u64, left).map_err(errno)?;
            if bytes.is_empty() {
                break;
            }
            let part = buffer.get_mut(had..had + bytes.len()).ok_or(Errno::EIO)?;
            part.copy_from_slice(&bytes);
            had += bytes.len();
        }
        Ok(had)
    }

    fn release(&self, _: &RequestContext<'_>, _: NodeId, fh: u64) -> Reply<()> {
        let file = self.open_files().remove(&fh).ok_or(Errno::EBADF)?;
        self.connection.close_file(file).map_err(errno)
    }
}

fn errno(error: Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno)
}

/// Files and directories have the file ids of the server.
fn attributes(stat: &Stat) -> Reply<Attr> {
    let kind = match stat.mode as u32 & libc::S_IFMT {
        libc::S_IFREG => FileKind::File,
        libc::S_IFDIR => FileKind::Directory,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let time = |seconds: u64, nanos: u64| Timestamp::new(seconds as i64, nanos as u32);
    Ok(Attr {
        file: FileId(stat.ino),
        kind,
        mode: (stat.mode & 0o7777) as u16,
        nlink: stat.nlink as u32,
        uid: stat.uid as u32,
        gid: stat.gid as u32,
        rdev: 0,
        size: stat.size,
        atime: time(stat.atime, stat.atime_nsec),
        mtime: time(stat.mtime, stat.mtime_nsec),
        ctime: time(stat.ctime, stat.ctime_nsec),
        change: 0,
        generation: Generation(0),
        preferred_io_bytes: 1 << 20,
        birth: None,
        extras: Extras::default(),
        sparse: false,
    })
}
