//! A file system with one file, which answers as slowly as the disk that it models.
//!
//! The bytes are in a plain file. A loop device on the modelled file is a disk with a head for all
//! of its users, including the kernel's own reads and writes.

use super::core::{Drive, Head, Kind};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;
use weir_fuse::{
    Attributes, Entry, Errno, Filesystem, IoArgs, NodeId, OpenArgs, Opened, ROOT, Reply,
    RequestContext, WriteData,
};
use weir_types::{Attr, Extras, FileId, FileKind, Generation, Timestamp};

/// The name of the file.
pub const NAME: &str = "disk";
const NODE: NodeId = 2;
/// Its attributes never change.
const TTL: Duration = Duration::from_secs(3600);

pub struct OneFile {
    image: File,
    bytes: u64,
    head: Mutex<Head>,
}

impl OneFile {
    pub fn new(image: File, drive: Drive) -> std::io::Result<Self> {
        let bytes = image.metadata()?.len();
        Ok(Self { image, bytes, head: Mutex::new(Head::new(drive)) })
    }

    /// Puts a request into the drive's queue, and returns its completion time.
    fn takes(&self, kind: Kind, offset: u64, length: usize) -> Duration {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        head.done(kind, offset, length as u64, now())
    }

    fn attributes(&self, node: NodeId) -> Reply<Attributes> {
        let attr = match node {
            ROOT => attributes(ROOT, FileKind::Directory, 0o700, 0),
            NODE => attributes(NODE, FileKind::File, 0o600, self.bytes),
            _ => return Err(Errno::ENOENT),
        };
        Ok(Attributes { attr, allocated: None, ttl: TTL })
    }
}

impl Filesystem for OneFile {
    fn lookup(&self, _: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        match (parent, name == NAME.as_bytes()) {
            (ROOT, true) => Ok(Entry::new(self.attributes(NODE)?.attr, TTL)),
            _ => Err(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &RequestContext<'_>, node: NodeId, _: Option<u64>) -> Reply<Attributes> {
        self.attributes(node)
    }

    fn open(&self, _: &RequestContext<'_>, _: NodeId, _: OpenArgs) -> Reply<Opened> {
        // Bypasses the page cache here: the pages of the disk itself are cached once.
        Ok(Opened {
            direct_io: true,
            parallel_direct_writes: true,
            noflush: true,
            ..Opened::default()
        })
    }

    fn read(
        &self,
        _: &RequestContext<'_>,
        _: NodeId,
        _: u64,
        offset: u64,
        buffer: &mut [u8],
        _: &IoArgs,
    ) -> Reply<usize> {
        let length = self.bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let done = self.takes(Kind::Read, offset, length);
        self.image.read_exact_at(&mut buffer[..length], offset)?;
        wait_until(done);
        Ok(length)
    }

    fn write(
        &self,
        _: &RequestContext<'_>,
        _: NodeId,
        _: u64,
        offset: u64,
        data: WriteData<'_>,
        _: &IoArgs,
    ) -> Reply<usize> {
        if offset.saturating_add(data.len() as u64) > self.bytes {
            return Err(Errno(libc::ENOSPC));
        }
        let done = self.takes(Kind::Write, offset, data.len());
        self.image.write_all_at(&data, offset)?;
        wait_until(done);
        Ok(data.len())
    }

    /// A write is complete when the disk has it, so there is nothing to wait for. It does not
    /// survive a crash of this machine; neither does a testbed.
    fn fsync(&self, _: &RequestContext<'_>, _: NodeId, _: u64, _: bool) -> Reply<()> {
        Ok(())
    }
}

fn attributes(node: NodeId, kind: FileKind, mode: u16, size: u64) -> Attr {
    let never = Timestamp::default();
    Attr {
        file: FileId(node),
        kind,
        mode,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size,
        atime: never,
        mtime: never,
        ctime: never,
        change: 0,
        generation: Generation(0),
        preferred_io_bytes: 1 << 20,
        birth: None,
        extras: Extras::default(),
        sparse: false,
    }
}

fn now() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Monotonic);
    Duration::new(tv_sec as u64, tv_nsec as u32)
}

fn wait_until(done: Duration) {
    sleep(done.saturating_sub(now()));
}
