//! Renames, replacing an existing name too, or swaps two names. A rename may leave a whiteout under
//! the old name (`RENAME_WHITEOUT`): a character device 0, 0.

use crate::ops::{Context, Outcome, access, acls, deletion, inodes, links, names};
use crate::schema::{self, Body, Dentry, Inode, key};
use weir_host::plant::{Bug, planted};
use weir_metastore::Tx;
use weir_types::limits::MAX_LINKS;
use weir_types::{ErrorKind, FileId, FileKind};
use weir_wire::meta::{Removed, RenameRequest};

/// The deepest directory into which another one can be moved. It bounds the search of ancestors
/// (which also ends if directories form a loop, which none should).
const MAX_DEPTH: usize = 1 << 16;

/// One end of the move.
struct End<'a> {
    dir: FileId,
    name: &'a [u8],
}

/// The file of a name.
struct Found {
    dentry: Dentry,
    inode: Inode,
}

impl Found {
    fn is_directory(&self) -> bool {
        self.inode.kind == FileKind::Directory
    }
}

/// The two directories, or one if they are the same.
struct Directories {
    from: Inode,
    to: Option<Inode>,
}

impl Directories {
    fn to(&self) -> &Inode {
        self.to.as_ref().unwrap_or(&self.from)
    }
    fn to_mut(&mut self) -> &mut Inode {
        self.to.as_mut().unwrap_or(&mut self.from)
    }
    fn differ(&self) -> bool {
        self.to.is_some()
    }
}

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &RenameRequest) -> Outcome<Removed> {
    if request.exchange && (request.no_replace || request.whiteout) {
        return Err(ErrorKind::InvalidArgument.into());
    }
    let from = End { dir: request.parent, name: &request.name };
    let to = End { dir: request.new_parent, name: &request.new_name };
    let dirs = load_directories(tx, ctx, &from, &to)?;
    let source = find(tx, &from)?.ok_or(ErrorKind::NotFound)?;
    let target = find(tx, &to)?;
    match &target {
        Some(_) if request.no_replace => return Err(ErrorKind::Exists.into()),
        None if request.exchange => return Err(ErrorKind::NotFound.into()),
        // Two names of one file: POSIX wants nothing done.
        Some(target) if target.dentry.file == source.dentry.file => {
            return Ok(Removed { attr: None });
        }
        _ => {}
    }
    require_no_loop(tx, &dirs, (&from, &source), (&to, target.as_ref()), request.exchange)?;
    require_permission(ctx, &dirs, &source, target.as_ref(), request.exchange)?;
    match target {
        Some(target) if request.exchange => {
            exchange(tx, ctx, dirs, (&from, source), (&to, target))?;
            Ok(Removed { attr: None })
        }
        target => {
            let left = request.whiteout.then_some(source.dentry.cookie);
            let removed = replace(tx, ctx, dirs, (&from, source), (&to, target), request)?;
            if let Some(cookie) = left {
                leave_whiteout(tx, ctx, &from, cookie)?;
            }
            Ok(removed)
        }
    }
}

/// Makes a whiteout under the old name, at its place in listings. Every user may, as on Linux.
fn leave_whiteout(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    from: &End<'_>,
    cookie: u64,
) -> Outcome<()> {
    let (file, kind) = (ctx.fresh, FileKind::CharDevice);
    ctx.effects.fresh_used = true;
    let parent = inodes::load_directory(tx, from.dir)?;
    let mut inode = Inode::new(kind, from.dir, ctx.now, Body::Other);
    access::give_owner(ctx.caller, &parent, 0, &mut inode);
    acls::inherit(tx, (from.dir, &parent), 0, (file, &mut inode))?;
    names::put(tx, from.dir, from.name, Dentry { file, kind, cookie })?;
    inodes::store(tx, file, &inode)
}

fn load_directories(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    from: &End<'_>,
    to: &End<'_>,
) -> Outcome<Directories> {
    names::check(to.name)?;
    let first = names::begin(tx, ctx, from.dir, from.name)?;
    let second = match from.dir == to.dir {
        true => None,
        false => Some(names::begin(tx, ctx, to.dir, to.name)?),
    };
    Ok(Directories { from: first, to: second })
}

fn find(tx: &mut Tx<'_>, end: &End<'_>) -> Outcome<Option<Found>> {
    let Some(dentry) = names::find(tx, end.dir, end.name)? else { return Ok(None) };
    let inode = inodes::load_named(tx, dentry.file)?;
    Ok(Some(Found { dentry, inode }))
}

/// Refuses to move a directory into itself or below.
fn require_no_loop(
    tx: &mut Tx<'_>,
    dirs: &Directories,
    (from, source): (&End<'_>, &Found),
    (to, target): (&End<'_>, Option<&Found>),
    exchange: bool,
) -> Outcome<()> {
    if !dirs.differ() {
        return Ok(());
    }
    let target = target.filter(|target| exchange && target.is_directory());
    if source.is_directory() || target.is_some() {
        // One such move at a time: what is found on the way up holds until
        // this one is committed.
        let moves: u64 = match tx.get(key::DIRECTORY_MOVES)? {
            Some(bytes) => schema::decode(&bytes, "of moves")?,
            None => 0,
        };
        tx.put(key::DIRECTORY_MOVES, &schema::encode(&(moves + 1)))?;
    }
    if source.is_directory() && is_within(tx, to.dir, source.dentry.file)? {
        return Err(ErrorKind::InvalidArgument.into());
    }
    if let Some(target) = target
        && is_within(tx, from.dir, target.dentry.file)?
    {
        return Err(ErrorKind::InvalidArgument.into());
    }
    Ok(())
}

/// Whether `dir` is `ancestor` or below it.
fn is_within(tx: &mut Tx<'_>, mut dir: FileId, ancestor: FileId) -> Outcome<bool> {
    for _ in 0..MAX_DEPTH {
        if dir == ancestor {
            return Ok(true);
        }
        if dir == FileId::ROOT {
            return Ok(false);
        }
        let Some(bytes) = tx.peek(&key::inode(dir))? else {
            // Somebody removed it meanwhile; the commit will not stand.
            return Err(ErrorKind::Stale.into());
        };
        let inode: Inode = schema::decode(&bytes, "of an inode")?;
        dir = inode.parent;
    }
    Err(ErrorKind::NameTooLong.into())
}

/// Checks permissions in Linux's order: removal at both ends, kinds, then the directories that get
/// another `..`.
fn require_permission(
    ctx: &Context<'_>,
    dirs: &Directories,
    source: &Found,
    target: Option<&Found>,
    exchange: bool,
) -> Outcome<()> {
    access::require_removal(ctx.caller, &dirs.from, &source.inode)?;
    match target {
        None => access::require(ctx.caller, dirs.to(), access::WRITE | access::SEARCH)?,
        Some(target) => {
            access::require_removal(ctx.caller, dirs.to(), &target.inode)?;
            match (source.is_directory(), target.is_directory()) {
                (true, false) if !exchange => return Err(ErrorKind::NotDirectory.into()),
                (false, true) if !exchange => return Err(ErrorKind::IsDirectory.into()),
                _ => {}
            }
        }
    }
    if !dirs.differ() {
        return Ok(());
    }
    if source.is_directory() {
        access::require(ctx.caller, &source.inode, access::WRITE)?;
    }
    match target.filter(|target| exchange && target.is_directory()) {
        Some(target) => access::require(ctx.caller, &target.inode, access::WRITE),
        None => Ok(()),
    }
}

/// Adapts link counts for the subdirectories that `dirs.from` passes to `dirs.to` and gets from it.
fn move_links(dirs: &mut Directories, handed: u32, got: u32) -> Outcome<()> {
    // What goes makes room for what comes.
    let count = |nlink: u32, lost: u32, gained: u32| match nlink.saturating_sub(lost) + gained {
        more if gained > lost && more > MAX_LINKS => Err(ErrorKind::TooManyLinks),
        count => Ok(count),
    };
    dirs.from.nlink = count(dirs.from.nlink, handed, got)?;
    let to = dirs.to_mut();
    to.nlink = count(to.nlink, got, handed)?;
    Ok(())
}

fn store_directories(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    (from, to): (&End<'_>, &End<'_>),
    dirs: &Directories,
) -> Outcome<()> {
    inodes::store(tx, from.dir, &dirs.from)?;
    ctx.changes(from.dir, &dirs.from);
    if let Some(inode) = &dirs.to {
        inodes::store(tx, to.dir, inode)?;
        ctx.changes(to.dir, inode);
    }
    Ok(())
}

fn exchange(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    mut dirs: Directories,
    (from, mut source): (&End<'_>, Found),
    (to, mut target): (&End<'_>, Found),
) -> Outcome<()> {
    let at_to = Dentry { cookie: target.dentry.cookie, ..source.dentry };
    let at_from = Dentry { cookie: source.dentry.cookie, ..target.dentry };
    names::put(tx, to.dir, to.name, at_to)?;
    names::put(tx, from.dir, from.name, at_from)?;
    if dirs.differ() {
        let (source_dir, target_dir) = (source.is_directory(), target.is_directory());
        move_links(&mut dirs, u32::from(source_dir), u32::from(target_dir))?;
    }
    links::relocate(tx, source.dentry.file, &mut source.inode, (from.dir, to.dir))?;
    links::relocate(tx, target.dentry.file, &mut target.inode, (to.dir, from.dir))?;
    for found in [&mut source, &mut target] {
        found.inode.changed(ctx.now);
        inodes::store(tx, found.dentry.file, &found.inode)?;
        ctx.changes(found.dentry.file, &found.inode);
    }
    dirs.from.modified(ctx.now);
    dirs.to_mut().modified(ctx.now);
    store_directories(tx, ctx, (from, to), &dirs)
}

fn replace(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    mut dirs: Directories,
    (from, mut source): (&End<'_>, Found),
    (to, target): (&End<'_>, Option<Found>),
    request: &RenameRequest,
) -> Outcome<Removed> {
    if let Some(target) = target.as_ref().filter(|target| target.is_directory()) {
        names::require_empty(tx, target.dentry.file)?;
    }
    if !planted(Bug::HalfRename) {
        names::remove(tx, ctx, (from.dir, &mut dirs.from), from.name, &source.dentry)?;
    }
    match &target {
        // The new name keeps its place in listings: it was there all the time.
        Some(target) => {
            let dentry = Dentry { cookie: target.dentry.cookie, ..source.dentry };
            names::put(tx, to.dir, to.name, dentry)?;
            dirs.to_mut().modified(ctx.now);
        }
        // Nor does another name in the same directory: who is listing it meets the file once.
        None if !request.whiteout && !dirs.differ() => {
            names::put(tx, to.dir, to.name, source.dentry)?;
            dirs.from.modified(ctx.now);
        }
        None => {
            let entry = (source.dentry.file, source.inode.kind);
            names::insert(tx, ctx, (to.dir, dirs.to_mut()), to.name, entry)?;
        }
    }
    let moved = u32::from(source.is_directory());
    if let Some(target) = target.as_ref().filter(|target| target.is_directory()) {
        debug_assert_eq!(target.inode.kind, source.inode.kind);
        let inode = dirs.to_mut();
        inode.nlink = inode.nlink.saturating_sub(1);
    }
    if dirs.differ() {
        move_links(&mut dirs, moved, 0)?;
    }
    links::relocate(tx, source.dentry.file, &mut source.inode, (from.dir, to.dir))?;
    source.inode.changed(ctx.now);
    inodes::store(tx, source.dentry.file, &source.inode)?;
    ctx.changes(source.dentry.file, &source.inode);
    store_directories(tx, ctx, (from, to), &dirs)?;
    remove_replaced(tx, ctx, to.dir, target, request.hold)
}

fn remove_replaced(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    dir: FileId,
    target: Option<Found>,
    hold: bool,
) -> Outcome<Removed> {
    let Some(Found { dentry, mut inode }) = target else { return Ok(Removed { attr: None }) };
    if inode.kind == FileKind::Directory {
        inode.nlink = 0;
        deletion::forget(tx, ctx, dentry.file, &inode)?;
    } else {
        deletion::drop_link(tx, ctx, dir, dentry.file, &mut inode, hold)?;
        ctx.changes(dentry.file, &inode);
    }
    Ok(Removed { attr: Some(inode.attr(dentry.file)) })
}
