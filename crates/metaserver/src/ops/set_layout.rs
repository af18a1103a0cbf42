//! Sets the default layout of a directory, or lays an empty file out anew.

use crate::ops::{Context, Outcome, access, inodes, layouts, truncation};
use crate::schema::{Body, Inode};
use weir_metastore::Tx;
use weir_types::{Error, ErrorKind, FileId, LayoutSpec};
use weir_wire::meta::SetLayoutRequest;

/// Does it.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &SetLayoutRequest) -> Outcome<()> {
    let file = request.file;
    let mut inode = inodes::load(tx, file)?;
    if !access::owns(ctx.caller, &inode) {
        access::require(ctx.caller, &inode, access::WRITE)?;
    }
    let spec = match &request.layout {
        Some(spec) => spec.clone(),
        None => inherited(tx, ctx, file, &inode)?,
    };
    layouts::check_spec(ctx, &spec)?;
    match &mut inode.body {
        Body::Directory(body) => {
            body.default_layout = spec;
            inode.changed(ctx.now);
        }
        Body::File(_) if inode.size > 0 => {
            let message = format!(
                "the file has {} bytes, and a layout can be set only while a file is empty: set \
                 it on the directory and copy the file",
                inode.size
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message).into());
        }
        Body::File(body) => {
            body.spec = spec;
            truncation::empty(tx, ctx, file, &mut inode)?;
        }
        Body::Other => {
            let message = "only directories and regular files have a layout";
            return Err(Error::new(ErrorKind::InvalidArgument, message).into());
        }
    }
    inodes::store(tx, file, &inode)
}

/// What the parent's default says; the cluster's if there is no parent.
fn inherited(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    file: FileId,
    inode: &Inode,
) -> Outcome<LayoutSpec> {
    if file == FileId::ROOT {
        return Ok(ctx.default_layout.clone());
    }
    match inodes::find(tx, inode.parent)?.map(|parent| parent.body) {
        Some(Body::Directory(parent)) => Ok(parent.default_layout),
        _ => Ok(ctx.default_layout.clone()),
    }
}
