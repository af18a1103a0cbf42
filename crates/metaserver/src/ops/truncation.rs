//! Changes of a file's size.

use crate::ops::{Context, Outcome, deletion, inodes, layouts};
use crate::schema::{Holes, Inode};
use weir_metastore::Tx;
use weir_types::{FileId, FileLayout, Generation};
use weir_wire::lease::TO_THE_END;
use weir_wire::meta::PendingTruncate;

/// Sets the size of a regular file. The caller stores the inode. Returns the first page of the
/// layout if that is new.
///
/// - Size 0: the segments become garbage and new ones take their place.
/// - A smaller or equal size (more may have been written than was committed): the clients truncate
///   the objects, and older writes are fenced off.
/// - A larger size: only the size changes.
pub(crate) fn resize(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    file: FileId,
    inode: &mut Inode,
    size: u64,
) -> Outcome<Option<FileLayout>> {
    layouts::check_size(size)?;
    if size == 0 {
        return empty(tx, ctx, file, inode).map(Some);
    }
    // After a writer that died nobody knows how much there is to cut.
    let unknown = inodes::regular(inode)?
        .pending_truncate
        .as_ref()
        .is_some_and(|pending| pending.size == TO_THE_END);
    let shrinks = size <= inode.size || unknown;
    let grows = size > inode.size;
    let generation = Generation(inode.generation.0 + u64::from(shrinks));
    let body = inodes::regular_mut(inode)?;
    if shrinks {
        ctx.effects.objects_follow = true;
        let earlier = body.pending_truncate.as_ref().map_or(size, |pending| pending.size);
        let cut = PendingTruncate { generation, size: size.min(earlier) };
        body.pending_truncate = Some(cut);
    }
    if grows {
        layouts::extend(tx, ctx, (file, body), size, &[])?;
    }
    inode.generation = generation;
    inode.holes = inode.holes.resized(inode.size, size);
    inode.size = size;
    inode.modified(ctx.now);
    Ok(None)
}

/// Empties a file and lays it out according to its spec.
pub(crate) fn empty(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    file: FileId,
    inode: &mut Inode,
) -> Outcome<FileLayout> {
    ctx.effects.objects_follow = true;
    let body = inodes::regular_mut(inode)?;
    deletion::discard(tx, ctx, file, body.list, false)?;
    body.list += 1;
    body.pending_truncate = None;
    let layout = layouts::lay_out(tx, ctx, file, body)?;
    inode.generation = Generation(inode.generation.0 + 1);
    inode.size = 0;
    inode.holes = Holes::None;
    inode.modified(ctx.now);
    Ok(layout)
}
