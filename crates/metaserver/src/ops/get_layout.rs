//! Returns more of a layout, with a capability for the targets of that part.

use crate::ops::{Context, Outcome, inodes, layouts, open};
use crate::schema::{Inode, RegularFile};
use weir_metastore::Tx;
use weir_types::FileId;
use weir_wire::Rights;
use weir_wire::meta::{GetLayoutRequest, LayoutPage};

/// Carries out the request.
pub fn run(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    request: &GetLayoutRequest,
) -> Outcome<LayoutPage> {
    let inode = inodes::load(tx, request.file)?;
    let body = inodes::regular(&inode)?;
    open::require_data(ctx, request.file, &inode, request.rights)?;
    page(tx, ctx, (request.file, &inode, body), request.offset, request.rights)
}

/// The part of a layout that begins with the segment of `offset`; without segments if none was
/// granted there.
pub(crate) fn page(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    (file, inode, body): (FileId, &Inode, &RegularFile),
    offset: u64,
    rights: Rights,
) -> Outcome<LayoutPage> {
    let (segments, more_segments) = layouts::segments_from(tx, file, body.list, offset)?;
    let capability = ctx.sign(file, rights, &segments);
    let layout = layouts::acting_now(ctx, file, body, body.layout(segments), rights);
    let generation = inode.generation;
    Ok(LayoutPage { layout, more_segments, generation, capability })
}
