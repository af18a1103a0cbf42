//! Removes an extended attribute.

use crate::ops::{Context, Outcome, acls, inodes, xattrs};
use crate::schema::key;
use weir_metastore::Tx;
use weir_types::ErrorKind;
use weir_wire::meta::RemoveXattrRequest;

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &RemoveXattrRequest) -> Outcome<()> {
    if let Some(kind) = acls::Kind::named(&request.name) {
        return acls::change(tx, ctx, (request.file, kind), &[]);
    }
    let class = xattrs::class(&request.name)?;
    let mut inode = inodes::load(tx, request.file)?;
    if !xattrs::drops_privilege(ctx, (request.file, &inode), &request.name) {
        xattrs::require_write(ctx, &inode, class)?;
    }
    let at = key::xattr(request.file, &request.name);
    if tx.get(&at)?.is_none() {
        return Err(ErrorKind::NoAttribute.into());
    }
    tx.delete(&at)?;
    inode.xattrs = inode.xattrs.saturating_sub(1);
    inode.xattr_name_bytes = inode.xattr_name_bytes.saturating_sub(request.name.len() as u32 + 1);
    inode.changed(ctx.now);
    inodes::store(tx, request.file, &inode)
}
