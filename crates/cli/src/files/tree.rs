//! What cp needs of a tree of files, wherever it is.

use crate::failure::Done;
use std::ops::Range;
use std::sync::Arc;
use weir_client::File;
use weir_types::{FileKind, FileLayout, Timestamp};

/// What goes with owner and group: setuid and setgid.
pub const PRIVILEGE: u16 = 0o6000;

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
    /// How many names it has.
    pub nlink: u32,
    /// Number of a device, as the kernel hands it to file systems in user space.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change.
    pub mtime: Timestamp,
    /// Tells files apart within the tree: device and inode.
    pub identity: (u64, u64),
}

/// What is to be kept of a file beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// All mode bits; else those of permission, less what the umask takes.
    pub mode: bool,
    /// Owner and group, where that is permitted.
    pub owner: bool,
    /// Times of access and change.
    pub times: bool,
    /// Names of one file stay names of one file.
    pub links: bool,
    /// Extended attributes and access control lists.
    pub xattrs: bool,
}

/// Extended attributes: names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// How a file is made that another one's bytes go to.
#[derive(Clone, Debug)]
pub struct Making<'a> {
    /// Permission bits.
    pub mode: u16,
    /// The layout of the file that it takes the place of.
    pub like: Option<&'a FileLayout>,
    /// Others are kept from taking it for one that nobody writes any more.
    pub locked: bool,
}

/// How a cluster is known to whoever has files of it, here or in a mount.
#[derive(Clone, Debug)]
pub struct ClusterSign {
    /// What its mounts say that they are of.
    pub source: String,
    /// Its name, for people.
    pub name: String,
    /// Where its metadata servers listen.
    pub metadata: Vec<String>,
}

impl ClusterSign {
    /// Whether both are of one cluster: names of clusters are not unique, addresses are.
    pub fn is(&self, other: &Self) -> bool {
        let shares = || self.metadata.iter().any(|address| other.metadata.contains(address));
        self.source == other.source || (self.name == other.name && shares())
    }
}

/// Why a file that another run of cp has left is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// To write it on. Only what a run of this user's can have made: a plain file of the user's
    /// with one name.
    GoOn,
    /// To remove it; the same, and nobody is waited for.
    Remove,
    /// It is not a left one, but is to be filled: anybody's.
    Fill,
}

/// A file of any kind that is held, whatever becomes of its name meanwhile.
pub trait Held: Send + Sync {
    /// Tells it apart within the tree, as [`Meta::identity`].
    fn identity(&self) -> Done<(u64, u64)>;
    /// Sets mode, owner and times as far as `keep` says; returns whether the owner could be
    /// set. Mode bits that give the rights of an owner go where it could not.
    fn set_meta(&self, meta: &Meta, keep: Keep) -> Done<bool>;
    /// Sets an extended attribute; `false`: files here cannot have it.
    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Done<bool>;
    /// Removes an extended attribute, if it is there.
    fn remove_xattr(&self, name: &[u8]) -> Done;
}

/// A file that is read from. Any number of threads may read at once.
pub trait Source: Send + Sync {
    /// The file, if it is one of a cluster.
    fn in_cluster(&self) -> Option<&File> {
        None
    }
    /// Reads until the buffer is full or the file ends; returns the bytes read.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Done<usize>;
    /// How long it is now.
    fn size(&self) -> Done<u64>;
    /// The next range from `offset` on that is not a hole; `None`: there is nothing but a
    /// hole until the end.
    fn next_data(&self, offset: u64) -> Done<Option<Range<u64>>>;
    /// Its extended attributes that can be copied, whatever its name leads to by now.
    fn xattrs(&self) -> Done<Xattrs>;
}

/// A file that is written to, and read to be compared. Any number of threads may write at once.
pub trait Sink: Source + Held {
    /// Makes sure that the lock under which it was made, if there is one, is still held.
    fn relock(&self) -> Done {
        Ok(())
    }
    /// Lets the cluster copy some of the bytes at `offset` of a source to the same
    /// place here, at most `len`; returns how many: 0 where the source ends. `None`:
    /// the two are not in one cluster.
    fn copy_at(&self, _source: &dyn Source, _offset: u64, _len: u64) -> Done<Option<u64>> {
        Ok(None)
    }
    /// Writes all of the bytes.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Done;
    /// Makes what there is of a range a hole. The size stays.
    fn clear(&self, range: Range<u64>) -> Done;
    /// Cuts or extends it.
    fn set_size(&self, size: u64) -> Done;
    /// Returns when everything is written and can be read by others.
    fn finish(&self) -> Done;
    /// Returns when everything that was written is durable.
    fn sync(&self) -> Done;
}

/// The entries of a directory, without `.` and `..`, some at a time.
pub trait Pages: Send {
    /// The next of them; none: that was all.
    fn next(&mut self) -> Done<Vec<(Vec<u8>, Meta)>>;
}

/// A tree of files. Paths are absolute within it; errors name the file.
pub trait Tree: Send + Sync {
    /// A path as the user would write it.
    fn shown(&self, path: &[u8]) -> String;
    /// What is known of a file; nothing if it does not exist.
    fn stat(&self, path: &[u8], follow: bool) -> Done<Option<Meta>>;
    /// Where a symbolic link leads to, if that exists; else the path itself.
    fn real_path(&self, path: &[u8]) -> Done<Vec<u8>>;
    /// The entries of a directory, or of that to which a link leads, if links are followed.
    fn pages(self: Arc<Self>, path: &[u8], follow: bool) -> Done<Box<dyn Pages>>;
    /// Makes a directory.
    fn make_dir(&self, path: &[u8], mode: u16) -> Done;
    /// What a symbolic link says.
    fn read_link(&self, path: &[u8]) -> Done<Vec<u8>>;
    /// Makes a symbolic link where nothing is.
    fn make_link(&self, path: &[u8], target: &[u8]) -> Done;
    /// Makes a pipe, a socket's name or a device where nothing is.
    fn make_node(&self, path: &[u8], meta: &Meta, mode: u16) -> Done;
    /// Gives a file another name where nothing is.
    fn link(&self, path: &[u8], new: &[u8]) -> Done;
    /// Moves a name, over what is there.
    fn rename(&self, path: &[u8], new: &[u8]) -> Done;
    /// Removes a name that is not a directory's.
    fn remove(&self, path: &[u8]) -> Done;
    /// Opens a file to read it. With the identity under which it was listed, it has to be that
    /// regular file, and no link is followed.
    fn open(&self, path: &[u8], listed: Option<(u64, u64)>) -> Done<Box<dyn Source>>;
    /// Makes a file where nothing is, and opens it to write and read it.
    fn create(&self, path: &[u8], making: &Making<'_>) -> Done<Box<dyn Sink>>;
    /// Opens what is there to write it in place: a device, or a pipe.
    fn open_node(&self, path: &[u8]) -> Done<Box<dyn Sink>>;
    /// Opens a file that another run of cp may have left unfinished, under a lock; `None`:
    /// somebody has it, it is gone, or it is not what may be taken. It is to be left alone then.
    fn take_over(&self, path: &[u8], take: Take) -> Done<Option<Box<dyn Sink>>>;
    /// The layout of a file, where files have one.
    fn layout(&self, _path: &[u8]) -> Done<Option<FileLayout>> {
        Ok(None)
    }
    /// The extended attributes of a file that can be copied. Follows no link; with the identity
    /// under which it was listed, it has to be that file.
    fn xattrs(&self, path: &[u8], listed: Option<(u64, u64)>) -> Done<Xattrs>;
    /// Takes hold of a file that has to be of a kind, to give it its attributes. Follows no link.
    fn held(&self, path: &[u8], kind: FileKind) -> Done<Box<dyn Held>>;
    /// Makes all names and attributes changed so far durable.
    fn sync_all(&self, path: &[u8]) -> Done;
    /// Whether two trees are the same one.
    fn is(&self, other: &str) -> bool;
    /// Names the tree, for [`Tree::is`].
    fn identity(&self) -> String;
    /// The cluster that a file is of, if it is of one: `identity.1` is its number there then.
    fn cluster_of(&self, meta: &Meta) -> Done<Option<ClusterSign>>;
}
