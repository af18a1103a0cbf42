//! Records that the fence against a dead writer has reached all objects, and the file's size that
//! follows from them.

use crate::ops::{Context, Outcome, inodes, layouts, open};
use weir_metastore::Tx;
use weir_types::{Attr, FileId, Generation};
use weir_wire::Rights;
use weir_wire::lease::{RecoveredRequest, TO_THE_END};
use weir_wire::meta::PendingTruncate;

/// Carries out the request. A report that was overtaken by another fence or a truncation changes
/// nothing. A read-only client may carry a fence out, too, so it may report it.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &RecoveredRequest) -> Outcome<Attr> {
    let file = request.file;
    let mut inode = inodes::load(tx, file)?;
    inodes::regular(&inode)?;
    if !ctx.has_open(file, Rights::WRITE) {
        open::require_data(ctx, file, &inode, Rights::READ)?;
    }
    layouts::check_size(request.size)?;
    let body = inodes::regular_mut(&mut inode)?;
    let is_it = body.pending_truncate.as_ref().is_some_and(|pending| {
        pending.generation == request.generation && pending.size == TO_THE_END
    });
    if !is_it {
        return Ok(inode.attr(file));
    }
    body.pending_truncate = None;
    if request.size > inode.size {
        inode.holes = inode.holes.resized(inode.size, request.size);
        inode.size = request.size;
        inode.modified(ctx.now);
    }
    inodes::store(tx, file, &inode)?;
    Ok(inode.attr(file))
}

/// Fences off all earlier writers of a file: the next client that opens it carries the fence to the
/// objects. Returns whether the file exists.
pub fn fence(tx: &mut Tx<'_>, file: FileId) -> Outcome<bool> {
    let Some(mut inode) = inodes::find(tx, file)? else { return Ok(false) };
    let generation = Generation(inode.generation.0 + 1);
    let Ok(body) = inodes::regular_mut(&mut inode) else { return Ok(false) };
    // A truncation that nobody has finished cuts as before, under the new fence:
    // who has not carried it out has not written.
    let size = body.pending_truncate.as_ref().map_or(TO_THE_END, |pending| pending.size);
    body.pending_truncate = Some(PendingTruncate { generation, size });
    inode.generation = generation;
    inode.change += 1;
    inodes::store(tx, file, &inode)?;
    Ok(true)
}
