//! The trait of a file system: one method for each operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_types::limits::MAX_GROUPS;
use weir_types::{FileId, FsUsage};

use crate::interrupts::interrupt::Interrupt;
use crate::protocol::args::{
    Attributes, CopyArgs, Entry, IoArgs, IoctlArgs, IoctlReply, Lock, LockArgs, NewMode, NodeId,
    OpenArgs, Opened, ReleaseArgs, SetAttr, Statx,
};
use crate::protocol::dir_sink::DirSink;
use crate::protocol::errno::Errno;
use crate::protocol::request::Header;
use crate::write_data::WriteData;

/// Result of an operation.
pub type Reply<T> = Result<T, Errno>;

/// The caller of an operation, and whether it should go on.
#[derive(Debug)]
pub struct RequestContext<'a> {
    /// The request's id: unique for the life of the mount.
    pub unique: u64,
    /// The caller's user.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
    /// The caller's thread; 0 if it is in another pid namespace, and for the kernel's own work
    /// (writeback, read-ahead).
    pub pid: u32,
    pub(crate) interrupt: &'a Arc<Interrupt>,
    group_reads: &'a Arc<AtomicU64>,
}

impl<'a> RequestContext<'a> {
    /// `group_reads` counts reads of groups.
    pub(crate) fn new(
        header: &Header,
        interrupt: &'a Arc<Interrupt>,
        group_reads: &'a Arc<AtomicU64>,
    ) -> Self {
        let Header { unique, uid, gid, pid, .. } = *header;
        Self { unique, uid, gid, pid, interrupt, group_reads }
    }

    /// Whether the caller was interrupted. If so, return `EINTR` soon.
    pub fn interrupted(&self) -> bool {
        self.interrupt.interrupted()
    }

    /// The interrupt to wait on. It serves this request only: do not keep it longer.
    pub fn interrupt(&self) -> &'a Arc<Interrupt> {
        self.interrupt
    }

    /// A function that reads the caller's supplementary groups from `/proc` (some 20 µs) while the
    /// caller waits for the reply: at most [`MAX_GROUPS`]; none if the caller is unknown or gone.
    pub fn groups(&self) -> impl FnOnce() -> Vec<u32> + Send + use<> {
        let (pid, group_reads) = (self.pid, Arc::clone(self.group_reads));
        move || {
            if pid == 0 {
                return Vec::new();
            }
            group_reads.fetch_add(1, Relaxed);
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            status.map(|text| groups_in_status(&text)).unwrap_or_default()
        }
    }
}

fn groups_in_status(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let words = line.unwrap_or_default().split_ascii_whitespace();
    words.filter_map(|word| word.parse().ok()).take(MAX_GROUPS).collect()
}

/// The features agreed with the kernel at the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The minor version of protocol 7.
    pub minor: u32,
    /// The largest read or write request, bytes.
    pub max_io_bytes: usize,
    /// Byte-range locks are handled by the file system; otherwise the kernel handles them for this
    /// machine only.
    pub posix_locks: bool,
    /// `flock(2)` is handled by the file system; otherwise the kernel handles it for this machine
    /// only.
    pub flock_locks: bool,
    /// The kernel checks ACLs; the file system applies umask and the directory's default ACL to new
    /// files.
    pub posix_acl: bool,
    /// The kernel drops cached data only when told to.
    pub explicit_inval_data: bool,
    /// The kernel buffers writes.
    pub writeback_cache: bool,
    /// The file system clears setuid and setgid when told to (`kill_suidgid`).
    pub kill_suidgid: bool,
}

/// A file system. Methods are called from many threads at once and may block; a blocking one checks
/// [`RequestContext::interrupt`].
///
/// Names are bytes without `/` or NUL, 1 to 255 long. With `default_permissions` the kernel has
/// checked permissions.
///
/// Default methods return `ENOSYS`: the kernel then does what it can by itself (locks stay local,
/// `access` and `flush` succeed, `copy_file_range` copies through memory) or tells the caller that
/// the call is not supported.
#[allow(unused_variables)]
pub trait Filesystem: Send + Sync + 'static {
    /// Called before the first request.
    fn init(&self, negotiated: &Negotiated) {}

    /// Called once after the last request.
    fn destroy(&self) {}

    /// Looks up a name. `ENOENT` may be cached, see [`crate::Config::negative_ttl`]. `..` comes
    /// only from NFS export.
    fn lookup(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<Entry>;

    /// Looks up a node by its number, for NFS export. Counts as a lookup.
    fn find_again(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<Entry> {
        let found = self.getattr(ctx, node, None)?;
        Ok(Entry::new(found.attr, found.ttl))
    }

    /// The kernel has dropped `lookups` lookups of the node. Every returned [`Entry`] counts as one
    /// (those of listings, too).
    fn forget(&self, node: NodeId, lookups: u64) {}

    /// A reply with attributes of the file that have a lifetime was sent, or refused by the kernel.
    /// (Called for lookups, listings and requests for attributes.)
    fn was_told(&self, file: FileId) {}

    /// The reply to a lookup or a listing that gives names a lifetime, or to a removal or a rename that
    /// has succeeded, was sent, or refused by the kernel.
    fn was_answered(&self, ctx: &RequestContext<'_>) {}

    /// Returns attributes. `fh` is set if the request names an open file.
    fn getattr(&self, ctx: &RequestContext<'_>, node: NodeId, fh: Option<u64>)
    -> Reply<Attributes>;

    /// Returns attributes with the time of birth. By default calls `getattr`.
    fn statx(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: Option<u64>,
        mask: u32,
    ) -> Reply<Statx> {
        Err(Errno::ENOSYS)
    }

    /// Changes attributes.
    fn setattr(&self, ctx: &RequestContext<'_>, node: NodeId, set: &SetAttr) -> Reply<Attributes> {
        Err(Errno::ENOSYS)
    }

    /// Returns the target of a symbolic link.
    fn readlink(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// Makes a symbolic link.
    fn symlink(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file, pipe, socket or device; `mode` has the type.
    fn mknod(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        mode: NewMode,
        rdev: u32,
    ) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a directory.
    fn mkdir(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        mode: NewMode,
    ) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Removes a name of a file that is no directory.
    fn unlink(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Renames. `flags`: 0, `RENAME_NOREPLACE` or `RENAME_EXCHANGE`; return `EINVAL` for
    /// unsupported ones.
    fn rename(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        flags: u32,
    ) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Adds a name to a file (hard link).
    fn link(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: &[u8],
    ) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Opens a file. `O_TRUNC` is not in the flags: the kernel truncates afterwards.
    fn open(&self, ctx: &RequestContext<'_>, node: NodeId, args: OpenArgs) -> Reply<Opened> {
        Ok(Opened::default())
    }

    /// Makes and opens a file. Without `O_EXCL` an existing one is opened.
    fn create(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        mode: NewMode,
        args: OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }

    /// Makes and opens a file without a name (`O_TMPFILE`).
    fn tmpfile(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        mode: NewMode,
        args: OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }

    /// Reads `buffer.len()` bytes into the worker's warm, page-aligned buffer and returns their
    /// number. A smaller number means the end of the file. The buffer holds old bytes at first.
    fn read(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        offset: u64,
        buffer: &mut [u8],
        args: &IoArgs,
    ) -> Reply<usize>;

    /// Whether an append of the kernel at this offset is certainly the first piece of its call.
    /// Other pieces are passed to the file system in order.
    fn appends_here(&self, fh: u64, offset: u64) -> bool {
        false
    }

    /// Called for a write through this handle that is answered with an error without being passed
    /// on.
    fn write_is_refused(&self, ctx: &RequestContext<'_>, fh: u64) {}

    /// Writes, and returns the number of bytes. The data may be kept without a copy:
    /// [`WriteData::take`].
    fn write(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        offset: u64,
        data: WriteData<'_>,
        args: &IoArgs,
    ) -> Reply<usize> {
        Err(Errno::ENOSYS)
    }

    /// A descriptor was closed, perhaps not the last one. `close(2)` returns this result, so
    /// write-behind errors belong here.
    fn flush(&self, ctx: &RequestContext<'_>, node: NodeId, fh: u64, lock_owner: u64) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// As [`Filesystem::flush`], for a process that is being killed: it has its reply, and no
    /// program sees an error. Its locks have to be released; this must not wait.
    fn abandon(&self, node: NodeId, fh: u64, lock_owner: u64) {}

    /// The last descriptor was closed: releases the locks taken through `fh`.
    /// [`Filesystem::release`] follows; lock requests do not wait for that.
    fn unlock_closed(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        args: ReleaseArgs,
    ) -> Reply<()> {
        Ok(())
    }

    /// The last descriptor was closed: `fh` is not used again. No program sees the result.
    fn release(&self, ctx: &RequestContext<'_>, node: NodeId, fh: u64) -> Reply<()> {
        Ok(())
    }

    /// Makes the file durable; with `data_only` without its times.
    fn fsync(&self, ctx: &RequestContext<'_>, node: NodeId, fh: u64, data_only: bool) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Opens a directory.
    fn opendir(&self, ctx: &RequestContext<'_>, node: NodeId, flags: u32) -> Reply<Opened> {
        Ok(Opened::default())
    }

    /// Lists a directory from `offset` (0, or the `next_offset` of an entry) until the sink is full
    /// or the directory ends. The file system has to add the entries `.` and `..`.
    fn readdir(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// A directory was closed.
    fn releasedir(&self, ctx: &RequestContext<'_>, node: NodeId, fh: u64) -> Reply<()> {
        Ok(())
    }

    /// Makes a directory durable.
    fn fsyncdir(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        data_only: bool,
    ) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Returns space and counts.
    fn statfs(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<FsUsage> {
        Ok(FsUsage::default())
    }

    /// Sets an extended attribute. `flags`: 0, `XATTR_CREATE` or `XATTR_REPLACE`. `kill_sgid`: an
    /// ACL was set, so clear setgid.
    fn setxattr(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_sgid: bool,
    ) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Returns the value of an extended attribute; `ENODATA` if there is none. The transport
    /// handles the caller's buffer.
    fn getxattr(&self, ctx: &RequestContext<'_>, node: NodeId, name: &[u8]) -> Reply<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// Returns the names of all extended attributes.
    fn listxattr(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<Vec<Vec<u8>>> {
        Err(Errno::ENOSYS)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, ctx: &RequestContext<'_>, node: NodeId, name: &[u8]) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Checks the caller's permission; not called with `default_permissions`.
    fn access(&self, ctx: &RequestContext<'_>, node: NodeId, mask: u32) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Returns a conflicting lock, or one of kind `Unlock`.
    fn getlk(&self, ctx: &RequestContext<'_>, node: NodeId, args: &LockArgs) -> Reply<Lock> {
        Err(Errno::ENOSYS)
    }

    /// Locks or unlocks. Without `wait` a conflict is `EAGAIN`; with it the call blocks,
    /// interruptibly.
    fn setlk(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        args: &LockArgs,
        wait: bool,
    ) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Preallocates or punches space; `mode` as in `fallocate(2)`.
    fn fallocate(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Finds data or a hole (`SEEK_DATA`, `SEEK_HOLE`). The kernel handles other seeks.
    fn lseek(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        offset: u64,
        whence: u32,
    ) -> Reply<u64> {
        Err(Errno::ENOSYS)
    }

    /// Copies within the file system. Returns the number of bytes.
    fn copy_file_range(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        args: &CopyArgs,
    ) -> Reply<u64> {
        Err(Errno::ENOSYS)
    }

    /// Handles an ioctl. Unknown ones return `ENOTTY`.
    fn ioctl(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        args: &IoctlArgs<'_>,
    ) -> Reply<IoctlReply> {
        Err(Errno(libc::ENOTTY))
    }

    /// Returns the present `POLL*` events. By default files are always ready.
    fn poll(&self, ctx: &RequestContext<'_>, node: NodeId, fh: u64, events: u32) -> Reply<u32> {
        Err(Errno::ENOSYS)
    }

    /// Returns the device block of this block of the file.
    fn bmap(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        block: u64,
        block_size_bytes: u32,
    ) -> Reply<u64> {
        Err(Errno::ENOSYS)
    }

    /// `syncfs(2)`: makes the whole file system durable.
    fn syncfs(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<()> {
        Err(Errno::ENOSYS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_status() {
        let status = "Name:\tcat\nGid:\t5\t5\t5\t5\nGroups:\t4 20 1000 \nNStgid:\t1\n";
        assert_eq!(groups_in_status(status), [4, 20, 1000]);
        assert_eq!(groups_in_status("Groups:\t \n"), [0u32; 0]);
        assert_eq!(groups_in_status("nothing"), [0u32; 0]);
    }
}
