//! Records size, time and written columns after writes.

use crate::ops::{Context, Outcome, inodes, layouts, open, quotas};
use crate::schema::{Holes, Inode, RegularFile};
use weir_metastore::Tx;
use weir_types::limits::{MAX_WRITTEN_RANGES, MAX_WRITTEN_SEGMENTS};
use weir_types::{Attr, Error, ErrorKind, FileId};
use weir_wire::Rights;
use weir_wire::meta::{CommitSizeRequest, SetTime, WrittenColumns};

/// Carries out the request. Writes from before a truncation do not count, and the client is told:
/// they may have gone to objects that no longer belong to the file.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &CommitSizeRequest) -> Outcome<Attr> {
    let file = request.file;
    let mut inode = inodes::load(tx, file)?;
    let body = inodes::regular(&inode)?;
    open::require_data(ctx, file, &inode, Rights::WRITE)?;
    layouts::check_size(request.size)?;
    if request.generation != inode.generation {
        let what = "the file was truncated after what was written";
        return Err(Error::new(ErrorKind::Stale, what).into());
    }
    note_written(tx, file, body, &request.written)?;
    // Holes are made when this is answered.
    ctx.effects.objects_follow |= request.sparse || request.durable;
    let holes = holes_after(&inode, request)?;
    let grows = request.size > inode.size;
    if !(grows || request.mtime.is_some() || request.sparse || holes != inode.holes) {
        quotas::note(tx, ctx, file, &inode, None)?;
        return Ok(inode.attr(file));
    }
    inode.holes = holes;
    inode.size = inode.size.max(request.size);
    inode.mtime = match request.mtime {
        None => inode.mtime,
        Some(SetTime::Now) => ctx.now,
        // A report that is late must not undo a newer one; one that is in time
        // counts even if somebody had set a time in the future.
        Some(SetTime::At(time)) if time < inode.ctime => time.max(inode.mtime),
        Some(SetTime::At(time)) => time,
    };
    // The client has shown the time of the write as that of the change.
    let shown = match request.mtime {
        Some(SetTime::At(time)) => Some(time),
        Some(SetTime::Now) | None => None,
    };
    let shown = shown.filter(|time| inode.ctime < *time && *time <= ctx.now);
    inode.changed(shown.unwrap_or(ctx.now));
    inodes::store(tx, file, &inode)?;
    quotas::note(tx, ctx, file, &inode, None)?;
    Ok(inode.attr(file))
}

/// Where the file may have holes afterwards.
fn holes_after(inode: &Inode, request: &CommitSizeRequest) -> Outcome<Holes> {
    let ranges = &request.ranges;
    if ranges.len() > MAX_WRITTEN_RANGES {
        return Err(ErrorKind::TooBig.into());
    }
    if ranges.iter().any(|(start, end)| start >= end) || !ranges.is_sorted() {
        let what = "written ranges must ascend";
        return Err(Error::new(ErrorKind::InvalidArgument, what).into());
    }
    if request.sparse {
        return Ok(Holes::Anywhere);
    }
    let size = inode.size.max(request.size);
    Ok(inode.holes.resized(inode.size, size).written(ranges, size))
}

/// Records which columns have data. Segments that the file does not have (any more) are ignored.
fn note_written(
    tx: &mut Tx<'_>,
    file: FileId,
    body: &RegularFile,
    written: &[WrittenColumns],
) -> Outcome<()> {
    if written.len() > MAX_WRITTEN_SEGMENTS {
        return Err(ErrorKind::TooBig.into());
    }
    note_columns(tx, file, body, written)
}

/// As [`note_written`], for a request that counts the segments itself.
pub(super) fn note_columns(
    tx: &mut Tx<'_>,
    file: FileId,
    body: &RegularFile,
    written: &[WrittenColumns],
) -> Outcome<()> {
    for WrittenColumns { segment, start, columns } in written {
        layouts::note_written(tx, (file, body.list), *start, *segment, columns)?;
    }
    Ok(())
}
