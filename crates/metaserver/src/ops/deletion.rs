//! Deletion of files without names, and of segments without a file. Data servers are not contacted:
//! objects become garbage, which replies to heartbeats carry to the servers.

use crate::ops::inodes;
use crate::ops::{ClusterView, Context, Outcome, layouts, links};
use crate::quota;
use crate::schema::{self, Body, DeadList, Inode, Orphan, key};
use weir_metastore::Tx;
use weir_types::limits::SEGMENT_PAGE;
use weir_types::{ErrorKind, FileId, FileKind, ObjectId, Segment, TargetId};
use weir_wire::Rights;

/// The most objects that become garbage in the transaction of an unlink. More are left to the
/// background.
const MAX_OBJECTS_AT_ONCE: usize = 64;

/// Handles the loss of a name of a file (not a directory) in `dir`. A file without names is
/// removed, at once or when it is closed. With `hold` the session has it open from now on.
pub(crate) fn drop_link(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    dir: FileId,
    file: FileId,
    inode: &mut Inode,
    hold: bool,
) -> Outcome<()> {
    links::remove(tx, file, inode, dir)?;
    inode.nlink = inode.nlink.saturating_sub(1);
    inode.changed(ctx.now);
    if inode.nlink > 0 {
        return inodes::store(tx, file, inode);
    }
    // Without room it goes: whoever would have looked at it finds nothing.
    let held = hold && inode.kind == FileKind::File && ctx.opens.check_room(ctx.session).is_ok();
    if held {
        ctx.effects.opened = Some((file, Rights::NONE));
    }
    if held || ctx.opens.may_be_open(file) {
        keep_while_open(tx, ctx, file, dir)?;
        return inodes::store(tx, file, inode);
    }
    forget(tx, ctx, file, inode)
}

/// Keeps a file without names until it is closed. `dir` is where it had its last name, or was made.
pub(crate) fn keep_while_open(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    file: FileId,
    dir: FileId,
) -> Outcome<()> {
    let orphan = Orphan { counted_in: quota::above(tx, ctx.quotas, dir)? };
    tx.put(&key::orphan(file), &schema::encode(&orphan))?;
    ctx.effects.orphaned = Some(file);
    Ok(())
}

/// Prepares a file without names for a new name.
///
/// # Errors
/// `NotFound` for a session that does not have it open: for others it is gone.
pub(crate) fn keep(tx: &mut Tx<'_>, ctx: &mut Context<'_>, file: FileId) -> Outcome<()> {
    if ctx.opens.rights(ctx.session, file).is_none() {
        return Err(ErrorKind::NotFound.into());
    }
    ctx.effects.named = Some(file);
    Ok(tx.delete(&key::orphan(file))?)
}

/// Removes a file without names that is not open.
pub(crate) fn forget(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    file: FileId,
    inode: &Inode,
) -> Outcome<()> {
    tx.delete(&key::inode(file))?;
    if inode.kind == FileKind::Symlink {
        tx.delete(&key::symlink(file))?;
    }
    let xattrs = inode.xattrs > 0;
    match &inode.body {
        Body::File(body) => discard(tx, ctx, file, body.list, xattrs),
        _ if xattrs => queue(tx, ctx, file, 0, xattrs),
        _ => Ok(()),
    }
}

/// Turns a list of segments into garbage, in the background if it is long. The extended attributes
/// go with it if the whole file is removed.
pub(crate) fn discard(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    file: FileId,
    list: u32,
    xattrs: bool,
) -> Outcome<()> {
    let page = layouts::first_page(tx, file, list)?;
    let objects = page.iter().map(|s| s.members().count() * copies(s)).sum::<usize>();
    let only_page = page.len() < SEGMENT_PAGE;
    if xattrs || !only_page || objects > MAX_OBJECTS_AT_ONCE {
        return queue(tx, ctx, file, list, xattrs);
    }
    for (target, object) in page.iter().flat_map(|segment| objects_of(file, segment)) {
        note_garbage(tx, ctx.cluster, target, object)?;
    }
    tx.delete(&key::written(file, list, 0))?;
    Ok(tx.delete(&key::segments(file, list, 0))?)
}

/// Records an object for removal. For a removed target nothing is recorded, because no server could
/// remove it, or confirm that.
pub(crate) fn note_garbage(
    tx: &mut Tx<'_>,
    cluster: &ClusterView,
    target: TargetId,
    object: ObjectId,
) -> Outcome<()> {
    if cluster.target(target).is_some() {
        tx.put(&key::garbage(target, object), &[])?;
    }
    Ok(())
}

fn queue(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    file: FileId,
    list: u32,
    xattrs: bool,
) -> Outcome<()> {
    ctx.effects.dead_list = true;
    let record = DeadList { xattrs, objects_done: 0 };
    Ok(tx.put(&key::dead(file, list), &schema::encode(&record))?)
}

fn copies(segment: &Segment) -> usize {
    segment.columns.first().map_or(0, |column| column.targets.len())
}

/// Every object of a segment, with its target.
pub(crate) fn objects_of(
    file: FileId,
    segment: &Segment,
) -> impl Iterator<Item = (TargetId, ObjectId)> + '_ {
    segment.members().flat_map(move |(column, placed)| {
        placed.copies().map(move |(copy, target)| {
            let object = ObjectId { file, segment: segment.index, column, copy };
            (target, object)
        })
    })
}
