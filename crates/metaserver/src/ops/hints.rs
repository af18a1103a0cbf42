//! Hints on files and directories about the visibility of other clients' changes: an extended
//! attribute that is read at each open, so that it comes with the reply.

use crate::ops::Outcome;
use crate::schema::{Inode, key};
use weir_metastore::Tx;
use weir_types::{CONSISTENCY_XATTR, Consistency, Error, ErrorKind, FileId};

/// The hint on a file or directory.
pub(crate) fn of(tx: &mut Tx<'_>, file: FileId) -> Outcome<Option<Consistency>> {
    let value = tx.get(&key::xattr(file, CONSISTENCY_XATTR))?;
    Ok(value.and_then(|value| Consistency::from_name(&value)))
}

/// Whether leases are useless for a file, because clients that open it cache nothing under them.
pub(crate) fn without_leases(tx: &mut Tx<'_>, file: FileId) -> Outcome<bool> {
    Ok(of(tx, file)?.is_some_and(|hint| hint != Consistency::Strict))
}

/// Refuses invalid hints.
///
/// # Errors
/// `InvalidArgument`, with the valid values.
pub(crate) fn check(name: &[u8], value: &[u8]) -> Outcome<()> {
    if name != CONSISTENCY_XATTR || Consistency::from_name(value).is_some() {
        return Ok(());
    }
    let words = Consistency::ALL.map(Consistency::name).join(", ");
    let message = format!("{} is one of {words}", String::from_utf8_lossy(name));
    Err(Error::new(ErrorKind::InvalidArgument, message).into())
}

/// Gives a new file or directory the hint of its directory. The caller stores its changed inode.
pub(crate) fn inherit(
    tx: &mut Tx<'_>,
    (parent, from): (FileId, &Inode),
    (file, inode): (FileId, &mut Inode),
) -> Outcome<()> {
    if from.xattrs == 0 {
        return Ok(());
    }
    if let Some(hint) = of(tx, parent)? {
        tx.put(&key::xattr(file, CONSISTENCY_XATTR), hint.name().as_bytes())?;
        inode.xattrs += 1;
        inode.xattr_name_bytes += CONSISTENCY_XATTR.len() as u32 + 1;
    }
    Ok(())
}
