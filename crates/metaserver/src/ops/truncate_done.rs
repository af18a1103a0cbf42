//! A truncation has reached the objects.

use crate::ops::{Context, Outcome, inodes, open};
use weir_metastore::Tx;
use weir_wire::Rights;
use weir_wire::meta::TruncateDoneRequest;

/// Does it. One that has been overtaken by another truncation changes nothing:
/// that one cuts at least as much.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &TruncateDoneRequest) -> Outcome<()> {
    let mut inode = inodes::load(tx, request.file)?;
    inodes::regular(&inode)?;
    open::require_data(ctx, request.file, &inode, Rights::WRITE)?;
    let body = inodes::regular_mut(&mut inode)?;
    if body.pending_truncate.as_ref().is_none_or(|p| p.generation != request.generation) {
        return Ok(());
    }
    body.pending_truncate = None;
    inodes::store(tx, request.file, &inode)
}
