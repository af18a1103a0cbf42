//! Records that a truncation has reached the objects.

use crate::ops::{Context, Outcome, inodes, open};
use weir_metastore::Tx;
use weir_wire::Rights;
use weir_wire::lease::TO_THE_END;
use weir_wire::meta::{PendingTruncate, TruncateDoneRequest};

/// Carries out the request. A report that was overtaken by another truncation changes nothing: the
/// later one cuts at least as much.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &TruncateDoneRequest) -> Outcome<()> {
    let mut inode = inodes::load(tx, request.file)?;
    inodes::regular(&inode)?;
    open::require_data(ctx, request.file, &inode, Rights::WRITE)?;
    let body = inodes::regular_mut(&mut inode)?;
    // A fence against a writer that died ends with the size that is found.
    let is_it = |p: &PendingTruncate| p.generation == request.generation && p.size != TO_THE_END;
    if !body.pending_truncate.as_ref().is_some_and(is_it) {
        return Ok(());
    }
    body.pending_truncate = None;
    inodes::store(tx, request.file, &inode)
}
