//! Encodes Weir's types as ABI structs.

use std::time::Duration;

use weir_types::limits::{BLOCK_BYTES, MAX_NAME_BYTES};
use weir_types::{Attr, FileKind, FsUsage};

use crate::protocol::abi::{self, fopen};
use crate::protocol::args::{Attributes, Entry, Lock, LockKind, Opened, Statx};

/// The unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;
/// Preferred block size of local file systems.
const LOCAL_BLOCK_BYTES: u64 = 4096;
/// Reported size of any directory, as on ext4. Programs take a file of size 0 for empty (`test
/// -s`).
const DIRECTORY_BYTES: u64 = 4096;
/// `STATX_BASIC_STATS` and `STATX_BTIME`.
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

fn attr(attr: &Attr, allocated: Option<u64>) -> abi::Attr {
    abi::Attr {
        ino: attr.file.0,
        size: size(attr),
        blocks: blocks(attr, allocated),
        atime: attr.atime.seconds().cast_unsigned(),
        mtime: attr.mtime.seconds().cast_unsigned(),
        ctime: attr.ctime.seconds().cast_unsigned(),
        atimensec: attr.atime.nanos(),
        mtimensec: attr.mtime.nanos(),
        ctimensec: attr.ctime.nanos(),
        mode: mode(attr),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.preferred_io_bytes,
        flags: 0,
    }
}

fn size(attr: &Attr) -> u64 {
    if attr.kind == FileKind::Directory { DIRECTORY_BYTES } else { attr.size }
}

/// Blocks of a file: whole blocks of the local file systems. The target of a symbolic link is
/// stored beside its attributes, and takes none.
fn blocks(attr: &Attr, allocated: Option<u64>) -> u64 {
    if attr.kind == FileKind::Symlink {
        return 0;
    }
    let taken = allocated.unwrap_or_else(|| size(attr).next_multiple_of(LOCAL_BLOCK_BYTES));
    taken.div_ceil(STAT_BLOCK_BYTES)
}

fn mode(attr: &Attr) -> u32 {
    attr.kind.mode_bits() | u32::from(attr.mode & 0o7777)
}

pub(crate) fn entry(entry: &Entry) -> abi::EntryOut {
    abi::EntryOut {
        nodeid: entry.node,
        generation: 0,
        entry_valid: entry.entry_ttl.as_secs(),
        attr_valid: entry.attr_ttl.as_secs(),
        entry_valid_nsec: entry.entry_ttl.subsec_nanos(),
        attr_valid_nsec: entry.attr_ttl.subsec_nanos(),
        attr: attr(&entry.attr, None),
    }
}

/// Entry for a name that does not exist.
pub(crate) fn negative_entry(ttl: Duration) -> abi::EntryOut {
    abi::EntryOut {
        entry_valid: ttl.as_secs(),
        entry_valid_nsec: ttl.subsec_nanos(),
        ..Default::default()
    }
}

pub(crate) fn attributes(attributes: &Attributes) -> abi::AttrOut {
    abi::AttrOut {
        attr_valid: attributes.ttl.as_secs(),
        attr_valid_nsec: attributes.ttl.subsec_nanos(),
        dummy: 0,
        attr: attr(&attributes.attr, attributes.allocated),
    }
}

pub(crate) fn statx(statx: &Statx) -> abi::StatxOut {
    let Attributes { attr, allocated, ttl } = &statx.attributes;
    let time = |t: weir_types::Timestamp| abi::SxTime {
        tv_sec: t.seconds(),
        tv_nsec: t.nanos(),
        reserved: 0,
    };
    let rdev = u64::from(attr.rdev);
    abi::StatxOut {
        attr_valid: ttl.as_secs(),
        attr_valid_nsec: ttl.subsec_nanos(),
        flags: 0,
        spare: [0; 2],
        stat: abi::Statx {
            mask: STATX_BASIC_STATS | if statx.birth.is_some() { STATX_BTIME } else { 0 },
            blksize: attr.preferred_io_bytes,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: mode(attr) as u16,
            ino: attr.file.0,
            size: size(attr),
            blocks: blocks(attr, *allocated),
            atime: time(attr.atime),
            btime: statx.birth.map(time).unwrap_or_default(),
            ctime: time(attr.ctime),
            mtime: time(attr.mtime),
            // The kernel's short form of a device number, as MKNOD sends it.
            rdev_major: (rdev >> 8 & 0xfff) as u32,
            rdev_minor: (rdev & 0xff | rdev >> 12 & 0xfff00) as u32,
            ..Default::default()
        },
    }
}

pub(crate) fn opened(opened: &Opened) -> abi::OpenOut {
    let flags = [
        (opened.direct_io, fopen::DIRECT_IO),
        (opened.keep_cache, fopen::KEEP_CACHE),
        (opened.nonseekable, fopen::NONSEEKABLE),
        (opened.cache_dir, fopen::CACHE_DIR),
        (opened.noflush, fopen::NOFLUSH),
        (opened.parallel_direct_writes, fopen::PARALLEL_DIRECT_WRITES),
    ];
    let open_flags = flags.iter().filter(|(on, _)| *on).fold(0, |all, (_, flag)| all | flag);
    abi::OpenOut { fh: opened.fh, open_flags, backing_id: 0 }
}

pub(crate) fn usage(usage: &FsUsage) -> abi::Kstatfs {
    let block = BLOCK_BYTES as u64;
    abi::Kstatfs {
        blocks: usage.total_bytes / block,
        bfree: usage.free_bytes / block,
        bavail: usage.free_bytes / block,
        files: usage.total_files,
        ffree: usage.free_files,
        bsize: BLOCK_BYTES as u32,
        namelen: MAX_NAME_BYTES as u32,
        frsize: BLOCK_BYTES as u32,
        ..Default::default()
    }
}

pub(crate) fn lock(lock: &Lock) -> abi::FileLock {
    let kind = match lock.kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    abi::FileLock { start: lock.start, end: lock.end, kind: kind.cast_unsigned(), pid: lock.pid }
}
