//! The limit of a FUSE file system on this machine: a server that answers from memory and stores
//! nothing. Its root contains a file `data` and the directories that were made. In a directory,
//! every name that begins with `s` exists, and others can be created.

use crate::accounting::{Accounting, Group};
use crate::cluster::{is_mounted, unmount_and_end};
use crate::failure::{Done, Failure};
use crate::stop;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use weir_fuse::{
    Attributes, Config, DirSink, Entry, Errno, Filesystem, IoArgs, NewMode, NodeId, OpenArgs,
    Opened, ROOT, Reply, RequestContext, Session, SetAttr, WriteData,
};
use weir_types::{Attr, Extras, FileId, FileKind, Generation, Timestamp};

const TTL: Duration = Duration::from_secs(3600);
const DATA: NodeId = ROOT + 1;
const DATA_BYTES: u64 = 1 << 40;
/// First node id of directories.
const FIRST_DIR: NodeId = 100;
/// First node id of created files. Ids between directories and these belong to files that always
/// exist.
const FIRST_FILE: NodeId = 1 << 56;

/// Serves until it is unmounted.
pub fn serve(mountpoint: &Path) -> Done {
    let config = Config { source: "weir-bench".into(), ..Config::default() };
    let limit = Limit { dirs: Mutex::default(), made: AtomicU64::new(0) };
    Session::mount(limit, mountpoint, &config)
        .and_then(Session::run)
        .map_err(|e| Failure::other(format!("FUSE: {e}")))
}

/// A running trivial server. Dropping it unmounts and ends it.
#[derive(Debug)]
pub struct FuseLimit {
    mountpoint: PathBuf,
    child: Option<Child>,
}

impl FuseLimit {
    /// Starts a server.
    pub fn start(mountpoint: PathBuf, accounting: &mut Accounting) -> Done<Self> {
        std::fs::create_dir(&mountpoint).map_err(|e| Failure::file(&mountpoint, e))?;
        let this =
            std::env::current_exe().map_err(|e| Failure::system("finding this program", e))?;
        let mut command = accounting.command(Group::RawFuse, &this)?;
        command.arg("fuse-limit").arg(&mountpoint).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|e| Failure::system("starting a FUSE server", e))?;
        accounting.adopt(Group::RawFuse, child.id())?;
        let mut limit = Self { mountpoint, child: Some(child) };
        let mut ended = false;
        stop::wait_until("the trivial FUSE server", Duration::from_secs(10), || {
            ended = limit.child.as_mut().is_none_or(|c| !matches!(c.try_wait(), Ok(None)));
            ended || is_mounted(&limit.mountpoint)
        })?;
        if ended {
            return Err(Failure::other("the trivial FUSE server does not run"));
        }
        Ok(limit)
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }
}

impl Drop for FuseLimit {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            unmount_and_end(&self.mountpoint, child);
        }
    }
}

struct Limit {
    dirs: Mutex<BTreeMap<Vec<u8>, NodeId>>,
    made: AtomicU64,
}

fn attr(node: NodeId) -> Attr {
    let kind = match node {
        ROOT | FIRST_DIR..0x1_0000_0000 => FileKind::Directory,
        _ => FileKind::File,
    };
    Attr {
        file: FileId(node),
        kind,
        mode: if kind == FileKind::Directory { 0o777 } else { 0o666 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: if node == DATA { DATA_BYTES } else { 0 },
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        change: 0,
        generation: Generation(0),
        preferred_io_bytes: 1 << 20,
        birth: None,
        extras: Extras::default(),
        sparse: false,
    }
}

fn entry(node: NodeId) -> Entry {
    Entry::new(attr(node), TTL)
}

fn opened() -> Opened {
    Opened { noflush: true, parallel_direct_writes: true, ..Opened::default() }
}

impl Filesystem for Limit {
    fn lookup(&self, _: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        if parent == ROOT {
            if name == b"data" {
                return Ok(entry(DATA));
            }
            let dirs = self.dirs.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(entry(*dirs.get(name).ok_or(Errno::ENOENT)?));
        }
        let number =
            name.strip_prefix(b"s").and_then(|n| std::str::from_utf8(n).ok()?.parse().ok());
        let number: u32 = number.ok_or(Errno::ENOENT)?;
        Ok(entry(parent << 32 | NodeId::from(number)))
    }

    fn getattr(&self, _: &RequestContext<'_>, node: NodeId, _: Option<u64>) -> Reply<Attributes> {
        Ok(Attributes { attr: attr(node), allocated: None, ttl: TTL })
    }

    fn setattr(&self, _: &RequestContext<'_>, node: NodeId, _: &SetAttr) -> Reply<Attributes> {
        Ok(Attributes { attr: attr(node), allocated: None, ttl: TTL })
    }

    fn mkdir(&self, _: &RequestContext<'_>, _: NodeId, name: &[u8], _: NewMode) -> Reply<Entry> {
        let mut dirs = self.dirs.lock().unwrap_or_else(PoisonError::into_inner);
        let node = FIRST_DIR + dirs.len() as u64;
        Ok(entry(*dirs.entry(name.to_vec()).or_insert(node)))
    }

    fn unlink(&self, _: &RequestContext<'_>, _: NodeId, _: &[u8]) -> Reply<()> {
        Ok(())
    }

    fn open(&self, _: &RequestContext<'_>, _: NodeId, _: OpenArgs) -> Reply<Opened> {
        Ok(opened())
    }

    fn create(
        &self,
        _: &RequestContext<'_>,
        _: NodeId,
        _: &[u8],
        _: NewMode,
        _: OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        let node = FIRST_FILE + self.made.fetch_add(1, Ordering::Relaxed);
        Ok((entry(node), opened()))
    }

    fn read(
        &self,
        _: &RequestContext<'_>,
        _: NodeId,
        _: u64,
        _: u64,
        buffer: &mut [u8],
        _: &IoArgs,
    ) -> Reply<usize> {
        Ok(buffer.len())
    }

    fn write(
        &self,
        _: &RequestContext<'_>,
        _: NodeId,
        _: u64,
        _: u64,
        data: WriteData<'_>,
        _: &IoArgs,
    ) -> Reply<usize> {
        Ok(data.len())
    }

    fn fsync(&self, _: &RequestContext<'_>, _: NodeId, _: u64, _: bool) -> Reply<()> {
        Ok(())
    }

    fn readdir(
        &self,
        _: &RequestContext<'_>,
        _: NodeId,
        _: u64,
        _: u64,
        _: &mut DirSink<'_>,
    ) -> Reply<()> {
        Ok(())
    }
}
