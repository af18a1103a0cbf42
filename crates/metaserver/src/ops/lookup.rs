//! Looks up a name in a directory. `.` and `..` are found too, for clients that have only a file
//! id.

use crate::ops::{Context, Outcome, access, inodes, names};
use weir_metastore::Tx;
use weir_types::limits::MAX_NAME_BYTES;
use weir_types::{Attr, ErrorKind, FileId};
use weir_wire::meta::LookupRequest;

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &LookupRequest) -> Outcome<Attr> {
    let (parent, name) = (request.parent, &request.name.0);
    if name.len() > MAX_NAME_BYTES {
        return Err(ErrorKind::NameTooLong.into());
    }
    if matches!(&name[..], b"." | b"..") {
        return dots(tx, ctx, parent, name);
    }
    if !access::is_root(ctx.caller) {
        require_search(tx, ctx, parent)?;
    }
    match names::find(tx, parent, name)? {
        Some(dentry) => {
            let inode = inodes::load_named(tx, dentry.file)?;
            ctx.effects.size_unknown = inode.size_unknown();
            Ok(inode.attr(dentry.file))
        }
        None => {
            // A name that is there has a directory around it; only now is it
            // worth a look whether there is one at all.
            inodes::load_directory(tx, parent)?;
            Err(ErrorKind::NotFound.into())
        }
    }
}

fn require_search(tx: &mut Tx<'_>, ctx: &Context<'_>, dir: FileId) -> Outcome<()> {
    let inode = inodes::load_directory(tx, dir)?;
    access::require(ctx.caller, &inode, access::SEARCH)
}

fn dots(tx: &mut Tx<'_>, ctx: &Context<'_>, dir: FileId, name: &[u8]) -> Outcome<Attr> {
    let inode = inodes::load_directory(tx, dir)?;
    access::require(ctx.caller, &inode, access::SEARCH)?;
    if name == b"." {
        return Ok(inode.attr(dir));
    }
    Ok(inodes::load_directory(tx, inode.parent)?.attr(inode.parent))
}
