//! Sets an extended attribute.

use crate::ops::{Context, Outcome, acls, hints, inodes, xattrs};
use crate::schema::key;
use weir_metastore::Tx;
use weir_types::ErrorKind;
use weir_types::limits::MAX_XATTR_BYTES;
use weir_wire::meta::{SetXattrRequest, XattrMode};

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &SetXattrRequest) -> Outcome<()> {
    if let Some(kind) = acls::Kind::named(&request.name) {
        // Whether there is one already makes no difference, on Linux.
        return acls::change(tx, ctx, (request.file, kind), &request.value);
    }
    let class = xattrs::class(&request.name)?;
    if request.value.len() > MAX_XATTR_BYTES {
        return Err(ErrorKind::TooBig.into());
    }
    hints::check(&request.name, &request.value)?;
    let mut inode = inodes::load(tx, request.file)?;
    xattrs::require_write(ctx, &inode, class)?;
    let at = key::xattr(request.file, &request.name);
    match (tx.get(&at)?.is_some(), request.mode) {
        (true, XattrMode::Create) => return Err(ErrorKind::Exists.into()),
        (false, XattrMode::Replace) => return Err(ErrorKind::NoAttribute.into()),
        (true, _) => {}
        (false, _) => {
            inode.xattrs += 1;
            inode.xattr_name_bytes += request.name.len() as u32 + 1;
            if inode.xattr_name_bytes > xattrs::MAX_XATTR_LIST_BYTES {
                return Err(ErrorKind::NoSpace.into());
            }
        }
    }
    tx.put(&at, &request.value)?;
    inode.changed(ctx.now);
    inodes::store(tx, request.file, &inode)
}
