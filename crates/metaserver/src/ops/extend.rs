//! Grants segments ahead of a writer.

use crate::ops::{Context, Outcome, access, get_layout, inodes, layouts, open};
use weir_metastore::Tx;
use weir_types::ErrorKind;
use weir_types::limits::{MAX_FILE_BYTES, MAX_SEGMENTS};
use weir_wire::Rights;
use weir_wire::meta::{ExtendRequest, LayoutPage};

/// Segments granted beyond the one that is asked for, so that a writer in
/// sequence asks once for each so many.
const AHEAD: u64 = 7;

/// Does it. The reply begins with the segment that holds `offset`; for an
/// offset far ahead it may take several requests to get there, each of which
/// returns what was granted last.
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
        let chunk = layouts::chunk_bytes(&body.spec);
        let most = MAX_FILE_BYTES.min(chunk.saturating_mul(MAX_SEGMENTS as u64));
        let ahead = (request.offset + 1).saturating_add(AHEAD.saturating_mul(chunk)).min(most);
        layouts::extend(tx, ctx, file, body, ahead.max(request.offset + 1))?;
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
