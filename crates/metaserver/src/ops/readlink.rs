//! Returns the target of a symbolic link.

use crate::ops::{Context, Outcome, inodes};
use crate::schema::key;
use weir_metastore::Tx;
use weir_types::codec::Bytes;
use weir_types::{ErrorKind, FileKind};
use weir_wire::meta::ReadlinkRequest;

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, _ctx: &mut Context<'_>, request: &ReadlinkRequest) -> Outcome<Bytes> {
    if inodes::load(tx, request.file)?.kind != FileKind::Symlink {
        return Err(ErrorKind::InvalidArgument.into());
    }
    match tx.get(&key::symlink(request.file))? {
        Some(target) => Ok(Bytes(target.to_vec())),
        None => Err(inodes::corrupt(request.file, "it is a symbolic link without a target")),
    }
}
