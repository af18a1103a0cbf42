//! Records times of reads. That is no change for other clients: they see it when they ask.

use crate::ops::{Context, Outcome, access, confine, inodes};
use weir_metastore::Tx;
use weir_types::limits::MAX_ACCESSED;
use weir_types::{ErrorKind, FileId, FileKind, Timestamp, access_is_due};
use weir_wire::Rights;
use weir_wire::meta::{AccessedRequest, FileAccess};

/// A client's clock may be ahead by this much, because the time that it has shown is the one that
/// is recorded. Later times are implausible.
const AHEAD_NS: i64 = 60 * 1_000_000_000;

/// Carries out the request, for existing files that the client may read.
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
    let latest = Timestamp(ctx.now.0.saturating_add(AHEAD_NS));
    let at = if access.at > latest { ctx.now } else { access.at };
    if !reads || at <= inode.atime {
        return Ok(());
    }
    if access.always || access_is_due(inode.atime, [inode.mtime, inode.ctime], at) {
        inode.atime = at;
        inodes::store(tx, file, &inode)?;
    }
    Ok(())
}
