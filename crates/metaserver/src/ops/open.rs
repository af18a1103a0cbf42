//! Opens a file: returns its layout and a capability for its objects.

use crate::ops::{Context, Outcome, access, inodes, layouts};
use crate::schema::Inode;
use weir_metastore::Tx;
use weir_types::{ErrorKind, FileId, FileKind};
use weir_wire::Rights;
use weir_wire::meta::{OpenFile, OpenRequest};

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &OpenRequest) -> Outcome<OpenFile> {
    let inode = inodes::load(tx, request.file)?;
    require_openable(ctx, &inode, request.rights)?;
    ctx.opens.check_room(ctx.session)?;
    ctx.effects.opened = Some((request.file, request.rights));
    let open = layouts::open_file(tx, ctx, (request.file, &inode), request.rights, None)?;
    let loads = match request.rights.allow(Rights::READ) {
        true => layouts::loads_of(ctx.cluster, &open.layout),
        false => Vec::new(),
    };
    Ok(OpenFile { loads, ..open })
}

/// Refuses files that cannot be opened, or not by this caller.
pub(crate) fn require_openable(ctx: &Context<'_>, inode: &Inode, rights: Rights) -> Outcome<()> {
    match inode.kind {
        FileKind::Directory => Err(ErrorKind::IsDirectory.into()),
        FileKind::Symlink => Err(ErrorKind::SymlinkLoop.into()),
        _ => access::require(ctx.caller, inode, access::bits_for(rights)),
    }
}

/// Checks that the session may use the data of a file: it has the file open for that, or the
/// caller's permissions allow it.
pub(crate) fn require_data(
    ctx: &Context<'_>,
    file: FileId,
    inode: &Inode,
    rights: Rights,
) -> Outcome<()> {
    if ctx.has_open(file, rights) {
        return Ok(());
    }
    access::require(ctx.caller, inode, access::bits_for(rights))
}
