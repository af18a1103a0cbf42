//! Attributes of a file. Needs no permission on it.

use crate::ops::{Context, Outcome, inodes};
use weir_metastore::Tx;
use weir_types::Attr;
use weir_wire::meta::GetAttrRequest;

/// Does it.
pub fn run(tx: &mut Tx<'_>, _ctx: &mut Context<'_>, request: &GetAttrRequest) -> Outcome<Attr> {
    Ok(inodes::load(tx, request.file)?.attr(request.file))
}
