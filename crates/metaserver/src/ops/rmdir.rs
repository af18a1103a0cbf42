//! Removes an empty directory.

use crate::ops::{Context, Outcome, access, deletion, inodes, names};
use weir_metastore::Tx;
use weir_types::{ErrorKind, FileKind};
use weir_wire::meta::RmdirRequest;

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &RmdirRequest) -> Outcome<()> {
    let mut parent = names::begin(tx, ctx, request.parent, &request.name)?;
    let dentry = names::find(tx, request.parent, &request.name)?.ok_or(ErrorKind::NotFound)?;
    let inode = inodes::load_named(tx, dentry.file)?;
    access::require_removal(ctx.caller, &parent, &inode)?;
    if inode.kind != FileKind::Directory {
        return Err(ErrorKind::NotDirectory.into());
    }
    names::require_empty(tx, dentry.file)?;
    parent.nlink = parent.nlink.saturating_sub(1);
    names::remove(tx, ctx, (request.parent, &mut parent), &request.name, &dentry)?;
    inodes::store(tx, request.parent, &parent)?;
    ctx.changes(request.parent, &parent);
    deletion::forget(tx, ctx, dentry.file, &inode)
}
