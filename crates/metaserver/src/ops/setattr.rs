//! Changes attributes: chmod, chown, utimens and truncate, any of them at once.

use crate::ops::access::{self, MODE_BITS, SETGID, SETUID, WRITE};
use crate::ops::revoke::Standing;
use crate::ops::{Context, Outcome, acls, inodes, layouts, open, revoke, truncation};
use crate::schema::Inode;
use weir_metastore::Tx;
use weir_types::{ErrorKind, FileKind, Timestamp};
use weir_wire::Rights;
use weir_wire::meta::{OpenFile, SetAttrRequest, SetTime};

/// Carries out the request. Only a change of size returns layout and capability.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &SetAttrRequest) -> Outcome<OpenFile> {
    let file = request.file;
    let mut inode = inodes::load(tx, file)?;
    let before = Standing::of(&inode);
    let mut layout = None;
    require_all(ctx, request, &inode)?;
    if is_nothing(request) {
        inode.mode = access::without_privilege(ctx.caller, &inode);
    }
    change_owner(ctx, request, &mut inode);
    if let Some(size) = request.size {
        layout = truncation::resize(tx, ctx, file, &mut inode, size)?;
        if !access::is_root(ctx.caller) {
            inode.mode = access::without_privilege(ctx.caller, &inode);
        }
    }
    if let Some(mode) = request.mode {
        inode.mode = mode & MODE_BITS;
        if !access::is_root(ctx.caller) && !ctx.caller.in_group(inode.gid) {
            inode.mode &= !SETGID;
        }
        acls::follow_mode(tx, file, &mut inode)?;
    }
    let time = |set: SetTime| match set {
        SetTime::Now => ctx.now,
        SetTime::At(time) => time,
    };
    inode.atime = request.atime.map_or(inode.atime, time);
    inode.mtime = request.mtime.map_or(inode.mtime, time);
    // Also if nothing was to be set: so `chown` does with no user and no group.
    inode.changed(ctx.now);
    inodes::store(tx, file, &inode)?;
    if revoke::takes_rights(before, Standing::of(&inode)) {
        revoke::run(tx, ctx, (file, &inode))?;
    }
    if request.size.is_none() {
        return Ok(layouts::without_data(ctx, file, &inode));
    }
    let open = layouts::open_file(tx, ctx, (file, &inode), Rights::WRITE, layout)?;
    if ctx.has_open(file, Rights::WRITE)
        && let Some(room) = &mut ctx.effects.room
    {
        // What the client was told it may write before counts no more: it asks again.
        room.up_to = Some(inode.size);
    }
    Ok(open)
}

fn require_all(ctx: &Context<'_>, request: &SetAttrRequest, inode: &Inode) -> Outcome<()> {
    if request.mode.is_some() && inode.kind == FileKind::Symlink {
        return Err(ErrorKind::Unsupported.into());
    }
    if request.size.is_some() {
        inodes::regular(inode)?;
        open::require_data(ctx, request.file, inode, Rights::WRITE)?;
    }
    let owns = access::owns(ctx.caller, inode);
    if request.mode.is_some() && !owns && !drops_privilege(ctx, request, inode) {
        return Err(ErrorKind::NotPermitted.into());
    }
    require_owner_change(ctx, request, inode)?;
    if !owns && would_drop_privilege(ctx, request, inode) {
        return Err(ErrorKind::NotPermitted.into());
    }
    require_times(ctx, request, inode, owns)
}

/// Whether the change of mode equals the effect of a write by a caller with write permission:
/// mounts clear setuid and setgid under their own identity, which may be squashed.
fn drops_privilege(ctx: &Context<'_>, request: &SetAttrRequest, inode: &Inode) -> bool {
    let cleared = |mode: u16| inode.mode & !mode;
    request.mode.is_some_and(|mode| {
        mode | cleared(mode) == inode.mode && cleared(mode) & !(SETUID | SETGID) == 0
    }) && ctx.has_open(request.file, Rights::WRITE)
}

/// Whether the request is an empty setattr: `chown(-1, -1)`, which clears setuid and setgid. A
/// mount also sends it before a write, because its cached mode may be older than another client's
/// `chmod`; the server clears the bits of the present mode.
fn is_nothing(request: &SetAttrRequest) -> bool {
    let file = request.file;
    let (mode, uid, gid, size, atime, mtime) = Default::default();
    *request == SetAttrRequest { file, mode, uid, gid, size, atime, mtime }
}

/// Whether an empty setattr would clear setuid or setgid of a program: Linux treats that as a
/// change of mode.
fn would_drop_privilege(ctx: &Context<'_>, request: &SetAttrRequest, inode: &Inode) -> bool {
    is_nothing(request)
        && access::without_privilege(ctx.caller, inode) != inode.mode
        && !ctx.has_open(request.file, Rights::WRITE)
}

/// Checks a change of owner: only the superuser gives files away; an owner may choose among its own
/// groups.
fn require_owner_change(ctx: &Context<'_>, request: &SetAttrRequest, inode: &Inode) -> Outcome<()> {
    if access::is_root(ctx.caller) {
        return Ok(());
    }
    let owner = ctx.caller.uid == inode.uid;
    let uid_ok = request.uid.is_none_or(|uid| owner && uid == inode.uid);
    let gid_ok =
        request.gid.is_none_or(|gid| owner && (gid == inode.gid || ctx.caller.in_group(gid)));
    if uid_ok && gid_ok { Ok(()) } else { Err(ErrorKind::NotPermitted.into()) }
}

/// Checks a change of times: arbitrary times are for the owner. The present time is also for
/// callers with write permission, who could set it by writing.
fn require_times(
    ctx: &Context<'_>,
    request: &SetAttrRequest,
    inode: &Inode,
    owns: bool,
) -> Outcome<()> {
    let times: [Option<SetTime>; 2] = [request.atime, request.mtime];
    if owns || times == [None, None] {
        return Ok(());
    }
    if times.iter().flatten().any(|time| matches!(time, SetTime::At(Timestamp(_)))) {
        return Err(ErrorKind::NotPermitted.into());
    }
    if ctx.has_open(request.file, Rights::WRITE) {
        return Ok(());
    }
    access::require(ctx.caller, inode, WRITE)
}

fn change_owner(ctx: &Context<'_>, request: &SetAttrRequest, inode: &mut Inode) {
    if request.uid.is_none() && request.gid.is_none() {
        return;
    }
    // Of the superuser, too, as on Linux.
    inode.mode = access::without_privilege(ctx.caller, inode);
    inode.uid = request.uid.unwrap_or(inode.uid);
    inode.gid = request.gid.unwrap_or(inode.gid);
}
