//! The FUSE kernel ABI, protocol 7.45 (Linux 6.18), as in `<linux/fuse.h>`.
//!
//! The whole protocol is listed, used or not, so that it can be compared with the header line by
//! line. Names are those of the header, without `fuse_`.

#![allow(dead_code, reason = "the table of the protocol is complete on purpose")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol's major version.
pub const MAJOR: u32 = 7;
/// The newest minor version known here.
pub const MINOR: u32 = 45;
/// The oldest minor version served (Linux 5.4).
pub const MIN_MINOR: u32 = 31;
/// The node id of the root directory.
pub const ROOT_ID: u64 = 1;
/// A buffer shorter than this is refused by the kernel.
pub const MIN_READ_BUFFER: usize = 8192;
/// Marks the unique id of an interrupt.
pub const INT_REQ_BIT: u64 = 1;
/// The kernel refuses replies with an error number beyond this.
pub const MAX_ERRNO: i32 = 511;

/// Operations.
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SETUPMAPPING: u32 = 48;
    pub const REMOVEMAPPING: u32 = 49;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Flags of INIT; bits from 32 up travel in `flags2`.
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const FILE_OPS: u64 = 1 << 2;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const SPLICE_WRITE: u64 = 1 << 7;
    pub const SPLICE_MOVE: u64 = 1 << 8;
    pub const SPLICE_READ: u64 = 1 << 9;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const HANDLE_KILLPRIV: u64 = 1 << 19;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const ABORT_ERROR: u64 = 1 << 21;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const MAP_ALIGNMENT: u64 = 1 << 26;
    pub const SUBMOUNTS: u64 = 1 << 27;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const SECURITY_CTX: u64 = 1 << 32;
    pub const HAS_INODE_DAX: u64 = 1 << 33;
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const PASSTHROUGH: u64 = 1 << 37;
    pub const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    pub const HAS_RESEND: u64 = 1 << 39;
    pub const ALLOW_IDMAP: u64 = 1 << 40;
    pub const OVER_IO_URING: u64 = 1 << 41;
    pub const REQUEST_TIMEOUT: u64 = 1 << 42;
}

/// Flags of the replies to OPEN, OPENDIR and CREATE.
pub mod fopen {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const NONSEEKABLE: u32 = 1 << 2;
    pub const CACHE_DIR: u32 = 1 << 3;
    pub const STREAM: u32 = 1 << 4;
    pub const NOFLUSH: u32 = 1 << 5;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    pub const PASSTHROUGH: u32 = 1 << 7;
}

/// Valid fields of [`SetattrIn`].
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// RELEASE: flush first (obsolete), drop flock locks.
pub const RELEASE_FLUSH: u32 = 1 << 0;
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// GETATTR and STATX: `fh` is valid.
pub const GETATTR_FH: u32 = 1 << 0;
/// Locks: flock, not fcntl.
pub const LK_FLOCK: u32 = 1 << 0;
/// WRITE.
pub const WRITE_CACHE: u32 = 1 << 0;
pub const WRITE_LOCKOWNER: u32 = 1 << 1;
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// READ.
pub const READ_LOCKOWNER: u32 = 1 << 1;
/// FSYNC.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// SETXATTR.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// NOTIFY_INVAL_ENTRY: let it expire, do not unmount below it.
pub const EXPIRE_ONLY: u32 = 1 << 0;
/// POLL.
pub const POLL_SCHEDULE_NOTIFY: u32 = 1 << 0;
/// IOCTL.
pub const IOCTL_COMPAT: u32 = 1 << 0;
pub const IOCTL_UNRESTRICTED: u32 = 1 << 1;
pub const IOCTL_RETRY: u32 = 1 << 2;
pub const IOCTL_32BIT: u32 = 1 << 3;
pub const IOCTL_DIR: u32 = 1 << 4;
/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
pub const DEV_IOC_CLONE: u64 = 0x8004_e500;

/// Notification codes.
pub mod notify {
    pub const POLL: i32 = 1;
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const STORE: i32 = 4;
    pub const RETRIEVE: i32 = 5;
    pub const DELETE: i32 = 6;
    pub const RESEND: i32 = 7;
    pub const INC_EPOCH: i32 = 8;
    pub const PRUNE: i32 = 9;
}

/// Declares ABI structs with their size in bytes, checked at compile time.
macro_rules! abi {
    ($($(#[$meta:meta])* $name:ident $size:literal { $($field:ident: $ty:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $(pub $field: $ty,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

abi! {
    InHeader 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    OutHeader 16 { len: u32, error: i32, unique: u64 }
    Attr 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32,
        uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    Kstatfs 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    FileLock 24 { start: u64, end: u64, kind: u32, pid: u32 }
    EntryOut 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    ForgetIn 8 { nlookup: u64 }
    ForgetOne 16 { nodeid: u64, nlookup: u64 }
    BatchForgetIn 8 { count: u32, dummy: u32 }
    GetattrIn 16 { getattr_flags: u32, dummy: u32, fh: u64 }
    AttrOut 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    SxTime 16 { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    Statx 256 {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32,
        mode: u16, spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxIn 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    StatxOut 288 {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx,
    }
    MknodIn 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn 8 { mode: u32, umask: u32 }
    RenameIn 8 { newdir: u64 }
    Rename2In 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn 8 { oldnodeid: u64 }
    SetattrIn 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    OpenIn 8 { flags: u32, open_flags: u32 }
    CreateIn 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut 16 { fh: u64, open_flags: u32, backing_id: i32 }
    ReleaseIn 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteIn 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteOut 8 { size: u32, padding: u32 }
    FsyncIn 16 { fh: u64, fsync_flags: u32, padding: u32 }
    /// The form without [`init::SETXATTR_EXT`].
    SetxattrInShort 8 { size: u32, flags: u32 }
    SetxattrIn 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetxattrIn 8 { size: u32, padding: u32 }
    GetxattrOut 8 { size: u32, padding: u32 }
    LkIn 48 { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    AccessIn 8 { mask: u32, padding: u32 }
    /// The part that every kernel sends.
    InitInShort 16 { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    InitIn 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    InitOut 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    }
    InterruptIn 8 { unique: u64 }
    BmapIn 16 { block: u64, blocksize: u32, padding: u32 }
    BmapOut 8 { block: u64 }
    IoctlIn 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    IoctlOut 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    PollIn 24 { fh: u64, kh: u64, flags: u32, events: u32 }
    PollOut 8 { revents: u32, padding: u32 }
    FallocateIn 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    Dirent 24 { ino: u64, off: u64, namelen: u32, kind: u32 }
    LseekIn 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut 8 { offset: u64 }
    CopyFileRangeIn 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    CopyFileRangeOut 8 { bytes_copied: u64 }
    SyncfsIn 8 { padding: u64 }
    NotifyInvalInodeOut 24 { ino: u64, off: i64, len: i64 }
    NotifyInvalEntryOut 16 { parent: u64, namelen: u32, flags: u32 }
    NotifyStoreOut 24 { nodeid: u64, offset: u64, size: u32, padding: u32 }
    NotifyDeleteOut 24 { parent: u64, child: u64, namelen: u32, padding: u32 }
    NotifyPruneOut 16 { count: u32, padding: u32, spare: u64 }
}

/// Where the data of a WRITE begins in its request.
pub const WRITE_HEADERS_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();
