//! Paths, directories and trees.

use crate::parallel::in_parallel;
use weir_client::{Client, Context};
use weir_types::limits::MAX_READDIR_ENTRIES;
use weir_types::{Attr, Error, ErrorKind, FileId, FileKind, Result};

/// Maximum number of directories of a tree that are listed at once.
const LISTINGS: usize = 8;

/// The parent directory of a path, and the path's last part.
///
/// # Errors
/// `Busy` for the root, as on a mount; `InvalidArgument` for `.` and `..`.
pub(crate) fn parent<'p>(
    client: &Client,
    ctx: &Context,
    path: &'p [u8],
) -> Result<(FileId, &'p [u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let trimmed = &path[..end];
    let at = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (dir, name) = trimmed.split_at(at);
    match name {
        b"" => return Err(Error::new(ErrorKind::Busy, "this is the root directory")),
        b"." | b".." => {
            return Err(Error::new(ErrorKind::InvalidArgument, "a path that ends in '.' or '..'"));
        }
        _ => {}
    }
    let attr = client.resolve(ctx, dir, true)?;
    match attr.kind {
        FileKind::Directory => Ok((attr.file, name)),
        _ => Err(ErrorKind::NotDirectory.into()),
    }
}

/// The directory at a path.
///
/// # Errors
/// `NotDirectory`; those of looking it up.
pub(crate) fn directory(
    client: &weir_client::Client,
    ctx: &Context,
    path: &[u8],
) -> Result<FileId> {
    let attr = client.resolve(ctx, path, true)?;
    match attr.kind {
        FileKind::Directory => Ok(attr.file),
        _ => Err(ErrorKind::NotDirectory.into()),
    }
}

/// The entries of a directory with their attributes, sorted by name.
pub(crate) fn entries(client: &Client, ctx: &Context, dir: FileId) -> Result<Vec<(Vec<u8>, Attr)>> {
    let mut all = Vec::new();
    let (mut cookie, mut last) = (0, 0);
    loop {
        let most = MAX_READDIR_ENTRIES as u32;
        let page = client.readdir(ctx, dir, (cookie, last), most, true)?;
        last = page.last;
        cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
        let end = page.end || page.entries.is_empty();
        for entry in page.entries {
            if &*entry.name == b"." || &*entry.name == b".." {
                continue;
            }
            let attr = match entry.attr {
                Some(attr) => attr,
                // A page does not have those of a file that somebody is writing.
                None => match client.getattr(ctx, entry.file) {
                    Ok(attr) => attr,
                    Err(error) if is_gone(&error) => continue,
                    Err(error) => return Err(error),
                },
            };
            all.push((entry.name.to_vec(), attr));
        }
        if end {
            break;
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(all)
}

/// Whether a file was removed after its name was read.
fn is_gone(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::Stale)
}

/// Everything below a directory, by relative paths, sorted; `levels`: maximum depth. Directories
/// that are removed meanwhile are left out. Symbolic links are not followed.
pub(crate) fn walk(
    client: &Client,
    ctx: &Context,
    top: FileId,
    levels: usize,
) -> Result<Vec<(Vec<u8>, Attr)>> {
    let mut all = Vec::new();
    let mut level = vec![(Vec::new(), top)];
    for _ in 0..levels {
        if level.is_empty() {
            break;
        }
        let list = |(path, dir): (Vec<u8>, FileId)| (path, entries(client, ctx, dir));
        let mut next = Vec::new();
        for (path, listed) in in_parallel(level, LISTINGS, list) {
            let listed = match listed {
                Err(error)
                    if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Stale)
                        && !path.is_empty() =>
                {
                    continue;
                }
                listed => listed?,
            };
            for (name, attr) in listed {
                let mut below = path.clone();
                if !below.is_empty() {
                    below.push(b'/');
                }
                below.extend_from_slice(&name);
                if attr.kind == FileKind::Directory {
                    next.push((below.clone(), attr.file));
                }
                all.push((below, attr));
            }
        }
        level = next;
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(all)
}
