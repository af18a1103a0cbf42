//! Grants space to a growing file with a quota. Changes nothing in the store: granted space is kept
//! in memory, until the client has written it or closes the file.

use crate::ops::{Context, Outcome, inodes, layouts, open, quotas};
use weir_metastore::Tx;
use weir_types::{Error, ErrorKind};
use weir_wire::Rights;
use weir_wire::quota::{Room, RoomRequest};

/// Carries out the request.
///
/// # Errors
/// `QuotaExceeded`.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &RoomRequest) -> Outcome<Room> {
    let file = request.file;
    let inode = inodes::load(tx, file)?;
    inodes::regular(&inode)?;
    open::require_data(ctx, file, &inode, Rights::WRITE)?;
    layouts::check_size(request.end)?;
    if !ctx.has_open(file, Rights::WRITE) {
        // It could not be taken back when the file is closed.
        let message = "space is granted only for files that are open for writing";
        return Err(Error::new(ErrorKind::BadHandle, message).into());
    }
    let up_to = quotas::room(tx, ctx, (file, &inode), request.end)?;
    Ok(Room { up_to: up_to.unwrap_or(u64::MAX) })
}
