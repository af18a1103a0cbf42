//! Returns a page of a directory, in the order of cookies. Entries that exist throughout are listed
//! exactly once, whatever else is made or removed. Cookies grow, and a listing ends with the
//! greatest one from its beginning: so it ends, however many names are added meanwhile.

use crate::ops::{Context, Outcome, access, inodes};
use crate::schema::{self, ListEntry, key};
use weir_metastore::Tx;
use weir_types::Error;
use weir_types::limits::MAX_READDIR_ENTRIES;
use weir_wire::meta::{DirEntry, DirPage, ReaddirRequest};

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &ReaddirRequest) -> Outcome<DirPage> {
    let mut inode = inodes::load_directory(tx, request.dir)?;
    access::require(ctx.caller, &inode, access::READ)?;
    let limit = (request.max_entries as usize).clamp(1, MAX_READDIR_ENTRIES);
    let newest = inodes::directory(&mut inode)?.next_cookie.saturating_sub(1);
    let last = if request.last == 0 { newest } else { request.last.min(newest) };
    if request.cookie >= last {
        return Ok(DirPage { entries: Vec::new(), end: true, last });
    }
    let (from, behind) = (request.cookie + 1, last.saturating_add(1));
    let end = key::listing(request.dir, behind);
    let found = tx.range(&key::listing(request.dir, from), &end, limit)?;
    let end = found.len() < limit;
    let mut entries = Vec::with_capacity(found.len());
    for (key, record) in found {
        let cookie = key::listing_cookie(&key).map_err(Error::from)?;
        let ListEntry { name, file, kind } = schema::decode(&record, "of a listing")?;
        let attr = match request.attributes {
            // Whoever needs them asks, and the writers are asked then.
            true if !ctx.leases.is_unsettled(ctx.session, file) => {
                let inode = inodes::find(tx, file)?.filter(|inode| !inode.size_unknown());
                inode.map(|inode| inode.attr(file))
            }
            _ => None,
        };
        entries.push(DirEntry { name, file, kind, cookie, attr });
    }
    Ok(DirPage { entries, end, last })
}
