//! Restrictions of clients: every request passes [`admit`] before it is carried out, and every
//! reply passes [`show`]. Nothing is left to the client. For each new kind of request, this file
//! has to state which files it names and changes.
//!
//! A file is inside of a subtree if one of its names is; a directory if the subtree's root is among
//! its ancestors; a file without a name if it lost its last one inside. Files outside do not exist
//! for the client: the reply is the same `Stale` as for an id that no file has.

use crate::ops::{Context, Outcome, access};
use crate::schema::{self, Inode, key};
use std::collections::BTreeMap;
use weir_metastore::{Tx, key_after};
use weir_types::codec::{Bytes, Decode, Reader};
use weir_types::{
    Attr, Caller, Error, ErrorKind, FileId, FileKind, FsUsage, LayoutSpec, Restrictions, Squash,
};
use weir_wire::Rights;
use weir_wire::lease::LeaseRange;
use weir_wire::lease::{AcquireRequest, Granted, LeaseMode, RecoveredRequest};
use weir_wire::message::Op;
use weir_wire::meta::*;
use weir_wire::quota::{Room, RoomRequest};
use weir_wire::targets::{AcceptLossesRequest, LossPage};

/// The deepest directory that is found to be inside.
const MAX_DEPTH: usize = 8192;
/// The most directories of one file that are checked. A file with names in more counts as inside by
/// the first ones and the one made or moved last.
const MAX_DIRECTORIES: usize = 4096;
/// Directories read at a time.
const PAGE: usize = 64;

/// A request, as restrictions see it.
pub(crate) trait Confined {
    /// All files and directories that it names and that have to be inside.
    fn files(&mut self) -> Vec<&mut FileId>;
    /// Whether it may change anything that others see, or gives the right to.
    fn changes(&self) -> bool;
    /// Prevents it from naming ancestors of the subtree.
    fn stay_below(&mut self, _subtree: FileId) {}
}

/// A reply, as restrictions see it.
pub(crate) trait Shown {
    /// Replaces the root of the subtree by the id of the root.
    fn show_root(&mut self, _subtree: FileId) {}
}

macro_rules! confined {
    ($($request:ident { $($field:ident),* } $changes:expr;)*) => {$(
        impl Confined for $request {
            fn files(&mut self) -> Vec<&mut FileId> {
                vec![$(&mut self.$field),*]
            }
            fn changes(&self) -> bool {
                let changes: fn(&Self) -> bool = $changes;
                changes(self)
            }
        }
    )*};
}
confined! {
    GetAttrRequest { file } |_| false;
    ReadlinkRequest { file } |_| false;
    ReaddirRequest { dir } |_| false;
    GetXattrRequest { file } |_| false;
    ListXattrRequest { file } |_| false;
    GetDefaultLayoutRequest { dir } |_| false;
    StatfsRequest { file } |_| false;
    RoomRequest { file } |_| true;
    OpenRequest { file } |r| r.rights.allow(Rights::WRITE);
    GetLayoutRequest { file } |r| r.rights.allow(Rights::WRITE);
    // What the session itself has open: the operations see to it.
    CloseRequest {} |_| false;
    // Those that may be said: the operation sees to it.
    AccessedRequest {} |_| false;
    ReassertRequest {} |_| false;
    // One that only opens what is there; it makes nothing for such a client.
    CreateRequest { parent } |r| {
        r.exclusive || r.truncate || r.kind != FileKind::File || r.rights.allow(Rights::WRITE)
    };
    SetAttrRequest { file } |_| true;
    MkdirRequest { parent } |_| true;
    UnlinkRequest { parent } |_| true;
    RmdirRequest { parent } |_| true;
    RenameRequest { parent, new_parent } |_| true;
    LinkRequest { file, parent } |_| true;
    SymlinkRequest { parent } |_| true;
    SetXattrRequest { file } |_| true;
    RemoveXattrRequest { file } |_| true;
    ExtendRequest { file } |_| true;
    CommitSizeRequest { file } |_| true;
    TruncateDoneRequest { file } |_| true;
    SetLayoutRequest { file } |_| true;
    RecoveredRequest { file } |_| true;
    AcceptLossesRequest { file } |r| r.accept;
}

impl Confined for AcquireRequest {
    fn files(&mut self) -> Vec<&mut FileId> {
        vec![&mut self.lease.file]
    }
    fn changes(&self) -> bool {
        self.lease.mode == LeaseMode::Write
    }
}

impl Confined for LookupRequest {
    fn files(&mut self) -> Vec<&mut FileId> {
        vec![&mut self.parent]
    }
    fn changes(&self) -> bool {
        false
    }
    /// The root is its own parent.
    fn stay_below(&mut self, subtree: FileId) {
        if self.parent == subtree && self.name.0 == b".." {
            self.name = b"."[..].into();
        }
    }
}

impl Shown for Attr {
    fn show_root(&mut self, subtree: FileId) {
        if self.file == subtree {
            self.file = FileId::ROOT;
        }
    }
}
impl Shown for OpenFile {
    fn show_root(&mut self, subtree: FileId) {
        self.attr.show_root(subtree);
    }
}
// These name only files, and what is below the directory asked about.
impl Shown for LayoutPage {}
impl Shown for DirPage {}
impl Shown for Removed {}
impl Shown for LayoutSpec {}
impl Shown for FsUsage {}
impl Shown for Granted {}
impl Shown for Room {}
impl Shown for Bytes {}
impl Shown for Vec<Bytes> {}
impl Shown for Vec<LeaseRange> {}
impl Shown for LossPage {}
impl Shown for () {}

/// Refuses requests that the client may not send, and translates file ids in the others.
///
/// # Errors
/// `ReadOnly`; `Stale` for files outside of its subtree.
pub(crate) fn admit(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    request: &mut impl Confined,
) -> Outcome<()> {
    if ctx.limits.read_only && request.changes() {
        let message = "the key of this client may only read: use another credential to write";
        return Err(Error::new(ErrorKind::ReadOnly, message).into());
    }
    let Some(subtree) = ctx.limits.subtree else { return Ok(()) };
    let mut walk = Walk::new(subtree);
    for file in request.files() {
        if *file == FileId::ROOT {
            *file = subtree;
        }
        if !walk.is_inside(tx, ctx, *file)? {
            return Err(ErrorKind::Stale.into());
        }
    }
    request.stay_below(subtree);
    Ok(())
}

/// Whether [`admit`] refuses a request of a read-only client, as far as the operation shows. Then
/// no session has to give anything up for it.
pub(crate) fn is_change(op: Op, body: Reader<'_>) -> bool {
    fn asks<R: Confined + Decode>(mut body: Reader<'_>) -> bool {
        R::decode(&mut body).is_ok_and(|request| request.changes())
    }
    match op {
        Op::Open => asks::<OpenRequest>(body),
        Op::Create => asks::<CreateRequest>(body),
        Op::Acquire => asks::<AcquireRequest>(body),
        Op::SetAttr => asks::<SetAttrRequest>(body),
        Op::Mkdir => asks::<MkdirRequest>(body),
        Op::Unlink => asks::<UnlinkRequest>(body),
        Op::Rmdir => asks::<RmdirRequest>(body),
        Op::Rename => asks::<RenameRequest>(body),
        Op::Link => asks::<LinkRequest>(body),
        Op::Symlink => asks::<SymlinkRequest>(body),
        Op::SetXattr => asks::<SetXattrRequest>(body),
        Op::RemoveXattr => asks::<RemoveXattrRequest>(body),
        Op::SetLayout => asks::<SetLayoutRequest>(body),
        Op::AcceptLosses => asks::<AcceptLossesRequest>(body),
        _ => false,
    }
}

/// Translates a reply for the client.
pub(crate) fn show(ctx: &Context<'_>, reply: &mut impl Shown) {
    if let Some(subtree) = ctx.limits.subtree {
        reply.show_root(subtree);
    }
}

/// Whether the client may know a file at all.
pub(crate) fn reaches(tx: &mut Tx<'_>, ctx: &Context<'_>, file: FileId) -> Outcome<bool> {
    match ctx.limits.subtree {
        Some(subtree) => Walk::new(subtree).is_inside(tx, ctx, file),
        None => Ok(true),
    }
}

/// The rights with which a client has a file open that it reports after a restart, when the
/// original rights are unknown: at most those that it could get by opening the file now, as any
/// user that it may act for.
pub(crate) fn rights_again(limits: &Restrictions, inode: &Inode) -> Rights {
    let all = access::READ | access::WRITE;
    let bits = match limits.squash {
        Squash::None => all,
        // An owner could change the mode.
        Squash::Root if inode.uid != 0 => all,
        Squash::Root => {
            let group = if inode.gid == 0 { 0 } else { inode.mode >> 3 };
            let named = inode.acl.as_ref().map_or(0, |acl| acl.bits_of_strangers(inode.gid));
            inode.mode | if inode.has_acl { named } else { group }
        }
        Squash::All => {
            let caller = limits.squashed(Caller::ROOT);
            let is_owner = caller.uid == inode.uid;
            let allowed =
                |bit| if is_owner || access::allows(&caller, inode, bit) { bit } else { 0 };
            allowed(access::READ) | allowed(access::WRITE)
        }
    };
    let read = if bits & access::READ != 0 { Rights::READ } else { Rights::NONE };
    let writes = bits & access::WRITE != 0 && !limits.read_only;
    read.union(if writes { Rights::WRITE } else { Rights::NONE })
}

/// Searches the ancestors for a subtree's root. The reads are not part of the transaction's
/// conflict checks: moves of directories come one at a time, and the machine handles one request at
/// a time.
struct Walk {
    /// Results for directories.
    known: BTreeMap<FileId, bool>,
}

impl Walk {
    fn new(subtree: FileId) -> Self {
        Self { known: BTreeMap::from([(subtree, true), (FileId::ROOT, false)]) }
    }

    fn is_inside(&mut self, tx: &mut Tx<'_>, ctx: &Context<'_>, file: FileId) -> Outcome<bool> {
        if let Some(&known) = self.known.get(&file) {
            // Also of a subtree that is gone: the operation says so.
            return Ok(known);
        }
        let Some(inode) = peek(tx, file)? else { return Ok(false) };
        if self.holds(tx, inode.parent)? {
            return Ok(true);
        }
        if inode.kind == FileKind::Directory || inode.nlink == 1 {
            return Ok(false);
        }
        if inode.nlink == 0 {
            // The directory that had its last name went after it: whoever has
            // the file open could open it while it was inside.
            let open = ctx.opens.rights(ctx.session, file).is_some();
            return Ok(open && peek(tx, inode.parent)?.is_none());
        }
        self.has_name_inside(tx, file)
    }

    fn has_name_inside(&mut self, tx: &mut Tx<'_>, file: FileId) -> Outcome<bool> {
        let (mut start, end) = key::directories_of(file);
        for _ in 0..MAX_DIRECTORIES / PAGE {
            let page = tx.peek_range(&start, &end, PAGE)?;
            for (at, _) in &page {
                let (_, dir) = key::file_and_directory(at).map_err(Error::from)?;
                if self.holds(tx, dir)? {
                    return Ok(true);
                }
            }
            match page.last() {
                Some((last, _)) if page.len() == PAGE => start = key_after(last).into_vec(),
                _ => break,
            }
        }
        Ok(false)
    }

    /// Whether a directory is the root of the subtree or below it.
    fn holds(&mut self, tx: &mut Tx<'_>, dir: FileId) -> Outcome<bool> {
        let mut way = Vec::new();
        let mut here = dir;
        let inside = loop {
            if let Some(&known) = self.known.get(&here) {
                break known;
            }
            if way.len() >= MAX_DEPTH {
                break false;
            }
            way.push(here);
            // A directory that is gone leads nowhere.
            let Some(inode) = peek(tx, here)? else { break false };
            here = inode.parent;
        };
        self.known.extend(way.into_iter().map(|dir| (dir, inside)));
        Ok(inside)
    }
}

fn peek(tx: &mut Tx<'_>, file: FileId) -> Outcome<Option<Inode>> {
    match tx.peek(&key::inode(file))? {
        Some(bytes) => Ok(Some(schema::decode(&bytes, "of an inode")?)),
        None => Ok(None),
    }
}
