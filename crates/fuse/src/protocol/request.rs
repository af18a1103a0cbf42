//! Parsing: the raw bytes of one request from `/dev/fuse` become a typed value. Pure. Every length
//! is checked; no input panics.

use weir_types::Timestamp;
use weir_types::limits::{MAX_NAME_BYTES, MAX_SYMLINK_BYTES, MAX_XATTR_BYTES};
use zerocopy::FromBytes;

use crate::protocol::abi::{self, fattr, init, opcode};
use crate::protocol::args::{
    CopyArgs, IoArgs, IoctlArgs, Lock, LockArgs, LockKind, NewMode, NodeId, OpenArgs, ReleaseArgs,
    SetAttr, SetTime,
};
use crate::protocol::errno::Errno;

/// The common part of all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Id of the request, which its reply repeats.
    pub unique: u64,
    /// The file; 0 for requests without one.
    pub node: NodeId,
    /// The caller's user.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
    /// The caller's thread; 0 if it lives in another pid namespace.
    pub pid: u32,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The common part.
    pub header: Header,
    /// The operation.
    pub op: Op<'a>,
}

/// An invalid request. It is answered if its id is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRequest {
    /// Id, unless the header itself was cut off.
    pub unique: Option<u64>,
    /// The error to reply.
    pub errno: Errno,
}

/// The kernel's part of the INIT exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// Protocol version, major.
    pub major: u32,
    /// Protocol version, minor.
    pub minor: u32,
    /// The largest read-ahead of the kernel, bytes.
    pub max_readahead: u32,
    /// Features of the kernel.
    pub flags: u64,
}

/// The nodes of a BATCH_FORGET.
#[derive(Clone, Copy, Debug)]
pub struct ForgetList<'a>(&'a [u8]);

impl ForgetList<'_> {
    /// Each node with the number of lookups to forget.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        self.0
            .chunks_exact(size_of::<abi::ForgetOne>())
            .filter_map(|one| abi::ForgetOne::read_from_bytes(one).ok())
            .map(|one| (one.nodeid, one.nlookup))
    }
}

/// The operations.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields are those of the system calls")]
pub enum Op<'a> {
    Lookup { name: &'a [u8] },
    Forget { nlookup: u64 },
    BatchForget(ForgetList<'a>),
    GetAttr { fh: Option<u64> },
    SetAttr(SetAttr),
    ReadLink,
    Symlink { name: &'a [u8], target: &'a [u8] },
    MkNod { name: &'a [u8], mode: NewMode, rdev: u32 },
    MkDir { name: &'a [u8], mode: NewMode },
    Unlink { name: &'a [u8] },
    RmDir { name: &'a [u8] },
    Rename { name: &'a [u8], new_parent: NodeId, new_name: &'a [u8], flags: u32 },
    Link { node: NodeId, new_name: &'a [u8] },
    Open(OpenArgs),
    Read { fh: u64, offset: u64, size: u32, args: IoArgs },
    Write { fh: u64, offset: u64, data: &'a [u8], args: IoArgs },
    StatFs,
    Release { fh: u64, args: ReleaseArgs },
    Fsync { fh: u64, data_only: bool },
    SetXattr { name: &'a [u8], value: &'a [u8], flags: u32, kill_sgid: bool },
    GetXattr { name: &'a [u8], size: u32 },
    ListXattr { size: u32 },
    RemoveXattr { name: &'a [u8] },
    Flush { fh: u64, lock_owner: u64 },
    Init(Init),
    OpenDir { flags: u32 },
    ReadDir { fh: u64, offset: u64, size: u32, plus: bool },
    ReleaseDir { fh: u64, args: ReleaseArgs },
    FsyncDir { fh: u64, data_only: bool },
    GetLk(LockArgs),
    SetLk { args: LockArgs, wait: bool },
    Access { mask: u32 },
    Create { name: &'a [u8], mode: NewMode, args: OpenArgs },
    Interrupt { unique: u64 },
    BMap { block: u64, block_size_bytes: u32 },
    Destroy,
    Ioctl(IoctlArgs<'a>),
    Poll { fh: u64, events: u32 },
    Fallocate { fh: u64, offset: u64, length: u64, mode: u32 },
    LSeek { fh: u64, offset: u64, whence: u32 },
    CopyFileRange { args: CopyArgs, wide_reply: bool },
    TmpFile { mode: NewMode, args: OpenArgs },
    Statx { fh: Option<u64>, flags: u32, mask: u32 },
    SyncFs,
}

impl<'a> Request<'a> {
    /// Parses one request. `setxattr_ext` says whether that form of SETXATTR was agreed. Bytes
    /// after the request's own length are ignored.
    pub fn parse(bytes: &'a [u8], setxattr_ext: bool) -> Result<Self, BadRequest> {
        let (raw, _) = abi::InHeader::read_from_prefix(bytes)
            .map_err(|_| BadRequest { unique: None, errno: Errno::EIO })?;
        let bad = |errno| BadRequest { unique: Some(raw.unique), errno };
        let body = bytes
            .get(size_of::<abi::InHeader>()..raw.len as usize)
            .ok_or_else(|| bad(Errno::EIO))?;
        let header = Header {
            unique: raw.unique,
            node: raw.nodeid,
            uid: raw.uid,
            gid: raw.gid,
            pid: raw.pid,
        };
        let op = parse_op(raw.opcode, Body(body), setxattr_ext).map_err(bad)?;
        Ok(Self { header, op })
    }
}

/// The unparsed rest of a request.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    /// The next fixed-size struct.
    fn take<T: FromBytes>(&mut self) -> Result<T, Errno> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Errno::EIO)?;
        self.0 = rest;
        Ok(value)
    }

    /// The next `count` bytes.
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Errno> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(Errno::EIO)?;
        self.0 = rest;
        Ok(head)
    }

    /// The bytes up to a NUL, which is dropped.
    fn string(&mut self, max_bytes: usize) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(Errno::EIO)?;
        let (string, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        match string.len() {
            0 => Err(Errno::ENOENT),
            length if length > max_bytes => Err(Errno::ENAMETOOLONG),
            _ => Ok(string),
        }
    }

    /// One name of a directory entry.
    fn name(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.string(MAX_NAME_BYTES)?;
        if name.contains(&b'/') { Err(Errno::EINVAL) } else { Ok(name) }
    }

    /// The name of an extended attribute.
    fn xattr_name(&mut self) -> Result<&'a [u8], Errno> {
        self.string(MAX_NAME_BYTES).map_err(|errno| match errno {
            Errno::EIO => Errno::EIO,
            _ => Errno::ERANGE,
        })
    }
}

fn parse_op<'a>(code: u32, mut body: Body<'a>, setxattr_ext: bool) -> Result<Op<'a>, Errno> {
    let body = &mut body;
    Ok(match code {
        opcode::LOOKUP => Op::Lookup { name: body.name()? },
        opcode::FORGET => Op::Forget { nlookup: body.take::<abi::ForgetIn>()?.nlookup },
        opcode::BATCH_FORGET => Op::BatchForget(batch_forget(body)?),
        opcode::SYMLINK => {
            Op::Symlink { name: body.name()?, target: body.string(MAX_SYMLINK_BYTES)? }
        }
        opcode::MKNOD | opcode::MKDIR | opcode::CREATE | opcode::TMPFILE => make(code, body)?,
        opcode::UNLINK => Op::Unlink { name: body.name()? },
        opcode::RMDIR => Op::RmDir { name: body.name()? },
        opcode::RENAME | opcode::RENAME2 => rename(code, body)?,
        opcode::LINK => {
            let raw: abi::LinkIn = body.take()?;
            Op::Link { node: raw.oldnodeid, new_name: body.name()? }
        }
        opcode::GETATTR | opcode::SETATTR | opcode::STATX | opcode::ACCESS => {
            attributes(code, body)?
        }
        opcode::READLINK => Op::ReadLink,
        opcode::STATFS => Op::StatFs,
        opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
            xattr(code, body, setxattr_ext)?
        }
        opcode::OPEN
        | opcode::OPENDIR
        | opcode::RELEASE
        | opcode::RELEASEDIR
        | opcode::FLUSH
        | opcode::FSYNC
        | opcode::FSYNCDIR => open_and_close(code, body)?,
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => read(code, body)?,
        opcode::WRITE => write(body)?,
        opcode::GETLK | opcode::SETLK | opcode::SETLKW => lock(code, body)?,
        opcode::INIT => Op::Init(opening(body)?),
        opcode::DESTROY => Op::Destroy,
        opcode::INTERRUPT => Op::Interrupt { unique: body.take::<abi::InterruptIn>()?.unique },
        opcode::SYNCFS => Op::SyncFs,
        _ => rare(code, body)?,
    })
}

fn batch_forget<'a>(body: &mut Body<'a>) -> Result<ForgetList<'a>, Errno> {
    let raw: abi::BatchForgetIn = body.take()?;
    let length = (raw.count as usize).checked_mul(size_of::<abi::ForgetOne>());
    Ok(ForgetList(body.bytes(length.ok_or(Errno::EIO)?)?))
}

fn make<'a>(code: u32, body: &mut Body<'a>) -> Result<Op<'a>, Errno> {
    Ok(match code {
        opcode::MKNOD => {
            let raw: abi::MknodIn = body.take()?;
            let mode = NewMode { mode: raw.mode, umask: raw.umask };
            Op::MkNod { name: body.name()?, mode, rdev: raw.rdev }
        }
        opcode::MKDIR => {
            let raw: abi::MkdirIn = body.take()?;
            Op::MkDir { name: body.name()?, mode: NewMode { mode: raw.mode, umask: raw.umask } }
        }
        _ => {
            let raw: abi::CreateIn = body.take()?;
            let mode = NewMode { mode: raw.mode, umask: raw.umask };
            let args = OpenArgs { flags: raw.flags };
            // The name that comes with TMPFILE means nothing.
            match code {
                opcode::TMPFILE => Op::TmpFile { mode, args },
                _ => Op::Create { name: body.name()?, mode, args },
            }
        }
    })
}

fn rename<'a>(code: u32, body: &mut Body<'a>) -> Result<Op<'a>, Errno> {
    let (new_parent, flags) = if code == opcode::RENAME2 {
        let raw: abi::Rename2In = body.take()?;
        (raw.newdir, raw.flags)
    } else {
        (body.take::<abi::RenameIn>()?.newdir, 0)
    };
    Ok(Op::Rename { name: body.name()?, new_parent, new_name: body.name()?, flags })
}

fn attributes<'a>(code: u32, body: &mut Body<'a>) -> Result<Op<'a>, Errno> {
    Ok(match code {
        opcode::GETATTR => {
            let raw: abi::GetattrIn = body.take()?;
            Op::GetAttr { fh: (raw.getattr_flags & abi::GETATTR_FH != 0).then_some(raw.fh) }
        }
        opcode::STATX => {
            let raw: abi::StatxIn = body.take()?;
            let fh = (raw.getattr_flags & abi::GETATTR_FH != 0).then_some(raw.fh);
            Op::Statx { fh, flags: raw.sx_flags, mask: raw.sx_mask }
        }
        opcode::ACCESS => Op::Access { mask: body.take::<abi::AccessIn>()?.mask },
        _ => Op::SetAttr(set_attr(&body.take()?)),
    })
}

fn set_attr(raw: &abi::SetattrIn) -> SetAttr {
    let has = |bit: u32| raw.valid & bit != 0;
    let at = |seconds: u64, nanos: u32| Timestamp::new(seconds.cast_signed(), nanos);
    let time = |set: u32, now: u32, seconds: u64, nanos: u32| {
        if has(now) {
            Some(SetTime::Now)
        } else {
            has(set).then(|| SetTime::At(at(seconds, nanos)))
        }
    };
    SetAttr {
        mode: has(fattr::MODE).then_some(raw.mode & 0o7777),
        uid: has(fattr::UID).then_some(raw.uid),
        gid: has(fattr::GID).then_some(raw.gid),
        size: has(fattr::SIZE).then_some(raw.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, raw.atime, raw.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, raw.mtime, raw.mtimensec),
        ctime: has(fattr::CTIME).then(|| at(raw.ctime, raw.ctimensec)),
        fh: has(fattr::FH).then_some(raw.fh),
        lock_owner: has(fattr::LOCKOWNER).then_some(raw.lock_owner),
        kill_suidgid: has(fattr::KILL_SUIDGID),
    }
}

fn xattr<'a>(code: u32, body: &mut Body<'a>, extended: bool) -> Result<Op<'a>, Errno> {
    Ok(match code {
        opcode::SETXATTR => {
            let raw = if extended {
                body.take::<abi::SetxattrIn>()?
            } else {
                let short: abi::SetxattrInShort = body.take()?;
                abi::SetxattrIn { size: short.size, flags: short.flags, ..Default::default() }
            };
            let name = body.xattr_name()?;
            if raw.size as usize > MAX_XATTR_BYTES {
                return Err(Errno(libc::E2BIG));
            }
            Op::SetXattr {
                name,
                value: body.bytes(raw.size as usize)?,
                flags: raw.flags,
                kill_sgid: raw.setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0,
            }
        }
        opcode::GETXATTR => {
            let raw: abi::GetxattrIn = body.take()?;
            Op::GetXattr { name: body.xattr_name()?, size: raw.size }
        }
        opcode::LISTXATTR => Op::ListXattr { size: body.take::<abi::GetxattrIn>()?.size },
        _ => Op::RemoveXattr { name: body.xattr_name()? },
    })
}

fn open_and_close<'a>(code: u32, body: &mut Body<'a>) -> Result<Op<'a>, Errno> {
    Ok(match code {
        opcode::OPEN => {
            let raw: abi::OpenIn = body.take()?;
            Op::Open(OpenArgs { flags: raw.flags })
        }
        opcode::OPENDIR => Op::OpenDir { flags: body.take::<abi::OpenIn>()?.flags },
        opcode::FLUSH => {
            let raw: abi::FlushIn = body.take()?;
            Op::Flush { fh: raw.fh, lock_owner: raw.lock_owner }
        }
        opcode::FSYNC | opcode::FSYNCDIR => {
            let raw: abi::FsyncIn = body.take()?;
            let (fh, data_only) = (raw.fh, raw.fsync_flags & abi::FSYNC_FDATASYNC != 0);
            match code {
                opcode::FSYNC => Op::Fsync { fh, data_only },
                _ => Op::FsyncDir { fh, data_only },
            }
        }
        _ => {
            let raw: abi::ReleaseIn = body.take()?;
            let args = ReleaseArgs {
                flags: raw.flags,
                lock_owner: raw.lock_owner,
                flock_unlock: raw.release_flags & abi::RELEASE_FLOCK_UNLOCK != 0,
            };
            match code {
                opcode::RELEASE => Op::Release { fh: raw.fh, args },
                _ => Op::ReleaseDir { fh: raw.fh, args },
            }
        }
    })
}

fn read<'a>(code: u32, body: &mut Body<'a>) -> Result<Op<'a>, Errno> {
    let raw: abi::ReadIn = body.take()?;
    let (fh, offset, size) = (raw.fh, raw.offset, raw.size);
    if code != opcode::READ {
        return Ok(Op::ReadDir { fh, offset, size, plus: code == opcode::READDIRPLUS });
    }
    let args = IoArgs {
        open_flags: raw.flags,
        lock_owner: (raw.read_flags & abi::READ_LOCKOWNER != 0).then_some(raw.lock_owner),
        ..IoArgs::default()
    };
    check_range(offset, u64::from(size))?;
    Ok(Op::Read { fh, offset, size, args })
}

fn write<'a>(body: &mut Body<'a>) -> Result<Op<'a>, Errno> {
    let raw: abi::WriteIn = body.take()?;
    let data = body.bytes(raw.size as usize)?;
    check_range(raw.offset, u64::from(raw.size))?;
    let args = IoArgs {
        open_flags: raw.flags,
        lock_owner: (raw.write_flags & abi::WRITE_LOCKOWNER != 0).then_some(raw.lock_owner),
        from_page_cache: raw.write_flags & abi::WRITE_CACHE != 0,
        kill_suidgid: raw.write_flags & abi::WRITE_KILL_SUIDGID != 0,
    };
    Ok(Op::Write { fh: raw.fh, offset: raw.offset, data, args })
}

/// Checks that a range is within `off_t`.
fn check_range(offset: u64, length: u64) -> Result<(), Errno> {
    let end = offset.checked_add(length).ok_or(Errno::EINVAL)?;
    if i64::try_from(end).is_ok() { Ok(()) } else { Err(Errno::EINVAL) }
}

fn lock<'a>(code: u32, body: &mut Body<'a>) -> Result<Op<'a>, Errno> {
    let raw: abi::LkIn = body.take()?;
    let kind = match raw.lk.kind.cast_signed() {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return Err(Errno::EINVAL),
    };
    if raw.lk.start > raw.lk.end {
        return Err(Errno::EINVAL);
    }
    let args = LockArgs {
        fh: raw.fh,
        owner: raw.owner,
        lock: Lock { start: raw.lk.start, end: raw.lk.end, kind, pid: raw.lk.pid },
        flock: raw.lk_flags & abi::LK_FLOCK != 0,
    };
    Ok(match code {
        opcode::GETLK => Op::GetLk(args),
        _ => Op::SetLk { args, wait: code == opcode::SETLKW },
    })
}

fn opening(body: &mut Body<'_>) -> Result<Init, Errno> {
    let raw: abi::InitInShort = body.take()?;
    let mut flags = u64::from(raw.flags);
    if flags & init::INIT_EXT != 0 {
        flags |= u64::from(body.take::<u32>()?) << 32;
    }
    Ok(Init { major: raw.major, minor: raw.minor, max_readahead: raw.max_readahead, flags })
}

/// Parses rare operations.
fn rare<'a>(code: u32, body: &mut Body<'a>) -> Result<Op<'a>, Errno> {
    Ok(match code {
        opcode::BMAP => {
            let raw: abi::BmapIn = body.take()?;
            Op::BMap { block: raw.block, block_size_bytes: raw.blocksize }
        }
        opcode::IOCTL => {
            let raw: abi::IoctlIn = body.take()?;
            Op::Ioctl(IoctlArgs {
                fh: raw.fh,
                command: raw.cmd,
                arg: raw.arg,
                input: body.bytes(raw.in_size as usize)?,
                output_bytes: raw.out_size,
                directory: raw.flags & abi::IOCTL_DIR != 0,
            })
        }
        opcode::POLL => {
            let raw: abi::PollIn = body.take()?;
            Op::Poll { fh: raw.fh, events: raw.events }
        }
        opcode::FALLOCATE => {
            let raw: abi::FallocateIn = body.take()?;
            check_range(raw.offset, raw.length)?;
            Op::Fallocate { fh: raw.fh, offset: raw.offset, length: raw.length, mode: raw.mode }
        }
        opcode::LSEEK => {
            let raw: abi::LseekIn = body.take()?;
            Op::LSeek { fh: raw.fh, offset: raw.offset, whence: raw.whence }
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let raw: abi::CopyFileRangeIn = body.take()?;
            check_range(raw.off_in, raw.len)?;
            check_range(raw.off_out, raw.len)?;
            let args = CopyArgs {
                fh_in: raw.fh_in,
                offset_in: raw.off_in,
                node_out: raw.nodeid_out,
                fh_out: raw.fh_out,
                offset_out: raw.off_out,
                length: raw.len,
                flags: raw.flags,
            };
            Op::CopyFileRange { args, wide_reply: code == opcode::COPY_FILE_RANGE_64 }
        }
        _ => return Err(Errno::ENOSYS),
    })
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
