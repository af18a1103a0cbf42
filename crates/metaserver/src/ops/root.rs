//! Makes the root directory of a new file system.

use crate::ops::{Outcome, inodes};
use crate::schema::Inode;
use weir_metastore::Tx;
use weir_types::{FileId, FileKind, LayoutSpec, Timestamp};

/// Who owns the root, and what it is like.
#[derive(Clone, Debug)]
pub struct Root {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u16,
    /// What new files get where no directory says otherwise.
    pub default_layout: LayoutSpec,
    /// When.
    pub now: Timestamp,
}

/// Does it. The root is its own parent.
pub fn run(tx: &mut Tx<'_>, root: &Root) -> Outcome<()> {
    let body = Inode::empty_directory(root.default_layout.clone());
    let mut inode = Inode::new(FileKind::Directory, FileId::ROOT, root.now, body);
    (inode.uid, inode.gid, inode.mode) = (root.uid, root.gid, root.mode);
    inodes::store(tx, FileId::ROOT, &inode)
}
