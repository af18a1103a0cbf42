//! Loads and stores inodes.

use crate::ops::{Outcome, acls};
use crate::schema::{self, Body, Directory, Inode, RegularFile, key};
use weir_metastore::Tx;
use weir_types::{Error, ErrorKind, FileId, FileKind, Generation};
use weir_wire::lease::TO_THE_END;

/// The inode of a file, if it exists, with its access control list.
pub(crate) fn find(tx: &mut Tx<'_>, file: FileId) -> Outcome<Option<Inode>> {
    let Some(bytes) = tx.get(&key::inode(file))? else { return Ok(None) };
    let mut inode: Inode = schema::decode(&bytes, "of an inode")?;
    if inode.has_acl {
        inode.acl = Some(acls::load(tx, file, acls::Kind::Access)?);
    }
    Ok(Some(inode))
}

/// The inode of a file.
///
/// # Errors
/// `Stale`: it does not exist (any more). A client that came by a name looks the name up again.
pub(crate) fn load(tx: &mut Tx<'_>, file: FileId) -> Outcome<Inode> {
    find(tx, file)?.ok_or_else(|| ErrorKind::Stale.into())
}

/// The inode of a directory.
///
/// # Errors
/// `Stale`; `NotDirectory`.
pub(crate) fn load_directory(tx: &mut Tx<'_>, dir: FileId) -> Outcome<Inode> {
    let inode = load(tx, dir)?;
    if inode.kind == FileKind::Directory { Ok(inode) } else { Err(ErrorKind::NotDirectory.into()) }
}

/// The inode of a name's file. A name without one is damage.
pub(crate) fn load_named(tx: &mut Tx<'_>, file: FileId) -> Outcome<Inode> {
    find(tx, file)?.ok_or_else(|| corrupt(file, "a name stands for it but it does not exist"))
}

/// Stores an inode. The first that parities are wished for raises the version of the store.
pub(crate) fn store(tx: &mut Tx<'_>, file: FileId, inode: &Inode) -> Outcome<()> {
    let spec = match &inode.body {
        Body::File(body) => Some(&body.spec),
        Body::Directory(body) => Some(&body.default_layout),
        Body::Other => None,
    };
    if let Some(spec) = spec.filter(|spec| spec.parities > 0)
        && let Some(format) = tx.get(key::FORMAT)?
        && let Some(raised) = schema::with_parities(&format, spec.mirrors)
    {
        tx.put(key::FORMAT, &raised)?;
    }
    Ok(tx.put(&key::inode(file), &schema::encode(inode))?)
}

/// The part of an inode that only directories have.
///
/// # Errors
/// `NotDirectory`.
pub(crate) fn directory(inode: &mut Inode) -> Outcome<&mut Directory> {
    match &mut inode.body {
        Body::Directory(body) => Ok(body),
        _ => Err(ErrorKind::NotDirectory.into()),
    }
}

/// The part of an inode that only regular files have.
///
/// # Errors
/// `IsDirectory`; `InvalidArgument` for anything else without data.
pub(crate) fn regular(inode: &Inode) -> Outcome<&RegularFile> {
    match &inode.body {
        Body::File(body) => Ok(body),
        Body::Directory(_) => Err(ErrorKind::IsDirectory.into()),
        Body::Other => Err(ErrorKind::InvalidArgument.into()),
    }
}

/// The fence against changes by an old layout. It is below the generation of a pending truncation,
/// which would otherwise count as done. (After a dead writer, whose size is still unknown, there is
/// nothing to truncate.)
pub(crate) fn fence(inode: &Inode) -> Generation {
    let pending = regular(inode).ok().and_then(|body| body.pending_truncate.as_ref());
    let cuts = pending.is_some_and(|pending| pending.size != TO_THE_END);
    Generation(inode.generation.0.saturating_sub(u64::from(cuts)))
}

/// As [`regular`], for changing it.
pub(crate) fn regular_mut(inode: &mut Inode) -> Outcome<&mut RegularFile> {
    regular(inode)?;
    match &mut inode.body {
        Body::File(body) => Ok(body),
        _ => Err(ErrorKind::InvalidArgument.into()),
    }
}

/// The error for contradictory metadata of a file.
pub(crate) fn corrupt(file: FileId, what: &str) -> crate::ops::Fault {
    Error::new(ErrorKind::Corrupt, format!("metadata of file {file}: {what}")).into()
}
