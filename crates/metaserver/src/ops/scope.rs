//! The scope of an operation: what it will touch, from its request and a look at the store, so that
//! sessions with contradicting caches can be asked first. It is computed again each time a request
//! is run, because a name may stand for another file by then.
//!
//! Permissions are not checked: asking a session to forget something that then does not change
//! costs a message, and no more.

use crate::leases::ranges::whole;
use crate::ops::confine::Confined;
use crate::ops::{Outcome, access, hints, inodes, names, parities};
use crate::schema::Dentry;
use weir_metastore::Tx;
use weir_types::codec::Reader;
use weir_types::{Attr, Caller, Decode, Error, FileId, FileKind};
use weir_wire::Rights;
use weir_wire::lease::{AcquireRequest, LeaseMode, LeaseRange, RecoveredRequest};
use weir_wire::message::{Op, Request};
use weir_wire::meta::*;
use weir_wire::targets::AcceptLossesRequest;

/// What an operation will touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Names that change, and with them the attributes of their directories.
    pub names: Vec<(FileId, Vec<u8>)>,
    /// Files whose attributes change (for directories: or any name).
    pub attributes: Vec<FileId>,
    /// Regular files that lose a name, and whose attributes change thereby.
    pub removals: Vec<FileId>,
    /// Files whose size and time have to be known.
    pub reports: Vec<FileId>,
    /// Ranges that other sessions must not hold.
    pub claims: Vec<LeaseRange>,
}

impl Scope {
    /// All files and directories in the scope.
    pub fn files(&self) -> Vec<FileId> {
        let names = self.names.iter().map(|(dir, _)| *dir);
        let claims = self.claims.iter().map(|claim| claim.file);
        let attributes = self.attributes.iter().chain(&self.removals).chain(&self.reports).copied();
        let mut files: Vec<FileId> = names.chain(attributes).chain(claims).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Adds the loss of a name.
    fn goes(&mut self, there: &Dentry) {
        match there.kind {
            FileKind::File => self.removals.push(there.file),
            _ => self.attributes.push(there.file),
        }
    }

    fn name(&mut self, dir: FileId, name: &[u8]) {
        self.names.push((dir, name.to_vec()));
    }
}

/// The scope of a request. `polls` says that the session polls for events: it caches replies and is
/// told of changes. For a session that does not poll, others report their writes before an open,
/// and its own writes are visible when it has reported them. `root` is the client's root.
pub fn of(
    tx: &mut Tx<'_>,
    (op, body): (Op, Reader<'_>),
    root: FileId,
    polls: bool,
) -> Outcome<Scope> {
    let mut scope = Scope::default();
    match op {
        Op::Lookup => {
            let asked = decode::<LookupRequest>(body, root)?;
            scope.reports.extend(child(tx, asked.parent, &asked.name)?);
        }
        Op::GetAttr => scope.reports.push(decode::<GetAttrRequest>(body, root)?.file),
        Op::Open => {
            let asked = decode::<OpenRequest>(body, root)?;
            scope.reports.push(asked.file);
            let keeps = polls && !hints::without_leases(tx, asked.file)?;
            opened(&mut scope, asked.file, asked.rights, keeps);
        }
        Op::Create => {
            let asked = decode::<CreateRequest>(body, root)?;
            if asked.name.is_empty() {
                return Ok(scope);
            }
            match child(tx, asked.parent, &asked.name)? {
                None => scope.name(asked.parent, &asked.name),
                Some(_) if asked.exclusive || asked.kind != FileKind::File => {}
                Some(file) => {
                    scope.reports.push(file);
                    if asked.truncate {
                        scope.attributes.push(file);
                        scope.claims.push(whole(file, LeaseMode::Write));
                    } else {
                        let keeps = polls && !hints::without_leases(tx, file)?;
                        opened(&mut scope, file, asked.rights, keeps);
                    }
                }
            }
        }
        Op::Mkdir => {
            let asked = decode::<MkdirRequest>(body, root)?;
            made(tx, &mut scope, asked.parent, &asked.name)?;
        }
        Op::Symlink => {
            let asked = decode::<SymlinkRequest>(body, root)?;
            made(tx, &mut scope, asked.parent, &asked.name)?;
        }
        Op::Link => {
            let asked = decode::<LinkRequest>(body, root)?;
            made(tx, &mut scope, asked.parent, &asked.name)?;
            scope.attributes.push(asked.file);
            scope.reports.push(asked.file);
        }
        Op::Unlink => {
            let asked = decode::<UnlinkRequest>(body, root)?;
            if let Some(there) = dentry(tx, asked.parent, &asked.name)? {
                scope.name(asked.parent, &asked.name);
                scope.goes(&there);
            }
        }
        Op::Rmdir => {
            let asked = decode::<RmdirRequest>(body, root)?;
            removed(tx, &mut scope, asked.parent, &asked.name)?;
        }
        Op::Rename => {
            let asked = decode::<RenameRequest>(body, root)?;
            if removed(tx, &mut scope, asked.parent, &asked.name)? {
                scope.name(asked.new_parent, &asked.new_name);
                match dentry(tx, asked.new_parent, &asked.new_name)? {
                    Some(there) if asked.exchange => scope.attributes.push(there.file),
                    Some(there) => scope.goes(&there),
                    None => {}
                }
            }
        }
        Op::SetAttr => {
            let asked = decode::<SetAttrRequest>(body, root)?;
            scope.attributes.push(asked.file);
            scope.reports.push(asked.file);
            if asked.size.is_some() {
                scope.claims.push(whole(asked.file, LeaseMode::Write));
            }
        }
        Op::SetXattr => scope.attributes.push(decode::<SetXattrRequest>(body, root)?.file),
        Op::RemoveXattr => scope.attributes.push(decode::<RemoveXattrRequest>(body, root)?.file),
        Op::SetLayout => {
            let file = decode::<SetLayoutRequest>(body, root)?.file;
            scope.attributes.push(file);
            // Only an empty file is laid out anew: is it?
            scope.claims.push(whole(file, LeaseMode::Write));
        }
        Op::AcceptLosses => {
            let asked = decode::<AcceptLossesRequest>(body, root)?;
            if asked.accept {
                scope.attributes.push(asked.file);
                scope.claims.push(whole(asked.file, LeaseMode::Write));
            }
        }
        Op::CommitSize => {
            let asked = decode::<CommitSizeRequest>(body, root)?;
            scope.attributes.push(asked.file);
            // It wrote without a lease, or has lost that since: nobody may keep what
            // was there. (What says nothing new is a report that the end of a recall
            // has overtaken: it must not wait for who waits for it.)
            let inode = inodes::find(tx, asked.file)?;
            let news = inode.is_some_and(|inode| {
                inode.generation == asked.generation && inode.size < asked.size
            });
            if !polls || news || hints::without_leases(tx, asked.file)? {
                scope.claims.push(whole(asked.file, LeaseMode::Write));
            }
        }
        Op::Recovered => scope.attributes.push(decode::<RecoveredRequest>(body, root)?.file),
        Op::Acquire => {
            let lease = decode::<AcquireRequest>(body, root)?.lease;
            if lease.mode == LeaseMode::Write {
                scope.attributes.push(lease.file);
            }
            scope.claims.push(lease);
        }
        _ => {}
    }
    debug_assert!(scope.claims.len() <= 1);
    Ok(scope)
}

/// The file with parities that a request is going to write, and that may not be written before it
/// has copies again. Of a session that has the file open for writing every look at its layout
/// counts: it would learn by it how to get past the fence.
pub(crate) fn to_be_thawed(
    tx: &mut Tx<'_>,
    (op, body): (Op, Reader<'_>),
    root: FileId,
    (caller, writes): (&Caller, impl Fn(FileId) -> bool),
) -> Outcome<Option<FileId>> {
    let writing = |rights: Rights| rights.allow(Rights::WRITE);
    let (file, wants) = match op {
        Op::Open => {
            let asked = decode::<OpenRequest>(body, root)?;
            (asked.file, writing(asked.rights))
        }
        Op::Create => {
            let asked = decode::<CreateRequest>(body, root)?;
            if asked.name.is_empty() || asked.exclusive || asked.kind != FileKind::File {
                return Ok(None);
            }
            // What is emptied is laid out anew.
            match child(tx, asked.parent, &asked.name)? {
                Some(file) if !asked.truncate => (file, writing(asked.rights)),
                _ => return Ok(None),
            }
        }
        Op::GetLayout => {
            let asked = decode::<GetLayoutRequest>(body, root)?;
            (asked.file, writing(asked.rights))
        }
        Op::Extend => (decode::<ExtendRequest>(body, root)?.file, true),
        Op::SetAttr => {
            let asked = decode::<SetAttrRequest>(body, root)?;
            match asked.size {
                Some(1..) => (asked.file, true),
                _ => return Ok(None),
            }
        }
        Op::Acquire => {
            let asked = decode::<AcquireRequest>(body, root)?.lease;
            (asked.file, asked.mode == LeaseMode::Write)
        }
        _ => return Ok(None),
    };
    if !wants && !writes(file) || !parities::waits_to_write(tx, file)? {
        return Ok(None);
    }
    // Who may not write is refused, and has nothing done for it.
    let inode = inodes::load(tx, file)?;
    let may = writes(file) || access::allows(caller, &inode, access::WRITE);
    Ok(may.then_some(file))
}

fn decode<R: Request + Confined>(mut body: Reader<'_>, root: FileId) -> Outcome<R> {
    let mut request = R::decode(&mut body).map_err(Error::from)?;
    body.finish().map_err(Error::from)?;
    for file in request.files() {
        *file = real(*file, root);
    }
    Ok(request)
}

/// The real id of the client's `file`.
fn real(file: FileId, root: FileId) -> FileId {
    if file == FileId::ROOT { root } else { file }
}

fn child(tx: &mut Tx<'_>, dir: FileId, name: &[u8]) -> Outcome<Option<FileId>> {
    Ok(dentry(tx, dir, name)?.map(|dentry| dentry.file))
}

fn dentry(tx: &mut Tx<'_>, dir: FileId, name: &[u8]) -> Outcome<Option<Dentry>> {
    if matches!(name, b"." | b"..") || names::check(name).is_err() {
        return Ok(None);
    }
    names::find(tx, dir, name)
}

/// Adds close-to-open consistency for a session that caches nothing (of this file): it asks others
/// to write back, or to cache nothing either.
fn opened(scope: &mut Scope, file: FileId, rights: Rights, keeps: bool) {
    if !keeps {
        let writes = rights.allow(Rights::WRITE);
        let mode = if writes { LeaseMode::Write } else { LeaseMode::Read };
        scope.claims.push(whole(file, mode));
    }
}

fn made(tx: &mut Tx<'_>, scope: &mut Scope, dir: FileId, name: &[u8]) -> Outcome<()> {
    // A name that is there stays: the answer is that it exists.
    if child(tx, dir, name)?.is_none() {
        scope.name(dir, name);
    }
    Ok(())
}

fn removed(tx: &mut Tx<'_>, scope: &mut Scope, dir: FileId, name: &[u8]) -> Outcome<bool> {
    let Some(file) = child(tx, dir, name)? else { return Ok(false) };
    scope.name(dir, name);
    scope.attributes.push(file);
    Ok(true)
}

/// What a reply reports. It may be cached unless a change is about to come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Directory whose names it reports.
    pub names: Option<FileId>,
    /// Files whose attributes it reports.
    pub attributes: Vec<FileId>,
}

/// What the reply `reply` to a request reports; `None` for a reply that says that a name does not
/// exist.
pub fn told(op: Op, body: Reader<'_>, reply: Option<&[u8]>, root: FileId) -> Outcome<Told> {
    let mut told = Told::default();
    match op {
        Op::Lookup => {
            let asked = decode::<LookupRequest>(body, root)?;
            if !matches!(&asked.name.0[..], b"." | b"..") {
                told.names = Some(asked.parent);
            }
        }
        Op::Create => told.names = Some(decode::<CreateRequest>(body, root)?.parent),
        Op::Mkdir => told.names = Some(decode::<MkdirRequest>(body, root)?.parent),
        Op::Symlink => told.names = Some(decode::<SymlinkRequest>(body, root)?.parent),
        Op::Link => told.names = Some(decode::<LinkRequest>(body, root)?.parent),
        Op::Readdir => told.names = Some(decode::<ReaddirRequest>(body, root)?.dir),
        Op::GetXattr => told.attributes.push(decode::<GetXattrRequest>(body, root)?.file),
        Op::ListXattr => told.attributes.push(decode::<ListXattrRequest>(body, root)?.file),
        Op::Readlink => told.attributes.push(decode::<ReadlinkRequest>(body, root)?.file),
        _ => {}
    }
    let Some(reply) = reply else { return Ok(told) };
    let mut reply = Reader::new(reply);
    match op {
        // They begin with attributes.
        Op::Lookup
        | Op::GetAttr
        | Op::Mkdir
        | Op::Symlink
        | Op::Link
        | Op::CommitSize
        | Op::Open
        | Op::Create
        | Op::SetAttr
        | Op::Recovered => {
            let attr = Attr::decode(&mut reply).map_err(Error::from)?;
            told.attributes.push(real(attr.file, root));
        }
        Op::Readdir => {
            let page = DirPage::decode(&mut reply).map_err(Error::from)?;
            let known = page.entries.iter().filter_map(|entry| entry.attr.as_ref());
            told.attributes.extend(known.map(|attr| attr.file));
        }
        _ => {}
    }
    Ok(told)
}
