//! The limit of what a FUSE file system can do here: a server that answers
//! reads from its warm buffer, accepts every write and forgets it.
//!
//! ```sh
//! fuse_limit MOUNTPOINT [--direct] [--copy] [--workers WAITING,MOST] [--read-ahead-kib N]
//! ```
//! The directory holds one file `data` of 1 TiB; others can be made. `--direct`
//! bypasses the kernel's page cache, `--copy` fills each reply from memory as a
//! cache would. When unmounted it prints what it served and the CPU it took.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use weir_fuse::{
    Attributes, Config, DirEntry, DirSink, Entry, Errno, Filesystem, IoArgs, NewMode, NodeId,
    OpenArgs, Opened, ROOT, Reply, RequestContext, Session, SetAttr, WriteData,
};
use weir_types::{Attr, Extras, FileId, FileKind, Generation, Timestamp};

const TTL: Duration = Duration::from_secs(3600);
const DATA_BYTES: u64 = 1 << 40;
/// What `--copy` copies from: larger than the caches of the processor.
const SOURCE_BYTES: usize = 64 << 20;

struct Limit {
    direct_io: bool,
    source: Option<Vec<u8>>,
    files: Mutex<BTreeMap<Vec<u8>, (NodeId, u64)>>,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

fn attr(node: NodeId, kind: FileKind, size: u64) -> Attr {
    Attr {
        file: FileId(node),
        kind,
        mode: if kind == FileKind::Directory { 0o777 } else { 0o666 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size,
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

impl Limit {
    fn files(&self) -> std::sync::MutexGuard<'_, BTreeMap<Vec<u8>, (NodeId, u64)>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attr_of(&self, node: NodeId) -> Reply<Attr> {
        if node == ROOT {
            return Ok(attr(ROOT, FileKind::Directory, 4096));
        }
        let files = self.files();
        let file = files.values().find(|(id, _)| *id == node).ok_or(Errno::ENOENT)?;
        Ok(attr(node, FileKind::File, file.1))
    }

    fn opened(&self) -> Opened {
        Opened {
            direct_io: self.direct_io,
            parallel_direct_writes: self.direct_io,
            noflush: true,
            ..Opened::default()
        }
    }
}

impl Filesystem for Limit {
    fn lookup(&self, _: &RequestContext<'_>, _: NodeId, name: &[u8]) -> Reply<Entry> {
        let (node, size) = *self.files().get(name).ok_or(Errno::ENOENT)?;
        Ok(Entry::new(attr(node, FileKind::File, size), TTL))
    }

    fn getattr(&self, _: &RequestContext<'_>, node: NodeId, _: Option<u64>) -> Reply<Attributes> {
        Ok(Attributes { attr: self.attr_of(node)?, allocated: None, ttl: TTL })
    }

    fn setattr(&self, _: &RequestContext<'_>, node: NodeId, set: &SetAttr) -> Reply<Attributes> {
        if let Some(size) = set.size {
            let mut files = self.files();
            if let Some(file) = files.values_mut().find(|(id, _)| *id == node) {
                file.1 = size;
            }
        }
        Ok(Attributes { attr: self.attr_of(node)?, allocated: None, ttl: TTL })
    }

    fn open(&self, _: &RequestContext<'_>, _: NodeId, _: OpenArgs) -> Reply<Opened> {
        Ok(self.opened())
    }

    fn create(
        &self,
        _: &RequestContext<'_>,
        _: NodeId,
        name: &[u8],
        _: NewMode,
        _: OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        let mut files = self.files();
        let node = ROOT + 1 + files.len() as u64;
        let (node, size) = *files.entry(name.to_vec()).or_insert((node, 0));
        Ok((Entry::new(attr(node, FileKind::File, size), TTL), self.opened()))
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
        if let Some(source) = &self.source {
            let start = offset as usize % SOURCE_BYTES;
            let length = buffer.len().min(SOURCE_BYTES - start);
            buffer[..length].copy_from_slice(&source[start..start + length]);
        } else if buffer.last() == Some(&0) {
            // Memory never written is the kernel's one zero page: no real server
            // would answer from that.
            buffer.fill(1);
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Ok(buffer.len())
    }

    fn write(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        _: u64,
        offset: u64,
        data: WriteData<'_>,
        _: &IoArgs,
    ) -> Reply<usize> {
        self.written_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        let end = offset + data.len() as u64;
        let mut files = self.files();
        if let Some(file) = files.values_mut().find(|(id, _)| *id == node) {
            file.1 = file.1.max(end);
        }
        Ok(data.len())
    }

    fn readdir(
        &self,
        _: &RequestContext<'_>,
        _: NodeId,
        _: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Reply<()> {
        let files = self.files();
        for ((name, (node, _)), index) in files.iter().zip(1..).skip(offset as usize) {
            let kind = FileKind::File;
            let entry = DirEntry { node: *node, kind, name, next_offset: index, entry: None };
            if !sink.push(&entry) {
                break;
            }
        }
        Ok(())
    }

    fn destroy(&self) {
        let (user, system) = cpu_seconds();
        println!(
            "{} reads, {} bytes read, {} bytes written, CPU {user:.3} s user, {system:.3} s system",
            self.reads.load(Ordering::Relaxed),
            self.read_bytes.load(Ordering::Relaxed),
            self.written_bytes.load(Ordering::Relaxed),
        );
    }
}

/// User and system time of this process, all threads.
fn cpu_seconds() -> (f64, f64) {
    let mut times = libc::tms { tms_utime: 0, tms_stime: 0, tms_cutime: 0, tms_cstime: 0 };
    // SAFETY: `times` is a valid place for the result.
    unsafe { libc::times(&raw mut times) };
    // SAFETY: no pointers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    (times.tms_utime as f64 / ticks, times.tms_stime as f64 / ticks)
}

struct Options {
    mountpoint: PathBuf,
    direct_io: bool,
    copy: bool,
    config: Config,
}

fn options() -> Option<Options> {
    let mut arguments = std::env::args().skip(1);
    let mut options = Options {
        mountpoint: arguments.next()?.into(),
        direct_io: false,
        copy: false,
        config: Config { source: "fuse_limit".into(), allow_other: true, ..Config::default() },
    };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--direct" => options.direct_io = true,
            "--copy" => options.copy = true,
            "--workers" => {
                let value = arguments.next()?;
                let (waiting, most) = value.split_once(',')?;
                options.config.waiting_workers = waiting.parse().ok()?;
                options.config.max_workers = most.parse().ok()?;
            }
            "--read-ahead-kib" => options.config.read_ahead_kib = arguments.next()?.parse().ok()?,
            _ => return None,
        }
    }
    Some(options)
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!(
            "usage: fuse_limit MOUNTPOINT [--direct] [--copy] [--workers WAITING,MOST] \
             [--read-ahead-kib N]"
        );
        return ExitCode::from(2);
    };
    let fs = Limit {
        direct_io: options.direct_io,
        source: options.copy.then(|| vec![7; SOURCE_BYTES]),
        files: Mutex::new(BTreeMap::from([(b"data".to_vec(), (ROOT + 1, DATA_BYTES))])),
        reads: AtomicU64::new(0),
        read_bytes: AtomicU64::new(0),
        written_bytes: AtomicU64::new(0),
    };
    let served = Session::mount(fs, &options.mountpoint, &options.config).and_then(Session::run);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuse_limit: {error}");
            ExitCode::FAILURE
        }
    }
}
