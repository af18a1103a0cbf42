//! The value of an extended attribute.

use crate::ops::{Context, Outcome, acls, inodes, xattrs};
use crate::schema::key;
use weir_metastore::Tx;
use weir_types::ErrorKind;
use weir_types::codec::Bytes;
use weir_wire::meta::GetXattrRequest;

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &GetXattrRequest) -> Outcome<Bytes> {
    if let Some(kind) = acls::Kind::named(&request.name) {
        return acls::value(tx, request.file, kind);
    }
    let class = xattrs::class(&request.name)?;
    let inode = inodes::load(tx, request.file)?;
    xattrs::require_read(ctx, &inode, class)?;
    if inode.xattrs == 0 {
        // The kernel asks this of every file that is written to.
        return Err(ErrorKind::NoAttribute.into());
    }
    match tx.get(&key::xattr(request.file, &request.name))? {
        Some(value) => Ok(Bytes(value.to_vec())),
        None => Err(ErrorKind::NoAttribute.into()),
    }
}
