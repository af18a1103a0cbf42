//! Access control lists in the store: extended attributes with reserved names. A list that says no
//! more than permission bits do is not stored.

use crate::acl::Acl;
use crate::ops::access::{self, SETGID};
use crate::ops::{Context, Outcome, inodes, revoke, xattrs};
use crate::schema::{Inode, key};
use weir_metastore::{Tx, Value};
use weir_types::codec::Bytes;
use weir_types::{ACL_ACCESS, ACL_DEFAULT, ErrorKind, FileId, FileKind};

/// Permission bits of the three classes, which a list has too.
const CLASSES: u16 = 0o777;

/// Kind of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The list for access to the file.
    Access,
    /// The default list for new files in the directory.
    Default,
}

impl Kind {
    /// The kind with this attribute name.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        [Kind::Access, Kind::Default].into_iter().find(|kind| kind.name() == name)
    }

    fn name(self) -> &'static [u8] {
        match self {
            Kind::Access => ACL_ACCESS,
            Kind::Default => ACL_DEFAULT,
        }
    }

    fn is_on(self, inode: &Inode) -> bool {
        match self {
            Kind::Access => inode.has_acl,
            Kind::Default => inode.has_default_acl,
        }
    }
}

/// Loads a list that exists according to the inode.
pub(crate) fn load(tx: &mut Tx<'_>, file: FileId, kind: Kind) -> Outcome<Acl> {
    let value = tx.get(&key::xattr(file, kind.name()))?;
    decoded(file, value)
}

/// As [`load`] for access, without adding it to the transaction's conflict checks.
pub(crate) fn peek(tx: &mut Tx<'_>, file: FileId) -> Outcome<Acl> {
    let value = tx.peek(&key::xattr(file, ACL_ACCESS))?;
    decoded(file, value)
}

fn decoded(file: FileId, value: Option<Value>) -> Outcome<Acl> {
    let acl = value.and_then(|value| Acl::decode(&value).ok().flatten());
    acl.ok_or_else(|| inodes::corrupt(file, "its access control list is missing or makes no sense"))
}

/// The value of the attribute. Every client may read it.
pub(crate) fn value(tx: &mut Tx<'_>, file: FileId, kind: Kind) -> Outcome<Bytes> {
    let inode = inodes::load(tx, file)?;
    if inode.kind == FileKind::Symlink {
        return Err(ErrorKind::Unsupported.into());
    }
    match (kind, &inode.acl) {
        (Kind::Access, Some(acl)) => Ok(Bytes(acl.encode())),
        (Kind::Default, _) if inode.has_default_acl => Ok(Bytes(load(tx, file, kind)?.encode())),
        _ => Err(ErrorKind::NoAttribute.into()),
    }
}

/// Sets a list, or removes it if the value is empty. Only the owner may.
///
/// # Errors
/// Those of [`Acl::decode`]; `Unsupported` for symbolic links; `AccessDenied` for a default list of
/// a file that is no directory; `NotPermitted`.
pub(crate) fn change(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    (file, kind): (FileId, Kind),
    value: &[u8],
) -> Outcome<()> {
    let acl = Acl::decode(value)?;
    let mut inode = inodes::load(tx, file)?;
    match (inode.kind, kind) {
        (FileKind::Symlink, _) => return Err(ErrorKind::Unsupported.into()),
        (FileKind::Directory, _) | (_, Kind::Access) => {}
        (_, Kind::Default) if acl.is_none() => return Ok(()),
        (_, Kind::Default) => return Err(ErrorKind::AccessDenied.into()),
    }
    if !access::owns(ctx.caller, &inode) {
        return Err(ErrorKind::NotPermitted.into());
    }
    if acl.is_none() && !kind.is_on(&inode) {
        return Ok(());
    }
    let kept = match (kind, acl) {
        (Kind::Access, Some(acl)) => {
            let (mode, is_all) = acl.mode();
            inode.mode = inode.mode & !CLASSES | mode;
            if !access::is_root(ctx.caller) && !ctx.caller.in_group(inode.gid) {
                inode.mode &= !SETGID;
            }
            (!is_all).then_some(acl)
        }
        (_, acl) => acl,
    };
    put(tx, (file, &mut inode), kind, kept)?;
    inode.changed(ctx.now);
    inodes::store(tx, file, &inode)?;
    revoke::run(tx, ctx, (file, &inode))
}

/// Adapts the list of a file after a change of its mode. The caller stores the inode.
pub(crate) fn follow_mode(tx: &mut Tx<'_>, file: FileId, inode: &mut Inode) -> Outcome<()> {
    let Some(mut acl) = inode.acl.take() else { return Ok(()) };
    acl.set_mode(inode.mode);
    put(tx, (file, inode), Kind::Access, Some(acl))
}

/// Applies the directory's default list to a new file, or, if there is none, the umask. The caller
/// stores the inode.
pub(crate) fn inherit(
    tx: &mut Tx<'_>,
    (parent, from): (FileId, &Inode),
    umask: u16,
    (file, inode): (FileId, &mut Inode),
) -> Outcome<()> {
    if !from.has_default_acl {
        inode.mode &= !(umask & CLASSES);
        return Ok(());
    }
    let default = load(tx, parent, Kind::Default)?;
    let (acl, mode) = default.inherited(inode.mode);
    inode.mode = mode;
    let (_, is_all) = acl.mode();
    if !is_all {
        put(tx, (file, inode), Kind::Access, Some(acl))?;
    }
    if inode.kind == FileKind::Directory {
        put(tx, (file, inode), Kind::Default, Some(default))?;
    }
    Ok(())
}

/// Writes or removes a list. The caller stores the changed inode.
fn put(
    tx: &mut Tx<'_>,
    (file, inode): (FileId, &mut Inode),
    kind: Kind,
    acl: Option<Acl>,
) -> Outcome<()> {
    let (at, name_bytes) = (key::xattr(file, kind.name()), kind.name().len() as u32 + 1);
    match (&acl, kind.is_on(inode)) {
        (Some(acl), true) => tx.put(&at, &acl.encode())?,
        (Some(acl), false) => {
            tx.put(&at, &acl.encode())?;
            inode.xattrs += 1;
            inode.xattr_name_bytes += name_bytes;
            if inode.xattr_name_bytes > xattrs::MAX_XATTR_LIST_BYTES {
                return Err(ErrorKind::NoSpace.into());
            }
        }
        (None, true) => {
            tx.delete(&at)?;
            inode.xattrs = inode.xattrs.saturating_sub(1);
            inode.xattr_name_bytes = inode.xattr_name_bytes.saturating_sub(name_bytes);
        }
        (None, false) => {}
    }
    match kind {
        Kind::Access => (inode.has_acl, inode.acl) = (acl.is_some(), acl),
        Kind::Default => inode.has_default_acl = acl.is_some(),
    }
    Ok(())
}
