//! Adds a name to a file (hard link).

use crate::ops::{Context, Outcome, deletion, inodes, links, names};
use weir_metastore::Tx;
use weir_types::limits::MAX_LINKS;
use weir_types::{Attr, ErrorKind, FileKind};
use weir_wire::meta::LinkRequest;

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &LinkRequest) -> Outcome<Attr> {
    let mut inode = inodes::load(tx, request.file)?;
    let mut parent = names::begin_new(tx, ctx, request.parent, &request.name)?;
    if inode.kind == FileKind::Directory {
        return Err(ErrorKind::NotPermitted.into());
    }
    match inode.nlink {
        // It was made without one. (Or somebody else has just removed its last: then it is as
        // if that had come afterwards.)
        0 => deletion::keep(tx, ctx, request.file)?,
        MAX_LINKS.. => return Err(ErrorKind::TooManyLinks.into()),
        _ => links::add(tx, request.file, &inode, request.parent)?,
    }
    inode.nlink += 1;
    inode.parent = request.parent;
    inode.changed(ctx.now);
    let entry = (request.file, inode.kind);
    names::insert(tx, ctx, (request.parent, &mut parent), &request.name, entry)?;
    inodes::store(tx, request.parent, &parent)?;
    ctx.changes(request.parent, &parent);
    inodes::store(tx, request.file, &inode)?;
    Ok(inode.attr(request.file))
}
