//! Names in directories. Each is stored twice: by name for lookups, and by cookie for listings.
//! Listings are stable under concurrent changes because cookies grow and are never used again.

use crate::ops::{Context, Outcome, access, inodes};
use crate::schema::{self, Dentry, Inode, ListEntry, key};
use weir_metastore::Tx;
use weir_types::limits::MAX_NAME_BYTES;
use weir_types::{ErrorKind, FileId, FileKind};

/// Refuses invalid names of directory entries.
///
/// # Errors
/// `NameTooLong`; `InvalidArgument` for an empty name, `.`, `..`, and names with a slash or a zero
/// byte.
pub(crate) fn check(name: &[u8]) -> Outcome<()> {
    if name.len() > MAX_NAME_BYTES {
        return Err(ErrorKind::NameTooLong.into());
    }
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|b| matches!(b, b'/' | 0)) {
        return Err(ErrorKind::InvalidArgument.into());
    }
    Ok(())
}

/// Looks up a name.
pub(crate) fn find(tx: &mut Tx<'_>, dir: FileId, name: &[u8]) -> Outcome<Option<Dentry>> {
    match tx.get(&key::dentry(dir, name))? {
        Some(bytes) => Ok(Some(schema::decode(&bytes, "of a name")?)),
        None => Ok(None),
    }
}

/// A directory in which a name is about to be made: it exists, the name is valid, and the caller
/// may search it.
pub(crate) fn begin(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    dir: FileId,
    name: &[u8],
) -> Outcome<Inode> {
    check(name)?;
    let inode = inodes::load_directory(tx, dir)?;
    access::require(ctx.caller, &inode, access::SEARCH)?;
    Ok(inode)
}

/// As [`begin`], for a name that must not exist and will be made.
///
/// # Errors
/// `Exists`, before `AccessDenied` for lack of write permission, as on Linux.
pub(crate) fn begin_new(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    dir: FileId,
    name: &[u8],
) -> Outcome<Inode> {
    let inode = begin(tx, ctx, dir, name)?;
    if find(tx, dir, name)?.is_some() {
        return Err(ErrorKind::Exists.into());
    }
    access::require(ctx.caller, &inode, access::WRITE)?;
    Ok(inode)
}

/// Adds a name. The caller stores the directory's changed inode.
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    (dir, inode): (FileId, &mut Inode),
    name: &[u8],
    (file, kind): (FileId, FileKind),
) -> Outcome<()> {
    let body = inodes::directory(inode)?;
    let cookie = body.next_cookie;
    body.next_cookie += 1;
    put(tx, dir, name, Dentry { file, kind, cookie })?;
    inode.modified(ctx.now);
    Ok(())
}

/// Writes both records of a name.
pub(crate) fn put(tx: &mut Tx<'_>, dir: FileId, name: &[u8], dentry: Dentry) -> Outcome<()> {
    let entry = ListEntry { name: name.into(), file: dentry.file, kind: dentry.kind };
    tx.put(&key::dentry(dir, name), &schema::encode(&dentry))?;
    tx.put(&key::listing(dir, dentry.cookie), &schema::encode(&entry))?;
    Ok(())
}

/// Removes a name. The caller stores the directory's changed inode.
pub(crate) fn remove(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    (dir, inode): (FileId, &mut Inode),
    name: &[u8],
    dentry: &Dentry,
) -> Outcome<()> {
    tx.delete(&key::dentry(dir, name))?;
    tx.delete(&key::listing(dir, dentry.cookie))?;
    inode.modified(ctx.now);
    Ok(())
}

/// # Errors
/// `NotEmpty`.
pub(crate) fn require_empty(tx: &mut Tx<'_>, dir: FileId) -> Outcome<()> {
    let (start, end) = key::listing_of(dir);
    if tx.range(&start, &end, 1)?.is_empty() { Ok(()) } else { Err(ErrorKind::NotEmpty.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Fault;

    #[test]
    fn names_are_checked_as_posix_says() {
        let kind = |name: &[u8]| match check(name) {
            Ok(()) => None,
            Err(Fault::Refused(e)) => Some(e.kind),
            Err(other) => panic!("{other}"),
        };
        for good in [&b"a"[..], b"...", b"\xff\xfe", &[b'x'; 255]] {
            assert_eq!(kind(good), None, "{good:?}");
        }
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(kind(bad), Some(ErrorKind::InvalidArgument), "{bad:?}");
        }
        assert_eq!(kind(&[b'x'; 256]), Some(ErrorKind::NameTooLong));
    }
}
