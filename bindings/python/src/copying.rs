//! Copies of files, which the servers make among themselves.

use crate::tree::parent;
use weir_client::{Client, Context, CreateOptions};
use weir_types::{Attr, Error, ErrorKind, FileKind, Result};
use weir_wire::Rights;

/// Copies the bytes of a file to another path, replacing an existing file.
///
/// # Errors
/// `InvalidArgument` if both are the same file; those of reading and writing.
pub(crate) fn copy(
    client: &Client,
    ctx: &Context,
    from: &[u8],
    to: &[u8],
    umask: u16,
) -> Result<()> {
    let source = client.resolve(ctx, from, true)?;
    refuse_others(&source)?;
    if client.resolve(ctx, to, true).is_ok_and(|dest| dest.file == source.file) {
        return Err(Error::new(ErrorKind::InvalidArgument, "this is the same file"));
    }
    let (source, attr) = client.open(ctx, source.file, Rights::READ)?;
    let (dir, name) = parent(client, ctx, to)?;
    let options = CreateOptions {
        mode: attr.mode & 0o777,
        umask,
        truncate: true,
        ..CreateOptions::default()
    };
    let (dest, _) = client.create(ctx, dir, name, &options)?;
    let mut done = 0;
    loop {
        let copied = source.copy_range(ctx, done, &dest, done, attr.size.saturating_sub(done))?;
        done += copied;
        if copied == 0 || done >= attr.size {
            break;
        }
    }
    dest.close(ctx)?;
    source.close(ctx)
}

/// Refuses everything but regular files.
pub(crate) fn refuse_others(attr: &Attr) -> Result<()> {
    match attr.kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(ErrorKind::IsDirectory.into()),
        _ => Err(Error::new(ErrorKind::InvalidArgument, "not a regular file")),
    }
}
