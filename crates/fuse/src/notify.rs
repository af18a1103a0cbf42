//! Notifications that invalidate what the kernel caches.
//!
//! Invariant: they are never sent from a thread that serves a request. The kernel takes locks of
//! the inode or directory for them, and the caller of that very request may hold them: it would
//! wait for itself. (Attributes alone it drops without such a lock.)

use std::cell::Cell;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::{Errno as OsErrno, writev};
use zerocopy::IntoBytes;

use crate::no_access::{self, unreadable};
use crate::protocol::abi::{self, notify};
use crate::protocol::args::NodeId;
use crate::protocol::errno::Errno;

/// The greatest distance from the end of a file that [`Notifier::raise_size`] can reach.
pub const MAX_STORE_BYTES: usize = no_access::MAX_BYTES;

thread_local! {
    static SERVES_REQUESTS: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as serving requests.
pub(crate) fn mark_serving_thread() {
    SERVES_REQUESTS.set(true);
}

/// Sends invalidations to the kernel. Cheap to clone.
///
/// Every method but one returns `EDEADLK` on a thread that serves requests. Invalidating something
/// that the kernel does not know is no error. Methods may block while the kernel writes back or waits for
/// reads of the file in progress.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Arc<OwnedFd>,
}

impl Notifier {
    pub(crate) fn new(device: Arc<OwnedFd>) -> Self {
        Self { device }
    }

    /// Drops the attributes of a node and `length` bytes of its cached data from `offset` (a length
    /// of 0: to the end; a negative offset: only the attributes).
    ///
    /// # Errors
    /// `EDEADLK` as above. After the end of the mount it may fail or not.
    pub fn inval_inode(&self, node: NodeId, offset: i64, length: i64) -> Result<(), Errno> {
        let body = abi::NotifyInvalInodeOut { ino: node, off: offset, len: length };
        self.send(notify::INVAL_INODE, body.as_bytes(), None)
    }

    /// Drops the attributes of a node, and ends replies with attributes of it that are under way.
    /// Returns whether the kernel has the node.
    ///
    /// This may be called on any thread: the kernel takes no lock of the inode for it. It may wait
    /// until an inode that it is dropping is gone, which waits for no request: reads, writes and open
    /// files hold their inode.
    ///
    /// # Errors
    /// After the end of the mount it may fail or not.
    pub fn forget_attributes(&self, node: NodeId) -> Result<bool, Errno> {
        let body = abi::NotifyInvalInodeOut { ino: node, off: -1, len: 0 };
        let length = size_of::<abi::OutHeader>() + size_of_val(&body);
        let header = abi::OutHeader { len: length as u32, error: notify::INVAL_INODE, unique: 0 };
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body.as_bytes())];
        match writev(&self.device, &parts) {
            Ok(_) => Ok(true),
            Err(OsErrno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Raises the size of a file to at least `size` bytes: the kernel ignores replies to earlier
    /// requests for its attributes. Its pages stay. Afterwards the kernel may wait for the page
    /// with the byte `from` (below `size`, and not further from it than [`MAX_STORE_BYTES`]), if
    /// that is locked: the size is raised before it waits.
    ///
    /// # Errors
    /// `EDEADLK` as above; `EINVAL` if `from` is out of range.
    pub fn raise_size(&self, node: NodeId, size: u64, from: u64) -> Result<(), Errno> {
        if SERVES_REQUESTS.get() {
            return Err(Errno::EDEADLK);
        }
        // The kernel is told that bytes for its pages follow, and raises the size. Then
        // it cannot read them.
        let length = size.checked_sub(from).and_then(|n| usize::try_from(n).ok());
        let stored = length.ok_or(Errno::EINVAL)?;
        let unreadable = unreadable(stored)?;
        let body =
            abi::NotifyStoreOut { nodeid: node, offset: from, size: stored as u32, padding: 0 };
        let len = (size_of::<abi::OutHeader>() + size_of_val(&body) + stored) as u32;
        let header = abi::OutHeader { len, error: notify::STORE, unique: 0 };
        let part = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let parts = [part(header.as_bytes()), part(body.as_bytes()), unreadable];
        // SAFETY: the first two are borrowed until the call returns; writev only reads,
        // and answers EFAULT for memory that cannot be read.
        let sent =
            unsafe { libc::writev(self.device.as_raw_fd(), parts.as_ptr(), parts.len() as i32) };
        let errno = std::io::Error::last_os_error().raw_os_error();
        match (sent, errno) {
            (0.., _) | (_, Some(libc::EFAULT | libc::ENOENT)) => Ok(()),
            (_, errno) => Err(OsErrno::from_raw_os_error(errno.unwrap_or(libc::EIO)).into()),
        }
    }

    /// Drops a cached name, positive or negative. With `expire_only` the kernel asks again at the
    /// next use; without, it drops the name at once, and mounts below it too.
    ///
    /// # Errors
    /// As [`Notifier::inval_inode`].
    pub fn inval_entry(&self, parent: NodeId, name: &[u8], expire_only: bool) -> Result<(), Errno> {
        let flags = if expire_only { abi::EXPIRE_ONLY } else { 0 };
        let namelen = name_length(name)?;
        let body = abi::NotifyInvalEntryOut { parent, namelen, flags };
        self.send(notify::INVAL_ENTRY, body.as_bytes(), Some(name))
    }

    /// Reports that a name was removed elsewhere, also to watchers (inotify).
    ///
    /// # Errors
    /// As [`Notifier::inval_inode`].
    pub fn delete(&self, parent: NodeId, child: NodeId, name: &[u8]) -> Result<(), Errno> {
        let namelen = name_length(name)?;
        let body = abi::NotifyDeleteOut { parent, child, namelen, padding: 0 };
        self.send(notify::DELETE, body.as_bytes(), Some(name))
    }

    /// Drops these nodes unless they are in use. Without nodes it only tests whether the kernel
    /// supports that (Linux 6.18).
    ///
    /// # Errors
    /// As [`Notifier::inval_inode`]; `EINVAL` if it does not.
    pub fn prune(&self, nodes: &[NodeId]) -> Result<(), Errno> {
        let count = u32::try_from(nodes.len()).map_err(|_| Errno::EINVAL)?;
        let head = abi::NotifyPruneOut { count, padding: 0, spare: 0 };
        let body = [head.as_bytes(), nodes.as_bytes()].concat();
        self.send(notify::PRUNE, &body, None)
    }

    fn send(&self, code: i32, body: &[u8], name: Option<&[u8]>) -> Result<(), Errno> {
        if SERVES_REQUESTS.get() {
            return Err(Errno::EDEADLK);
        }
        let name_bytes = name.map_or(0, |name| name.len() + 1);
        let length = size_of::<abi::OutHeader>() + body.len() + name_bytes;
        let header = abi::OutHeader { len: length as u32, error: code, unique: 0 };
        let parts = [
            IoSlice::new(header.as_bytes()),
            IoSlice::new(body),
            IoSlice::new(name.unwrap_or_default()),
            IoSlice::new(b"\0"),
        ];
        let used = if name.is_some() { &parts[..] } else { &parts[..2] };
        match writev(&self.device, used) {
            Ok(_) | Err(OsErrno::NOENT | OsErrno::NOTDIR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn name_length(name: &[u8]) -> Result<u32, Errno> {
    if name.is_empty() || name.contains(&0) {
        return Err(Errno::EINVAL);
    }
    if name.len() > weir_types::limits::MAX_NAME_BYTES {
        return Err(Errno::ENAMETOOLONG);
    }
    Ok(name.len() as u32)
}
