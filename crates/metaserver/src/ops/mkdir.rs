//! Makes a directory. It inherits the default layout (and the hint) of its parent, so that making a
//! file needs only its directory.

use crate::ops::{Context, Outcome, access, acls, hints, inodes, names};
use crate::schema::Inode;
use weir_metastore::Tx;
use weir_types::limits::MAX_LINKS;
use weir_types::{Attr, ErrorKind, FileKind};
use weir_wire::meta::MkdirRequest;

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &MkdirRequest) -> Outcome<Attr> {
    let mut parent = names::begin_new(tx, ctx, request.parent, &request.name)?;
    if parent.nlink >= MAX_LINKS {
        return Err(ErrorKind::TooManyLinks.into());
    }
    let file = ctx.fresh;
    ctx.effects.fresh_used = true;
    let default = inodes::directory(&mut parent)?.default_layout.clone();
    let kind = FileKind::Directory;
    let mut inode = Inode::new(kind, request.parent, ctx.now, Inode::empty_directory(default));
    access::give_owner(ctx.caller, &parent, request.mode, &mut inode);
    acls::inherit(tx, (request.parent, &parent), request.umask, (file, &mut inode))?;
    hints::inherit(tx, (request.parent, &parent), (file, &mut inode))?;
    parent.nlink += 1;
    names::insert(tx, ctx, (request.parent, &mut parent), &request.name, (file, kind))?;
    inodes::store(tx, request.parent, &parent)?;
    ctx.changes(request.parent, &parent);
    inodes::store(tx, file, &inode)?;
    Ok(inode.attr(file))
}
