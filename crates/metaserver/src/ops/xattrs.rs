//! Classes of extended attributes and their permissions.

use crate::ops::{Context, Outcome, access};
use crate::schema::Inode;
use weir_types::{ErrorKind, FileId, FileKind};
use weir_wire::Rights;
use weir_wire::meta::CAPABILITY;

/// The longest name of an extended attribute, bytes.
pub(crate) const MAX_XATTR_NAME_BYTES: usize = 255;
/// The most bytes of all names of a file with a zero byte after each: the limit of `listxattr`.
pub(crate) const MAX_XATTR_LIST_BYTES: u32 = 65_536;

/// Class of an attribute, by the first part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// `user.`: permissions as for the file's data; regular files and directories only.
    User,
    /// `trusted.`: for the superuser, hidden from others.
    Trusted,
    /// `security.`: readable for all, writable for the superuser.
    Security,
}

/// The class of a name.
///
/// # Errors
/// `AttributeRange` for names that are empty or too long; `Unsupported` for classes that Weir does
/// not store (`system.`, whose access control lists are handled before).
pub(crate) fn class(name: &[u8]) -> Outcome<Class> {
    if name.is_empty() || name.len() > MAX_XATTR_NAME_BYTES {
        return Err(ErrorKind::AttributeRange.into());
    }
    let classes = [
        (&b"user."[..], Class::User),
        (b"trusted.", Class::Trusted),
        (b"security.", Class::Security),
    ];
    for (prefix, class) in classes {
        if let Some(rest) = name.strip_prefix(prefix) {
            let good = !rest.is_empty() && !rest.contains(&0);
            return if good { Ok(class) } else { Err(ErrorKind::InvalidArgument.into()) };
        }
    }
    Err(ErrorKind::Unsupported.into())
}

/// Whether the caller may read an attribute.
pub(crate) fn require_read(ctx: &Context<'_>, inode: &Inode, class: Class) -> Outcome<()> {
    match class {
        Class::User if !carries_user(inode) => Err(ErrorKind::NoAttribute.into()),
        Class::User => access::require(ctx.caller, inode, access::READ),
        Class::Trusted if !access::is_root(ctx.caller) => Err(ErrorKind::NoAttribute.into()),
        _ => Ok(()),
    }
}

/// Whether the caller may set or remove an attribute.
pub(crate) fn require_write(ctx: &Context<'_>, inode: &Inode, class: Class) -> Outcome<()> {
    if class != Class::User {
        let allowed = access::is_root(ctx.caller);
        return if allowed { Ok(()) } else { Err(ErrorKind::NotPermitted.into()) };
    }
    if !carries_user(inode) {
        return Err(ErrorKind::NotPermitted.into());
    }
    let sticky = inode.kind == FileKind::Directory && inode.mode & access::STICKY != 0;
    if sticky && !access::owns(ctx.caller, inode) {
        return Err(ErrorKind::NotPermitted.into());
    }
    access::require(ctx.caller, inode, access::WRITE)
}

/// Whether removing the attribute equals the effect of a write or a chown by a caller with
/// permission: a program loses its privileges.
pub(crate) fn drops_privilege(
    ctx: &Context<'_>,
    (file, inode): (FileId, &Inode),
    name: &[u8],
) -> bool {
    let may = access::owns(ctx.caller, inode) || ctx.has_open(file, Rights::WRITE);
    name == CAPABILITY && may
}

fn carries_user(inode: &Inode) -> bool {
    matches!(inode.kind, FileKind::File | FileKind::Directory)
}
