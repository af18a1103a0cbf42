//! Makes the root directory of a new file system.

use crate::ops::{Outcome, inodes};
use crate::schema::Inode;
use weir_metastore::Tx;
use weir_types::{FileId, FileKind, LayoutSpec, Timestamp};

/// Properties of the root directory.
#[derive(Clone, Debug)]
pub struct Root {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u16,
    /// Layout of new files whose directories have no default layout.
    pub default_layout: LayoutSpec,
    /// Time of its creation.
    pub now: Timestamp,
}

/// Makes the root directory, which is its own parent.
pub fn run(tx: &mut Tx<'_>, root: &Root) -> Outcome<()> {
    let body = Inode::empty_directory(root.default_layout.clone());
    let mut inode = Inode::new(FileKind::Directory, FileId::ROOT, root.now, body);
    (inode.uid, inode.gid, inode.mode) = (root.uid, root.gid, root.mode);
    inodes::store(tx, FileId::ROOT, &inode)
}
