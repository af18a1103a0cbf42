//! Makes and opens a regular file (or opens an existing one), or makes a special file. A file made
//! without a name is like an open one that has lost its last name: it is removed when it is closed,
//! unless it gets a name.

use crate::ops::{
    Context, Outcome, access, acls, deletion, hints, inodes, layouts, names, open, truncation,
};
use crate::schema::{Body, Dentry, Inode, RegularFile};
use weir_metastore::Tx;
use weir_types::{Error, ErrorKind, FileKind, FileLayout};
use weir_wire::Rights;
use weir_wire::meta::{CreateRequest, OpenFile};

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &CreateRequest) -> Outcome<OpenFile> {
    require_kind(ctx, request)?;
    if request.name.is_empty() {
        return without_name(tx, ctx, request);
    }
    let mut parent = names::begin(tx, ctx, request.parent, &request.name)?;
    if let Some(dentry) = names::find(tx, request.parent, &request.name)? {
        return open_existing(tx, ctx, request, &dentry);
    }
    if ctx.limits.read_only {
        return Err(ErrorKind::ReadOnly.into());
    }
    access::require(ctx.caller, &parent, access::WRITE)?;
    let file = ctx.fresh;
    let (inode, layout) = make(tx, ctx, request, &mut parent)?;
    let entry = (file, request.kind);
    names::insert(tx, ctx, (request.parent, &mut parent), &request.name, entry)?;
    inodes::store(tx, request.parent, &parent)?;
    ctx.changes(request.parent, &parent);
    inodes::store(tx, file, &inode)?;
    match layout {
        Some(layout) => opened(tx, ctx, request, &inode, layout),
        None => Ok(layouts::without_data(ctx, file, &inode)),
    }
}

/// Makes a file without a name (`O_TMPFILE`).
fn without_name(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    request: &CreateRequest,
) -> Outcome<OpenFile> {
    let mut parent = inodes::load_directory(tx, request.parent)?;
    if ctx.limits.read_only {
        return Err(ErrorKind::ReadOnly.into());
    }
    access::require(ctx.caller, &parent, access::WRITE | access::SEARCH)?;
    let (mut inode, layout) = make(tx, ctx, request, &mut parent)?;
    let layout = layout.ok_or(ErrorKind::InvalidArgument)?;
    inode.nlink = 0;
    deletion::keep_while_open(tx, ctx, ctx.fresh, request.parent)?;
    inodes::store(tx, ctx.fresh, &inode)?;
    opened(tx, ctx, request, &inode, layout)
}

/// The reply for a new file. Its creator may use it as requested, whatever its mode says.
fn opened(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    request: &CreateRequest,
    inode: &Inode,
    layout: FileLayout,
) -> Outcome<OpenFile> {
    let file = ctx.fresh;
    ctx.opens.check_room(ctx.session)?;
    ctx.effects.opened = Some((file, request.rights));
    layouts::open_file(tx, ctx, (file, inode), request.rights, Some(layout))
}

fn require_kind(ctx: &Context<'_>, request: &CreateRequest) -> Outcome<()> {
    match request.kind {
        FileKind::Directory | FileKind::Symlink => Err(ErrorKind::InvalidArgument.into()),
        // As Linux since 5.8: what a rename may leave behind, anyone may make.
        FileKind::CharDevice if request.rdev == 0 => Ok(()),
        FileKind::CharDevice | FileKind::BlockDevice if !access::is_root(ctx.caller) => {
            Err(ErrorKind::NotPermitted.into())
        }
        _ => Ok(()),
    }
}

/// Makes a file, with a layout if it has data.
fn make(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    request: &CreateRequest,
    parent: &mut Inode,
) -> Outcome<(Inode, Option<FileLayout>)> {
    ctx.effects.fresh_used = true;
    let (mut inode, layout) = plain(tx, ctx, request, parent)?;
    access::give_owner(ctx.caller, parent, request.mode, &mut inode);
    acls::inherit(tx, (request.parent, parent), request.umask, (ctx.fresh, &mut inode))?;
    if request.kind == FileKind::File {
        hints::inherit(tx, (request.parent, parent), (ctx.fresh, &mut inode))?;
    }
    Ok((inode, layout))
}

/// Makes a file without owner and list.
fn plain(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    request: &CreateRequest,
    parent: &mut Inode,
) -> Outcome<(Inode, Option<FileLayout>)> {
    let now = ctx.now;
    let new = |body| Inode::new(request.kind, request.parent, now, body);
    if request.kind != FileKind::File {
        let mut inode = new(Body::Other);
        if matches!(request.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            inode.rdev = request.rdev;
        }
        return Ok((inode, None));
    }
    let spec = match &request.layout {
        Some(spec) => spec.clone(),
        None => inodes::directory(parent)?.default_layout.clone(),
    };
    let mut body = RegularFile::unplaced(spec);
    let file = ctx.fresh;
    let layout = layouts::lay_out(tx, ctx, file, &mut body)?;
    Ok((new(Body::File(body)), Some(layout)))
}

fn open_existing(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    request: &CreateRequest,
    dentry: &Dentry,
) -> Outcome<OpenFile> {
    if request.exclusive || request.kind != FileKind::File {
        return Err(ErrorKind::Exists.into());
    }
    let file = dentry.file;
    let mut inode = inodes::load_named(tx, file)?;
    let truncate = request.truncate && inode.kind == FileKind::File;
    let needed = if truncate { request.rights.union(Rights::WRITE) } else { request.rights };
    open::require_openable(ctx, &inode, needed)?;
    if truncate && ctx.opens.rights(ctx.session, file).is_some() {
        let text = "this client has the file open: set its size to 0, then open it without O_TRUNC";
        return Err(Error::new(ErrorKind::Busy, text).into());
    }
    ctx.opens.check_room(ctx.session)?;
    let mut layout = None;
    if truncate {
        layout = Some(truncation::empty(tx, ctx, file, &mut inode)?);
        if !access::is_root(ctx.caller) {
            inode.mode = access::without_privilege(ctx.caller, &inode);
        }
        inodes::store(tx, file, &inode)?;
    }
    ctx.effects.opened = Some((file, request.rights));
    layouts::open_file(tx, ctx, (file, &inode), request.rights, layout)
}
