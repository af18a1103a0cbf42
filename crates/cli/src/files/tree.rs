//! The operations that cp needs of a tree of files, local or in a cluster.

use crate::failure::Done;
use std::ops::Range;
use std::sync::Arc;
use weir_client::File;
use weir_types::{FileKind, FileLayout, Timestamp};

/// The mode bits that depend on owner and group: setuid and setgid.
pub const PRIVILEGE: u16 = 0o6000;

/// The attributes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The kind of the file.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u16,
    /// The number of the owner.
    pub uid: u32,
    /// The number of the group.
    pub gid: u32,
    /// The number of names.
    pub nlink: u32,
    /// The number of a device, in the form that the kernel gives to FUSE file systems.
    pub rdev: u32,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last access.
    pub atime: Timestamp,
    /// The time of the last change.
    pub mtime: Timestamp,
    /// Device and inode, which identify the file within its tree.
    pub identity: (u64, u64),
}

/// What is kept of a file besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// All mode bits. Otherwise the permission bits, less the umask.
    pub mode: bool,
    /// Owner and group, if that is permitted.
    pub owner: bool,
    /// The times of access and change.
    pub times: bool,
    /// Hard links between copied files.
    pub links: bool,
    /// Extended attributes and access control lists.
    pub xattrs: bool,
}

/// Extended attributes: names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// How a file is created that receives the bytes of another one.
#[derive(Clone, Debug)]
pub struct Making<'a> {
    /// Permission bits.
    pub mode: u16,
    /// The layout of the file that it replaces.
    pub like: Option<&'a FileLayout>,
    /// Whether a lock shows other runs that the file is still being written.
    pub locked: bool,
}

/// Identifies a cluster in file trees and in mounts.
#[derive(Clone, Debug)]
pub struct ClusterSign {
    /// The source of the cluster's mounts.
    pub source: String,
    /// The name of the cluster, for people.
    pub name: String,
    /// The addresses of the metadata servers.
    pub metadata: Vec<String>,
}

impl ClusterSign {
    /// Whether both identify the same cluster. Names of clusters are not unique, but addresses are.
    pub fn is(&self, other: &Self) -> bool {
        let shares = || self.metadata.iter().any(|address| other.metadata.contains(address));
        self.source == other.source || (self.name == other.name && shares())
    }
}

/// Why an existing file is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// To continue it. It must be a plain file of this user with one name, as another run makes it.
    GoOn,
    /// To remove it. It must be as for `GoOn`, but nobody is waited for.
    Remove,
    /// To fill it. It is not a leftover, and may belong to anyone.
    Fill,
}

/// A held file of any kind. It stays the same file if its name changes meanwhile.
pub trait Held: Send + Sync {
    /// Identifies the file within the tree, as [`Meta::identity`].
    fn identity(&self) -> Done<(u64, u64)>;
    /// Sets mode, owner and times as far as `keep` says. Returns whether the owner could be set. If
    /// it could not, setuid and setgid are cleared.
    fn set_meta(&self, meta: &Meta, keep: Keep) -> Done<bool>;
    /// Sets an extended attribute; `false` if the file system does not support it.
    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Done<bool>;
    /// Removes an extended attribute if it exists.
    fn remove_xattr(&self, name: &[u8]) -> Done;
}

/// A file to read. Any number of threads may read at the same time.
pub trait Source: Send + Sync {
    /// The file in its cluster, if it is in one.
    fn in_cluster(&self) -> Option<&File> {
        None
    }
    /// Reads until the buffer is full or the file ends; returns the bytes read.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Done<usize>;
    /// The present size.
    fn size(&self) -> Done<u64>;
    /// The next range from `offset` on that is not a hole; `None` if only a hole follows.
    fn next_data(&self, offset: u64) -> Done<Option<Range<u64>>>;
    /// The extended attributes that can be copied, of this file even if its name leads elsewhere by
    /// now.
    fn xattrs(&self) -> Done<Xattrs>;
}

/// A file to write, and to read for comparison. Any number of threads may write at the same time.
pub trait Sink: Source + Held {
    /// Checks that the lock under which the file was created, if there is one, is still held.
    fn relock(&self) -> Done {
        Ok(())
    }
    /// Lets the cluster copy up to `len` bytes at `offset` of a source to the same offset here.
    /// Returns how many were copied: 0 at the end of the source. `None` if the two files are not in
    /// the same cluster.
    fn copy_at(&self, _source: &dyn Source, _offset: u64, _len: u64) -> Done<Option<u64>> {
        Ok(None)
    }
    /// Writes all of the bytes.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Done;
    /// Makes a range of the file a hole. The size does not change.
    fn clear(&self, range: Range<u64>) -> Done;
    /// Truncates or extends the file.
    fn set_size(&self, size: u64) -> Done;
    /// Returns when everything is written and visible to others.
    fn finish(&self) -> Done;
    /// Returns when everything written is durable.
    fn sync(&self) -> Done;
}

/// The entries of a directory without `.` and `..`, a page at a time.
pub trait Pages: Send {
    /// The next page; empty at the end.
    fn next(&mut self) -> Done<Vec<(Vec<u8>, Meta)>>;
}

/// A tree of files. Paths are absolute within it. Errors name the file.
pub trait Tree: Send + Sync {
    /// The path as the user would write it.
    fn shown(&self, path: &[u8]) -> String;
    /// The attributes of a file; `None` if it does not exist.
    fn stat(&self, path: &[u8], follow: bool) -> Done<Option<Meta>>;
    /// The path to which a symbolic link leads, if that exists; otherwise the path itself.
    fn real_path(&self, path: &[u8]) -> Done<Vec<u8>>;
    /// The entries of a directory. With `follow` a symbolic link to a directory is followed.
    fn pages(self: Arc<Self>, path: &[u8], follow: bool) -> Done<Box<dyn Pages>>;
    /// Makes a directory.
    fn make_dir(&self, path: &[u8], mode: u16) -> Done;
    /// Reads the target of a symbolic link.
    fn read_link(&self, path: &[u8]) -> Done<Vec<u8>>;
    /// Makes a symbolic link. Its path must not exist.
    fn make_link(&self, path: &[u8], target: &[u8]) -> Done;
    /// Makes a pipe, socket or device. Its path must not exist.
    fn make_node(&self, path: &[u8], meta: &Meta, mode: u16) -> Done;
    /// Makes a hard link. Its path must not exist.
    fn link(&self, path: &[u8], new: &[u8]) -> Done;
    /// Renames a file, replacing an existing one.
    fn rename(&self, path: &[u8], new: &[u8]) -> Done;
    /// Removes a file that is not a directory.
    fn remove(&self, path: &[u8]) -> Done;
    /// Opens a file for reading. With the identity from a listing it must be that regular file, and
    /// no link is followed.
    fn open(&self, path: &[u8], listed: Option<(u64, u64)>) -> Done<Box<dyn Source>>;
    /// Creates a file and opens it for writing and reading. Its path must not exist.
    fn create(&self, path: &[u8], making: &Making<'_>) -> Done<Box<dyn Sink>>;
    /// Opens an existing device or pipe for writing.
    fn open_node(&self, path: &[u8]) -> Done<Box<dyn Sink>>;
    /// Opens and locks a file that another run of cp may have left. `None` if the file is locked,
    /// gone, or not one that may be taken over. The caller must leave it alone then.
    fn take_over(&self, path: &[u8], take: Take) -> Done<Option<Box<dyn Sink>>>;
    /// The layout of a file, if files of this tree have one.
    fn layout(&self, _path: &[u8]) -> Done<Option<FileLayout>> {
        Ok(None)
    }
    /// The extended attributes of a file that can be copied. Follows no link. With the identity
    /// from a listing it must be that file.
    fn xattrs(&self, path: &[u8], listed: Option<(u64, u64)>) -> Done<Xattrs>;
    /// Opens a file of the given kind to set its attributes. Follows no link.
    fn held(&self, path: &[u8], kind: FileKind) -> Done<Box<dyn Held>>;
    /// Makes all changes of names and attributes so far durable.
    fn sync_all(&self, path: &[u8]) -> Done;
    /// Whether another tree, given by [`Tree::identity`], is this one.
    fn is(&self, other: &str) -> bool;
    /// The identity of the tree, for [`Tree::is`].
    fn identity(&self) -> String;
    /// The cluster of a file, if it is in one. `identity.1` is then the file's number in it.
    fn cluster_of(&self, meta: &Meta) -> Done<Option<ClusterSign>>;
}
