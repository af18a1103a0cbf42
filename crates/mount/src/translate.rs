//! Translation of the kernel's terms to the client's.

use std::os::fd::{AsFd, AsRawFd};
use weir_client::{Context, CreateOptions, LateGroups};
use weir_fuse::{NewMode, OpenArgs, RequestContext, SetTime};
use weir_types::{ACL_ACCESS, ACL_DEFAULT, Caller, ErrorKind, Result};
use weir_wire::capability::Rights;
use weir_wire::meta;

/// The caller of a request.
pub(crate) fn context(ctx: &RequestContext<'_>) -> Context {
    // The superuser needs no groups.
    let groups = (ctx.uid != 0).then(|| LateGroups::new(ctx.groups()));
    Context { groups, ..groupless(ctx) }
}

/// The caller of a request whose groups do not matter: reading them takes time.
pub(crate) fn groupless(ctx: &RequestContext<'_>) -> Context {
    Context {
        caller: Caller { uid: ctx.uid, gid: ctx.gid, groups: Vec::new() },
        interrupt: Some(ctx.interrupt().as_fd().as_raw_fd()),
        ..Context::default()
    }
}

/// The caller of a read or write, whose identity matters for quotas only.
pub(crate) fn data_context(ctx: &RequestContext<'_>) -> Context {
    Context {
        writer: Some(ctx.uid),
        interrupt: Some(ctx.interrupt().as_fd().as_raw_fd()),
        ..Context::root()
    }
}

/// Reads for a caller that the kernel has permitted, because of an open descriptor or the right to
/// execute. If modes forbid it to the caller, the superuser reads. (The caller is tried first:
/// under a key that squashes the superuser the caller may be allowed more.)
pub(crate) fn for_kernel<T>(
    ctx: &RequestContext<'_>,
    read: impl Fn(&Context) -> Result<T>,
    judged: impl FnOnce(&dyn Fn(&Context) -> Result<T>) -> Result<T>,
) -> Result<T> {
    match judged(&read) {
        Err(error) if error.kind == ErrorKind::AccessDenied => read(&data_context(ctx)),
        done => done,
    }
}

/// Whether the kernel opens a file to execute it (`__FMODE_EXEC`, which no program can set), after
/// it has checked the caller's permission.
pub(crate) fn is_to_run(flags: u32) -> bool {
    const FOR_EXEC: u32 = 0x20;
    flags & FOR_EXEC != 0
}

/// Rights of an open with these flags.
pub(crate) fn rights_of(flags: u32) -> Rights {
    match flags as i32 & libc::O_ACCMODE {
        libc::O_WRONLY => Rights::WRITE,
        libc::O_RDWR => Rights::READ_WRITE,
        _ => Rights::READ,
    }
}

pub(crate) fn create_options(mode: NewMode, args: OpenArgs) -> CreateOptions {
    CreateOptions {
        mode: (mode.mode & 0o7777) as u16,
        umask: (mode.umask & 0o777) as u16,
        exclusive: args.flags as i32 & libc::O_EXCL != 0,
        truncate: args.flags as i32 & libc::O_TRUNC != 0,
        rights: rights_of(args.flags),
        layout: None,
    }
}

pub(crate) fn set_time(time: SetTime) -> meta::SetTime {
    match time {
        SetTime::Now => meta::SetTime::Now,
        SetTime::At(at) => meta::SetTime::At(at),
    }
}

/// Permission bits of a new file, and the umask.
pub(crate) fn masked(mode: NewMode) -> (u16, u16) {
    ((mode.mode & 0o7777) as u16, (mode.umask & 0o777) as u16)
}

/// Whether the file system does not support an attribute.
pub(crate) fn refused_xattr(name: &[u8]) -> bool {
    name.starts_with(b"system.") && !is_acl(name)
}

/// Whether an attribute is an access control list.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    name == ACL_ACCESS || name == ACL_DEFAULT
}
