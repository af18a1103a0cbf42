//! Files were read. It is no change that others are told of: they see it when they ask.

use crate::ops::{Context, Outcome, access, confine, inodes};
use weir_metastore::Tx;
use weir_types::limits::MAX_ACCESSED;
use weir_types::{ErrorKind, FileId, FileKind, Timestamp};
use weir_wire::Rights;
use weir_wire::meta::{AccessedRequest, FileAccess};

/// A time of access is brought up to date once in this time though nothing has changed.
const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;

/// Does it, for files that are there and that the client may read.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &AccessedRequest) -> Outcome<()> {
    if request.files.len() > MAX_ACCESSED {
        return Err(ErrorKind::InvalidArgument.into());
    }
    if ctx.limits.read_only {
        // It is not to ask again.
        return Err(ErrorKind::ReadOnly.into());
    }
    for access in &request.files {
        let subtree = ctx.limits.subtree.filter(|_| access.file == FileId::ROOT);
        one(tx, ctx, &FileAccess { file: subtree.unwrap_or(access.file), ..*access })?;
    }
    Ok(())
}

fn one(tx: &mut Tx<'_>, ctx: &Context<'_>, access: &FileAccess) -> Outcome<()> {
    let file = access.file;
    if !confine::reaches(tx, ctx, file)? {
        return Ok(());
    }
    let Some(mut inode) = inodes::find(tx, file)? else { return Ok(()) };
    let reads = ctx.has_open(file, Rights::READ)
        || access::allows(ctx.caller, &inode, access::READ)
        || inode.kind == FileKind::Symlink;
    let age_ns = i64::try_from(access.age_ms.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
    let at = Timestamp(ctx.now.0.saturating_sub(age_ns));
    if !reads || at <= inode.atime {
        return Ok(());
    }
    let relative = [inode.mtime, inode.ctime].into_iter().any(|change| inode.atime <= change);
    if access.always || relative || at.0.saturating_sub(inode.atime.0) >= DAY_NS {
        inode.atime = at;
        inodes::store(tx, file, &inode)?;
    }
    Ok(())
}
