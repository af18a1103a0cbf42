//! What a file system implements: one method for each operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_types::FsUsage;
use weir_types::limits::MAX_GROUPS;

use super::args::{
    Attributes, CopyArgs, Entry, IoArgs, IoctlArgs, IoctlReply, Lock, LockArgs, NewMode, NodeId,
    OpenArgs, Opened, ReleaseArgs, SetAttr, Statx,
};
use super::dir_sink::DirSink;
use super::errno::Errno;
use super::interrupt::Interrupt;
use super::request::Header;
use super::write_data::WriteData;

/// The answer to an operation.
pub type Reply<T> = Result<T, Errno>;

/// In whose name an operation is done, and whether it should go on.
#[derive(Debug)]
pub struct RequestContext<'a> {
    /// The request's id: unique for the life of the mount.
    pub unique: u64,
    /// The caller's user.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
    /// The caller's thread; 0 if it lives in another pid namespace, and for
    /// work of the kernel's own (writeback, read-ahead).
    pub pid: u32,
    pub(super) interrupt: &'a Arc<Interrupt>,
    group_reads: &'a Arc<AtomicU64>,
}

impl<'a> RequestContext<'a> {
    /// `group_reads` counts how often groups are read.
    pub(super) fn new(
        header: &Header,
        interrupt: &'a Arc<Interrupt>,
        group_reads: &'a Arc<AtomicU64>,
    ) -> Self {
        let Header { unique, uid, gid, pid, .. } = *header;
        Self { unique, uid, gid, pid, interrupt, group_reads }
    }

    /// Whether the caller was interrupted: answer with `EINTR` soon.
    pub fn interrupted(&self) -> bool {
        self.interrupt.interrupted()
    }

    /// To wait on. It serves this request only: do not keep it beyond.
    pub fn interrupt(&self) -> &'a Arc<Interrupt> {
        self.interrupt
    }

    /// Finds the caller's supplementary groups while it waits for the answer: reads them from
    /// `/proc` (some 20 µs), at most [`MAX_GROUPS`]; none if the caller is unknown or gone.
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

/// What was agreed with the kernel when the file system was mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The minor version of protocol 7 that both speak.
    pub minor: u32,
    /// The largest read or write request, bytes.
    pub max_io_bytes: usize,
    /// Byte-range locks come to the file system; otherwise the kernel keeps
    /// them, for this machine only.
    pub posix_locks: bool,
    /// The same for `flock(2)`.
    pub flock_locks: bool,
    /// ACLs are checked by the kernel; the file system applies umask and the
    /// directory's default ACL to new files.
    pub posix_acl: bool,
    /// The kernel drops cached data only when told to.
    pub explicit_inval_data: bool,
    /// The kernel collects writes.
    pub writeback_cache: bool,
    /// The file system clears setuid and setgid when told to (`kill_suidgid`).
    pub kill_suidgid: bool,
}

/// A file system. Methods are called from many threads at once and may block;
/// one that blocks watches [`RequestContext::interrupt`].
///
/// Names are bytes without `/` or NUL, 1 to 255 long. The kernel has checked
/// permissions if `default_permissions` is on.
///
/// Defaults answer `ENOSYS`: the kernel then does what it can by itself
/// (locks stay local, `access` and `flush` succeed, `copy_file_range` copies
/// through memory) or tells the caller that the call is not supported.
#[allow(unused_variables)]
pub trait Filesystem: Send + Sync + 'static {
    /// Before the first request.
    fn init(&self, negotiated: &Negotiated) {}

    /// After the last request; called once.
    fn destroy(&self) {}

    /// Finds a name. `ENOENT` may be remembered, see
    /// [`super::Config::negative_ttl`]. `..` comes only from NFS export.
    fn lookup(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<Entry>;

    /// Finds a node by its number, for NFS export. Counts as a find.
    fn find_again(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<Entry> {
        let found = self.getattr(ctx, node, None)?;
        Ok(Entry::new(found.attr, found.ttl))
    }

    /// The kernel forgot `lookups` finds of the node: every [`Entry`] that it was
    /// answered counts as one (those of listings, too).
    fn forget(&self, node: NodeId, lookups: u64) {}

    /// Attributes. `fh` is there if an open file is asked about.
    fn getattr(&self, ctx: &RequestContext<'_>, node: NodeId, fh: Option<u64>)
    -> Reply<Attributes>;

    /// Attributes with time of birth. By default `getattr` is asked instead.
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

    /// The target of a symbolic link.
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

    /// Makes a file, pipe, socket or device; `mode` holds the type.
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

    /// Removes a name that is not a directory's.
    fn unlink(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Renames. `flags`: 0, `RENAME_NOREPLACE` or `RENAME_EXCHANGE`; answer
    /// `EINVAL` to those not supported.
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

    /// Makes a further name for a file.
    fn link(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: &[u8],
    ) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Opens a file. `O_TRUNC` is not in the flags: the kernel cuts it afterwards.
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

    /// Reads `buffer.len()` bytes into the worker's own warm, page-aligned
    /// buffer and says how many there were. Fewer mean the end of the file.
    /// The buffer holds old bytes at first.
    fn read(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        offset: u64,
        buffer: &mut [u8],
        args: &IoArgs,
    ) -> Reply<usize>;

    /// Whether what the kernel appends at this offset surely comes first of what it appends in
    /// one call. Of what may not, the file system gets the pieces in order.
    fn appends_here(&self, fh: u64, offset: u64) -> bool {
        false
    }

    /// A write through this handle is answered with an error, and was not handed on.
    fn write_is_refused(&self, ctx: &RequestContext<'_>, fh: u64) {}

    /// Writes; says how many bytes were taken. The data may be kept without a
    /// copy: [`WriteData::take`].
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

    /// A descriptor was closed, perhaps not the last one: `close(2)` returns
    /// this answer. Write-behind errors belong here.
    fn flush(&self, ctx: &RequestContext<'_>, node: NodeId, fh: u64, lock_owner: u64) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// As [`Filesystem::flush`], for a process that is being killed: it has been
    /// answered, and nobody hears of an error. What it had locked is to be free;
    /// this must not wait.
    fn abandon(&self, node: NodeId, fh: u64, lock_owner: u64) {}

    /// The last descriptor was closed: frees what was locked through `fh`. [`Filesystem::release`]
    /// follows; who asks for a lock does not wait for that.
    fn unlock_closed(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        args: ReleaseArgs,
    ) -> Reply<()> {
        Ok(())
    }

    /// The last descriptor was closed: `fh` is not used again. Nobody sees the
    /// answer.
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

    /// Lists a directory from `offset` (0, or the `next_offset` of an entry)
    /// until the sink is full or the directory ends. Entries `.` and `..`
    /// are the file system's task.
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

    /// The directory was closed.
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

    /// Space and counts.
    fn statfs(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<FsUsage> {
        Ok(FsUsage::default())
    }

    /// Sets an extended attribute. `flags`: 0, `XATTR_CREATE` or
    /// `XATTR_REPLACE`. `kill_sgid`: an ACL was set, clear setgid.
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

    /// The value of an extended attribute; `ENODATA` if there is none. The
    /// transport minds the caller's buffer.
    fn getxattr(&self, ctx: &RequestContext<'_>, node: NodeId, name: &[u8]) -> Reply<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// The names of all extended attributes.
    fn listxattr(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<Vec<Vec<u8>>> {
        Err(Errno::ENOSYS)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, ctx: &RequestContext<'_>, node: NodeId, name: &[u8]) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Whether the caller may; not asked with `default_permissions`.
    fn access(&self, ctx: &RequestContext<'_>, node: NodeId, mask: u32) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// A lock that would stand in the way, or one of kind `Unlock`.
    fn getlk(&self, ctx: &RequestContext<'_>, node: NodeId, args: &LockArgs) -> Reply<Lock> {
        Err(Errno::ENOSYS)
    }

    /// Locks or unlocks. Without `wait`: `EAGAIN` if another holds it; with it:
    /// blocks, interruptibly.
    fn setlk(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        args: &LockArgs,
        wait: bool,
    ) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Reserves or punches space; `mode` as in `fallocate(2)`.
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

    /// Finds data or a hole (`SEEK_DATA`, `SEEK_HOLE`); other seeks are the
    /// kernel's own.
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

    /// Copies within the file system; says how many bytes.
    fn copy_file_range(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        args: &CopyArgs,
    ) -> Reply<u64> {
        Err(Errno::ENOSYS)
    }

    /// An ioctl. Unknown ones: `ENOTTY`.
    fn ioctl(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        args: &IoctlArgs<'_>,
    ) -> Reply<IoctlReply> {
        Err(Errno(libc::ENOTTY))
    }

    /// Which of the `POLL*` events are there. By default files are always ready.
    fn poll(&self, ctx: &RequestContext<'_>, node: NodeId, fh: u64, events: u32) -> Reply<u32> {
        Err(Errno::ENOSYS)
    }

    /// The block of the device that holds this block of the file.
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
