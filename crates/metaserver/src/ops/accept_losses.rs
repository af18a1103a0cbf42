//! Columns of a file without a whole copy, since all were on removed targets: lists them, and, if
//! an administrator accepts their loss, goes on with what is left. That is an unfinished copy with
//! the bytes that it has got, or a new, empty one.

use crate::mover::plan::{Place, without_parities};
use crate::ops::{Context, Outcome, deletion, inodes, layouts, move_copies};
use crate::schema::key;
use weir_layout::{TargetInfo, place::FULL_BELOW_BYTES};
use weir_metastore::Tx;
use weir_types::{
    Column, ColumnIndex, CopyIndex, Epoch, Error, ErrorKind, FileId, ObjectId, Segment,
    SegmentState, TargetId,
};
use weir_wire::targets::{AcceptLossesRequest, LossPage, LostColumn};

/// The most columns that are changed in one transaction.
const MAX_CHANGED: usize = 64;

/// Carries out the request for one page of segments.
pub fn run(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    request: &AcceptLossesRequest,
) -> Outcome<LossPage> {
    let AcceptLossesRequest { file, from, accept } = *request;
    let mut inode = inodes::load(tx, file)?;
    let body = inodes::regular(&inode)?.clone();
    let mut page = layouts::page_at(tx, file, body.list, from)?;
    let (_, more) = layouts::segments_from(tx, file, body.list, from)?;
    let mut next = page.last().filter(|_| more).map(Segment::end);
    let epoch = Epoch(body.epoch.0 + 1);
    let (mut columns, mut emptied, mut changed) = (Vec::new(), Vec::new(), false);
    'page: for (position, segment) in page.iter_mut().enumerate() {
        let any = (0..segment.columns.len())
            .any(|at| lost(ctx, segment, ColumnIndex(at as u16)).is_some());
        // Parities that are being made may be of what another copy of a column has, which orders
        // its changes no more after this.
        let are_made = segment.state == SegmentState::Sealed && !segment.is_coded();
        if accept && (any || are_made) {
            drop_parities(tx, ctx, file, segment)?;
        }
        if accept && are_made {
            (segment.epoch, changed) = (epoch, true);
        }
        for at in 0..segment.columns.len() {
            let Some(lost) = lost(ctx, segment, ColumnIndex(at as u16)) else { continue };
            if accept && columns.len() == MAX_CHANGED {
                // What has been accepted is not found again.
                next = Some(segment.start);
                break 'page;
            }
            if accept {
                if go_on_with_nothing(tx, ctx, file, segment, lost.column)? {
                    emptied.push((position, at));
                }
                segment.epoch = epoch;
            }
            columns.push(lost);
        }
    }
    if accept {
        if changed || !columns.is_empty() {
            layouts::put_page(tx, file, body.list, &page)?;
            layouts::forget_written(tx, (file, body.list), &page, &emptied)?;
            ctx.effects.copies = Some(file);
        }
        // What was kept of the file before is not what it has now, here or in copies that
        // are about to be accepted.
        move_copies::raise(&mut inode, epoch)?;
        inode.changed(ctx.now);
        inodes::store(tx, file, &inode)?;
        ctx.effects.losses_accepted = Some((file, columns.len() as u64));
        ctx.effects.objects_follow = true;
    }
    Ok(LossPage { columns, next })
}

/// A column without a whole copy on a target of the cluster, that cannot be computed either.
fn lost(ctx: &Context<'_>, segment: &Segment, column: ColumnIndex) -> Option<LostColumn> {
    let known = |target: &TargetId| ctx.cluster.targets.iter().any(|info| info.target == *target);
    let targets = whole(segment, column);
    let there =
        || segment.members().filter(|(of, _)| whole(segment, *of).iter().any(known)).count();
    let is_computed = || segment.is_coded() && there() >= segment.columns.len();
    let is_lost = !(targets.iter().any(known) || is_computed());
    is_lost.then_some(LostColumn { segment: segment.index, start: segment.start, column, targets })
}

/// The targets of a column's whole copies.
fn whole(segment: &Segment, column: ColumnIndex) -> Vec<TargetId> {
    let member = segment.member(usize::from(column.0));
    let copies = member.into_iter().flat_map(Column::copies);
    let whole = copies.filter(|(copy, _)| !segment.is_filling(column, *copy));
    whole.map(|(_, target)| target).collect()
}

/// Makes a segment one of copies. Its parities are those of a column that is given up.
fn drop_parities(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    file: FileId,
    segment: &mut Segment,
) -> Outcome<()> {
    let (plain, dropped) = without_parities(segment);
    for Place { column, copy, target } in dropped {
        let object = ObjectId { file, segment: segment.index, column, copy };
        deletion::note_garbage(tx, ctx.cluster, target, object)?;
    }
    *segment = plain;
    Ok(())
}

/// Gives a column a copy. Returns whether it is empty.
fn go_on_with_nothing(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    file: FileId,
    segment: &mut Segment,
    column: ColumnIndex,
) -> Outcome<bool> {
    let placed = &segment.columns[usize::from(column.0)];
    let online = |target: TargetId| {
        ctx.cluster.targets.iter().any(|info| info.target == target && info.online)
    };
    if let Some((copy, _)) = placed.copies().find(|(_, target)| online(*target)) {
        segment.filling.retain(|f| (f.column, f.copy) != (column, copy));
        return Ok(false);
    }
    let (copy, target) = room(tx, ctx, file, segment, column)?;
    let targets = &mut segment.columns[usize::from(column.0)].targets;
    targets.fill(TargetId::NONE);
    targets[usize::from(copy.0)] = target;
    segment.filling.retain(|f| f.column != column);
    Ok(true)
}

/// Place of a new copy. Not where an old object of that name still has to be removed, which would
/// remove the new one too.
fn room(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    file: FileId,
    segment: &Segment,
    column: ColumnIndex,
) -> Outcome<(CopyIndex, TargetId)> {
    let online = ctx.cluster.targets.iter().filter(|info| info.online);
    let mut all: Vec<&TargetInfo> = online.collect();
    all.sort_by_key(|info| info.free_bytes < FULL_BELOW_BYTES);
    let roomy = all.iter().filter(|info| info.free_bytes >= FULL_BELOW_BYTES).count();
    // Neighbours go to different targets.
    let turn = (file.0 + u64::from(segment.index.0) + u64::from(column.0)) as usize;
    all[..roomy].rotate_left(turn.checked_rem(roomy).unwrap_or(0));
    for copy in 0..segment.columns[usize::from(column.0)].targets.len() {
        let copy = CopyIndex(copy as u8);
        for info in &all {
            let object = ObjectId { file, segment: segment.index, column, copy };
            if tx.get(&key::garbage(info.target, object))?.is_none() {
                return Ok((copy, info.target));
            }
        }
    }
    let message = "no target can take a new copy now: bring one back, or add one";
    Err(Error::new(ErrorKind::Unreachable, message).into())
}
