//! Voids the capabilities for a file when its owner, permissions or access control list let anybody
//! do less with its data than before.

use crate::ops::{Context, Outcome};
use crate::schema::Inode;
use weir_metastore::Tx;
use weir_types::{FileId, FileKind};

/// Bits of the mode that permit reading or writing.
const DATA_BITS: u16 = 0o666;

/// Whether a change lets somebody do less with the data.
pub(crate) fn takes_rights(before: Standing, after: Standing) -> bool {
    let fewer = before.mode & !after.mode & DATA_BITS != 0;
    fewer || (before.uid, before.gid) != (after.uid, after.gid)
}

/// What says who may do what with a file, besides an access control list.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    mode: u16,
    uid: u32,
    gid: u32,
}

impl Standing {
    pub(crate) fn of(inode: &Inode) -> Self {
        let Inode { mode, uid, gid, .. } = *inode;
        Self { mode, uid, gid }
    }
}

/// Voids the capabilities. A session that has the file open may get new ones: an open descriptor
/// outlives permissions.
pub(crate) fn run(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    (file, inode): (FileId, &Inode),
) -> Outcome<()> {
    if inode.kind == FileKind::File {
        ctx.effects.marked_until_ms = ctx.revoked.mark(tx, ctx.now_unix_ms())?;
        ctx.effects.revoked = Some(file);
    }
    Ok(())
}
