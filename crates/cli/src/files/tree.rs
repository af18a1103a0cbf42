//! What cp needs of a tree of files, wherever it is.

use crate::failure::Done;
use weir_client::File;
use weir_types::{FileKind, Timestamp};

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change.
    pub mtime: Timestamp,
    /// Tells files apart within the tree: device and inode.
    pub identity: (u64, u64),
}

/// A file that is read from. Any number of threads may read at once.
pub trait Source: Send + Sync {
    /// The file, if it is one of a cluster.
    fn in_cluster(&self) -> Option<&File> {
        None
    }
    /// Reads until the buffer is full or the file ends; returns the bytes read.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Done<usize>;
}

/// A file that is written to. Any number of threads may write at once.
pub trait Sink: Send + Sync {
    /// Lets the cluster copy some of the bytes at `offset` of a source to the same
    /// place here, at most `len`; returns how many: 0 where the source ends. `None`:
    /// the two are not in one cluster.
    fn copy_at(&self, _source: &dyn Source, _offset: u64, _len: u64) -> Done<Option<u64>> {
        Ok(None)
    }
    /// Writes all of the bytes.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Done;
    /// Returns when everything is written and can be read by others.
    fn finish(&self) -> Done;
}

/// A tree of files. Paths are absolute within it; errors name the file.
pub trait Tree: Send + Sync {
    /// A path as the user would write it.
    fn shown(&self, path: &[u8]) -> String;
    /// What is known of a file; nothing if it does not exist.
    fn stat(&self, path: &[u8], follow: bool) -> Done<Option<Meta>>;
    /// The entries of a directory, without `.` and `..`.
    fn list(&self, path: &[u8]) -> Done<Vec<(Vec<u8>, Meta)>>;
    /// Makes a directory.
    fn make_dir(&self, path: &[u8], mode: u16) -> Done;
    /// What a symbolic link says.
    fn read_link(&self, path: &[u8]) -> Done<Vec<u8>>;
    /// Makes a symbolic link, in place of one that is there.
    fn make_link(&self, path: &[u8], target: &[u8]) -> Done;
    /// Opens a file to read it.
    fn open(&self, path: &[u8]) -> Done<Box<dyn Source>>;
    /// Opens a file to write it: makes or empties it.
    fn create(&self, path: &[u8], mode: u16) -> Done<Box<dyn Sink>>;
    /// Sets mode and times, and the owner where that is permitted.
    fn set_meta(&self, path: &[u8], meta: &Meta) -> Done;
    /// Whether two trees are the same one.
    fn is(&self, other: &str) -> bool;
    /// Names the tree, for [`Tree::is`].
    fn identity(&self) -> String;
}
