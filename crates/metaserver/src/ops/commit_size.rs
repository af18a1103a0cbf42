//! Writing has led to this size and time.

use crate::ops::{Context, Outcome, inodes, layouts, open};
use weir_metastore::Tx;
use weir_types::{Attr, Error, ErrorKind};
use weir_wire::Rights;
use weir_wire::meta::{CommitSizeRequest, SetTime};

/// Does it. What was written before a truncation does not count, and the
/// client is told: it may have gone to objects that are no longer the file's.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &CommitSizeRequest) -> Outcome<Attr> {
    let file = request.file;
    let mut inode = inodes::load(tx, file)?;
    inodes::regular(&inode)?;
    open::require_data(ctx, file, &inode, Rights::WRITE)?;
    layouts::check_size(request.size)?;
    if request.generation != inode.generation {
        let what = "the file was truncated after what was written";
        return Err(Error::new(ErrorKind::Stale, what).into());
    }
    let grows = request.size > inode.size;
    if !(grows || request.mtime.is_some()) {
        return Ok(inode.attr(file));
    }
    inode.size = inode.size.max(request.size);
    inode.mtime = match request.mtime {
        None => inode.mtime,
        Some(SetTime::Now) => ctx.now,
        // A report that is late must not undo a newer one; one that is in time
        // counts even if somebody had set a time in the future.
        Some(SetTime::At(time)) if time < inode.ctime => time.max(inode.mtime),
        Some(SetTime::At(time)) => time,
    };
    inode.changed(ctx.now);
    inodes::store(tx, file, &inode)?;
    Ok(inode.attr(file))
}
