//! Grants a lease. Who was in the way has given way; what the lease is is
//! decided by the machine, which has widened the request to what it grants.

use crate::ops::{Context, Outcome, inodes};
use weir_metastore::Tx;
use weir_types::{Error, ErrorKind};
use weir_wire::Rights;
use weir_wire::lease::{AcquireRequest, Granted, LeaseMode};

/// Does it.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &AcquireRequest) -> Outcome<Granted> {
    let file = request.lease.file;
    let inode = inodes::load(tx, file)?;
    let body = inodes::regular(&inode)?;
    // Leases end with the last close: without an open this one would not.
    let rights = ctx.opens.rights(ctx.session, file);
    if !rights.is_some_and(|rights| may_hold(rights, request.lease.mode)) {
        let message = format!("a lease on file {file} needs it open for that in the same session");
        return Err(Error::new(ErrorKind::InvalidArgument, message).into());
    }
    // Whoever is told of a fence carries it out.
    ctx.effects.objects_follow |= body.pending_truncate.is_some();
    Ok(Granted {
        lease: request.lease.clone(),
        attr: inode.attr(file),
        pending_truncate: body.pending_truncate.clone(),
    })
}

/// Whether who has a file open with these rights may have such a lease on it. (To look for holes
/// takes one to read, also of who may only write. It opens no bytes.)
pub(crate) fn may_hold(rights: Rights, mode: LeaseMode) -> bool {
    let reads = mode == LeaseMode::Read && rights.allow(Rights::READ);
    reads || rights.allow(Rights::WRITE)
}
