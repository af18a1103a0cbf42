//! Grants a lease. Conflicting leases were given up before; the machine has set the granted range
//! in the request.

use crate::ops::{Context, Outcome, inodes};
use weir_metastore::Tx;
use weir_types::{Error, ErrorKind};
use weir_wire::Rights;
use weir_wire::lease::{AcquireRequest, Granted, LeaseMode};

/// Carries out the request.
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

/// Whether a session that has a file open with these rights may have such a lease. (Finding holes
/// takes a read lease, even for a session that may only write. It shows no bytes.)
pub(crate) fn may_hold(rights: Rights, mode: LeaseMode) -> bool {
    let reads = mode == LeaseMode::Read && rights.allow(Rights::READ);
    reads || rights.allow(Rights::WRITE)
}
