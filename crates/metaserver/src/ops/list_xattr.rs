//! The names of all extended attributes.

use crate::ops::{Context, Outcome, access, inodes};
use crate::schema::key::{self, XATTR_NAME_AT};
use weir_metastore::Tx;
use weir_types::codec::Bytes;
use weir_types::limits::MAX_LIST_LEN;
use weir_wire::meta::ListXattrRequest;

/// Carries out the request. The limit on the names of one file bounds the reply.
pub fn run(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    request: &ListXattrRequest,
) -> Outcome<Vec<Bytes>> {
    if inodes::load(tx, request.file)?.xattrs == 0 {
        return Ok(Vec::new());
    }
    let (start, end) = key::xattrs_of(request.file);
    let found = tx.range(&start, &end, MAX_LIST_LEN)?;
    let names = found.iter().filter_map(|(key, _)| key.get(XATTR_NAME_AT..));
    let root = access::is_root(ctx.caller);
    Ok(names.filter(|name| root || !name.starts_with(b"trusted.")).map(Bytes::from).collect())
}
