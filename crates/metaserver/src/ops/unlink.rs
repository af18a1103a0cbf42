//! Removes a name of a file that is no directory.

use crate::ops::{Context, Outcome, access, deletion, inodes, names};
use weir_metastore::Tx;
use weir_types::{ErrorKind, FileKind};
use weir_wire::meta::{Removed, UnlinkRequest};

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &UnlinkRequest) -> Outcome<Removed> {
    let mut parent = names::begin(tx, ctx, request.parent, &request.name)?;
    let dentry = names::find(tx, request.parent, &request.name)?.ok_or(ErrorKind::NotFound)?;
    let mut inode = inodes::load_named(tx, dentry.file)?;
    access::require_removal(ctx.caller, &parent, &inode)?;
    if inode.kind == FileKind::Directory {
        return Err(ErrorKind::IsDirectory.into());
    }
    names::remove(tx, ctx, (request.parent, &mut parent), &request.name, &dentry)?;
    inodes::store(tx, request.parent, &parent)?;
    ctx.changes(request.parent, &parent);
    deletion::drop_link(tx, ctx, request.parent, dentry.file, &mut inode, request.hold)?;
    ctx.changes(dentry.file, &inode);
    Ok(Removed { attr: Some(inode.attr(dentry.file)) })
}
