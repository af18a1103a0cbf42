//! Returns a page of a directory, in the order of cookies. Entries that exist throughout are listed
//! exactly once, whatever else is made or removed. Cookies grow, and a listing ends with the
//! greatest one from its beginning: so it ends, however many names are added meanwhile.

use crate::ops::{Context, Outcome, access, inodes, layouts};
use crate::schema::{self, Body, Inode, ListEntry, key};
use weir_metastore::Tx;
use weir_types::limits::{MAX_READDIR_ENTRIES, MAX_READDIR_LAYOUT_BYTES};
use weir_types::{Encode, Error, FileId, FileLayout};
use weir_wire::meta::{DirEntry, DirPage, ReaddirRequest};

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &ReaddirRequest) -> Outcome<DirPage> {
    let mut inode = inodes::load_directory(tx, request.dir)?;
    access::require(ctx.caller, &inode, access::READ)?;
    // Without this right nobody opens a file by its name: nor is it told where its bytes are.
    let layouts = request.layouts && access::allows(ctx.caller, &inode, access::SEARCH);
    let limit = (request.max_entries as usize).clamp(1, MAX_READDIR_ENTRIES);
    let newest = inodes::directory(&mut inode)?.next_cookie.saturating_sub(1);
    let last = if request.last == 0 { newest } else { request.last.min(newest) };
    if request.cookie >= last {
        return Ok(DirPage { entries: Vec::new(), end: true, last });
    }
    let (from, behind) = (request.cookie + 1, last.saturating_add(1));
    let end = key::listing(request.dir, behind);
    let found = tx.range(&key::listing(request.dir, from), &end, limit)?;
    let mut end = found.len() < limit;
    let mut layout_bytes = 0;
    let mut entries = Vec::with_capacity(found.len());
    for (key, record) in found {
        let cookie = key::listing_cookie(&key).map_err(Error::from)?;
        let ListEntry { name, file, kind } = schema::decode(&record, "of a listing")?;
        let inode = match request.attributes {
            // Whoever needs them asks, and the writers are asked then.
            true if !ctx.leases.is_unsettled(ctx.session, file) => {
                inodes::find(tx, file)?.filter(|inode| !inode.size_unknown())
            }
            _ => None,
        };
        let mut layout = None;
        if let Some(inode) = inode.as_ref().filter(|_| layouts) {
            layout = layout_of(tx, ctx, file, inode)?;
            let bytes = layout.as_ref().map_or(0, |layout| layout.to_bytes().len());
            if bytes > MAX_READDIR_LAYOUT_BYTES {
                layout = None;
            } else if layout_bytes + bytes > MAX_READDIR_LAYOUT_BYTES {
                end = false;
                break;
            } else {
                layout_bytes += bytes;
            }
        }
        let attr = inode.map(|inode| inode.attr(file));
        entries.push(DirEntry { name, file, kind, cookie, attr, layout });
    }
    Ok(DirPage { entries, end, last })
}

/// The layout of a regular file that the caller may read, unless it has further pages.
fn layout_of(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    file: FileId,
    inode: &Inode,
) -> Outcome<Option<FileLayout>> {
    let Body::File(body) = &inode.body else { return Ok(None) };
    if !access::allows(ctx.caller, inode, access::READ) {
        return Ok(None);
    }
    let (segments, more_segments) = layouts::segments_from(tx, file, body.list, 0)?;
    Ok((!more_segments).then(|| body.layout(segments)))
}
