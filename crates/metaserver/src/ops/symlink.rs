//! Makes a symbolic link.

use crate::ops::{Context, Outcome, access, inodes, names};
use crate::schema::{Body, Inode, key};
use weir_metastore::Tx;
use weir_types::limits::MAX_SYMLINK_BYTES;
use weir_types::{Attr, ErrorKind, FileKind};
use weir_wire::meta::SymlinkRequest;

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &SymlinkRequest) -> Outcome<Attr> {
    match request.target.len() {
        0 => return Err(ErrorKind::NotFound.into()),
        1..=MAX_SYMLINK_BYTES if !request.target.contains(&0) => {}
        1..=MAX_SYMLINK_BYTES => return Err(ErrorKind::InvalidArgument.into()),
        _ => return Err(ErrorKind::NameTooLong.into()),
    }
    let mut parent = names::begin_new(tx, ctx, request.parent, &request.name)?;
    let file = ctx.fresh;
    ctx.effects.fresh_used = true;
    let kind = FileKind::Symlink;
    let mut inode = Inode::new(kind, request.parent, ctx.now, Body::Other);
    access::give_owner(ctx.caller, &parent, 0o777, &mut inode);
    inode.size = request.target.len() as u64;
    names::insert(tx, ctx, (request.parent, &mut parent), &request.name, (file, kind))?;
    inodes::store(tx, request.parent, &parent)?;
    ctx.changes(request.parent, &parent);
    inodes::store(tx, file, &inode)?;
    tx.put(&key::symlink(file), &request.target)?;
    Ok(inode.attr(file))
}
