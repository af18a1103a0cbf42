//! Grants segments ahead of a writer.

use crate::ops::{Context, Outcome, access, get_layout, inodes, layouts, open};
use weir_layout::place::segment_bytes;
use weir_metastore::Tx;
use weir_types::limits::{MAX_FILE_BYTES, MAX_SEGMENTS};
use weir_types::{ErrorKind, Placement};
use weir_wire::Rights;
use weir_wire::meta::{ExtendRequest, LayoutPage};

/// Segments granted beyond the requested one, so that a sequential writer asks once for several.
const AHEAD: u64 = 7;

/// Carries out the request. The reply begins with the segment of `offset`. If `offset` is far
/// ahead, several requests may be needed, each of which returns the last granted segments.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &ExtendRequest) -> Outcome<LayoutPage> {
    let file = request.file;
    let mut inode = inodes::load(tx, file)?;
    inodes::regular(&inode)?;
    open::require_data(ctx, file, &inode, Rights::WRITE)?;
    if request.offset >= MAX_FILE_BYTES {
        return Err(ErrorKind::FileTooLarge.into());
    }
    ctx.effects.objects_follow = true;
    let body = inodes::regular_mut(&mut inode)?;
    let before = body.epoch;
    let (found, _) = layouts::segments_from(tx, file, body.list, request.offset)?;
    if found.is_empty() {
        let chunk = segment_bytes(&body.spec);
        let most = MAX_FILE_BYTES.min(chunk.saturating_mul(MAX_SEGMENTS as u64));
        // Where the next chunk goes is found when it is there to be written.
        let is_chosen_late = body.spec.placement == Placement::Graduated;
        let more = if is_chosen_late { 0 } else { AHEAD.saturating_mul(chunk) };
        let ahead = (request.offset + 1).saturating_add(more).min(most);
        let before = request.from.min(most) / chunk * chunk;
        let up_to = ahead.max(request.offset + 1).max(before);
        layouts::extend(tx, ctx, (file, body), up_to, &request.waits)?;
    }
    if body.epoch != before {
        inodes::store(tx, file, &inode)?;
    }
    let body = inodes::regular(&inode)?;
    let reads =
        ctx.has_open(file, Rights::READ) || access::allows(ctx.caller, &inode, access::READ);
    let rights = if reads { Rights::READ_WRITE } else { Rights::WRITE };
    get_layout::page(tx, ctx, (file, &inode, body), request.offset, rights)
}
