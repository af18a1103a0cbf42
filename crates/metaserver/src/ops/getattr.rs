//! Attributes of a file. Needs no permission on it.

use crate::ops::{Context, Outcome, inodes};
use weir_metastore::Tx;
use weir_types::Attr;
use weir_wire::meta::GetAttrRequest;

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &GetAttrRequest) -> Outcome<Attr> {
    let inode = inodes::load(tx, request.file)?;
    ctx.effects.size_unknown = inode.size_unknown();
    Ok(inode.attr(request.file))
}
