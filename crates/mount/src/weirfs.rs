//! Weir as a file system of the kernel: translation of operations into calls of the client, nothing
//! more.
//!
//! Node ids are file ids, which are never reused, so there is no table of files, only of open
//! handles and of the directories that the kernel knows.

use crate::operations::access_times::AccessTimes;
use crate::operations::callers::{CHANGE, READ, WRITE, bits_of, groups_may_matter};
use weir_fuse::{
    Attributes, CopyArgs, DirSink, Entry, Errno, Filesystem, IoArgs, Lock, LockArgs, NewMode,
    NodeId, OpenArgs, Opened, ReleaseArgs, Reply, RequestContext, SetAttr, Statx, WriteData,
};
use crate::operations::gone::{Found, in_directory, may_have_had};
use crate::open::handles::{DirHandle, Handle, Handles};
use crate::operations::hints::Hint;
use crate::open::jobs::Jobs;
use crate::kernel::cache::{KernelCache, Passed, Question};
use crate::kernel::size::Answer;
use crate::operations::layouts::is_layout;
use crate::operations::locks::HandleLocks;
use crate::kernel::nodes::Nodes;
use crate::operations::pins::Pins;
use crate::operations::quotas::is_quota;
use crate::translate::{
    context, create_options, data_context, for_kernel, groupless, is_acl, is_to_run, masked,
    refused_xattr, rights_of, set_time,
};
use std::sync::Arc;
use std::time::Duration;
use weir_client::core::copy::MAX_COPY_CALL_BYTES;
use weir_client::{Client, Consistency, Context, CreateOptions, File, set_nothing};
use weir_types::{Attr, ErrorKind, FileId, FileKind, FsUsage};
use weir_wire::meta::{self, CAPABILITY, RenameRequest, XattrMode};

/// Modes of `fallocate(2)`.
const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
const PUNCH_HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
const ZERO_RANGE: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;

/// The longest lifetime of the root's attributes. By those one sees whether the mount is dead: of
/// everything else the kernel asks for the name.
const MAX_ROOT_LIFETIME: Duration = Duration::from_secs(1);

const BOTH: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;

/// Options that a user may set for a mount.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Consistency between mounts; the client's has to be the same.
    pub consistency: Consistency,
    /// How long the kernel may cache names and attributes if consistency is relaxed. (Otherwise it
    /// asks each time.)
    pub ttl: Duration,
    /// Bypass the kernel's page cache: fastest for large streams, without shared mappings.
    pub direct_io: bool,
    /// When a read changes the access time.
    pub access_times: AccessTimes,
    /// Whether access times of directories never change (`nodiratime`).
    pub no_directory_access: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            consistency: Consistency::Strict,
            ttl: Duration::from_secs(1),
            direct_io: false,
            access_times: AccessTimes::default(),
            no_directory_access: false,
        }
    }
}

/// The file system of one cluster.
pub struct WeirFs {
    // Both before the client, whose files they are: with its last file it ends its session. Of a
    // mount that ends with its last user the kernel does not say that a file was closed.
    pub(crate) pins: Pins,
    pub(crate) handles: Handles,
    // Before the cache: its last events still concern pages.
    pub(crate) client: Client,
    pub(crate) options: Options,
    pub(crate) jobs: Jobs,
    pub(crate) cache: KernelCache,
    pub(crate) locks: HandleLocks,
    pub(crate) nodes: Nodes,
}

impl WeirFs {
    /// Serves a client's cluster. The client was connected with this cache, which is attached to
    /// the mount once that is complete.
    pub fn new(client: Client, cache: KernelCache, options: Options) -> Self {
        let (pins, handles, jobs, locks, nodes) = Default::default();
        Self { pins, handles, client, options, jobs, cache, locks, nodes }
    }

    /// How long the kernel may cache names and attributes.
    pub(crate) fn ttl(&self) -> Duration {
        match self.options.consistency {
            Consistency::Relaxed => self.options.ttl,
            Consistency::Strict | Consistency::None => Duration::ZERO,
        }
    }

    /// How long the kernel may use these attributes under this number without asking: as long as
    /// the client may, if it caches the very same. When that ends, the kernel is told.
    fn lifetime(&self, ctx: &RequestContext<'_>, attr: &Attr, node: NodeId) -> Duration {
        if self.options.consistency != Consistency::Strict {
            return self.ttl();
        }
        let lifetime = match attr.file {
            FileId::ROOT => self.client.keeps_for().min(MAX_ROOT_LIFETIME),
            _ => self.client.keeps_for(),
        };
        let begins = || self.cache.begins_to_use((attr, node), ctx.pid, lifetime);
        // What a file takes that may have holes, changes unnoticed.
        if attr.sparse || lifetime.is_zero() || !begins() {
            return Duration::ZERO;
        }
        // Asked after that: what ends it now is passed on.
        if self.client.settled_attr(attr.file).is_some_and(|known| known == *attr) {
            return lifetime;
        }
        self.cache.was_told(attr.file);
        Duration::ZERO
    }

    /// Attributes for the kernel.
    pub(crate) fn tell(
        &self,
        ctx: &RequestContext<'_>,
        question: Question,
        attr: Attr,
    ) -> Reply<Attr> {
        let again = |file| self.client.getattr(&groupless(ctx), file);
        self.found(ctx, self.cache.tell(question, attr, again))
    }

    fn entry(&self, ctx: &RequestContext<'_>, attr: Attr) -> Reply<Entry> {
        let question = self.cache.asks(ctx.pid, None, Answer::Attributes);
        Ok(Entry::new(self.tell(ctx, question, attr)?, self.ttl()))
    }

    /// The entry of a new, open file.
    fn created(
        &self,
        ctx: &RequestContext<'_>,
        (file, attr): (File, Attr),
        args: OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        let entry = self.made(ctx, attr)?;
        let opened = self.opened(ctx, file, &entry.attr, args.flags);
        Ok((entry, opened))
    }

    /// The file or directory of a node id.
    pub(crate) fn file(&self, node: NodeId) -> Reply<FileId> {
        self.nodes.file(node).ok_or(Errno(libc::ESTALE))
    }

    /// An entry for a found or new name.
    fn named(
        &self,
        ctx: &RequestContext<'_>,
        (parent, name): (NodeId, &[u8]),
        attr: Attr,
    ) -> Reply<Entry> {
        let mut entry = self.entry(ctx, attr)?;
        self.number(&mut entry, parent, name);
        Ok(entry)
    }

    /// The entry of a file that was asked for by name or number. (The kernel believes the attributes
    /// in a reply to a change, whatever ended them meanwhile: those have no lifetime.)
    pub(crate) fn lasting(&self, ctx: &RequestContext<'_>, entry: Entry) -> Entry {
        if entry.attr.sparse {
            return entry;
        }
        Entry { attr_ttl: self.lifetime(ctx, &entry.attr, entry.node), ..entry }
    }

    /// Gives a directory the kernel's node id for this place.
    pub(crate) fn number(&self, entry: &mut Entry, parent: NodeId, name: &[u8]) {
        match entry.attr.kind {
            FileKind::Directory => entry.node = self.nodes.found(&entry.attr, parent, name),
            _ => self.cache.files.told(entry.attr.file),
        }
    }

    /// An entry for a file that is no directory, of which the kernel is told.
    fn made(&self, ctx: &RequestContext<'_>, attr: Attr) -> Reply<Entry> {
        let entry = self.entry(ctx, attr)?;
        self.cache.files.told(entry.attr.file);
        Ok(entry)
    }

    /// Handles the kernel's removal of a name of a file. The file stays if it is in use.
    fn lost_a_name(&self, left: Attr) {
        if left.nlink == 0
            && left.kind == FileKind::File
            && let Some(needless) = self.cache.files.holds_own(left.file)
        {
            self.client.let_go(needless);
        }
        self.nodes.has_lost_a_name(left);
    }

    pub(crate) fn handle(&self, fh: u64) -> Reply<Arc<Handle>> {
        self.handles.get(fh).ok_or(Errno::EBADF)
    }
}

impl Drop for WeirFs {
    /// Releases all held files: the kernel does not report drops at the end of the mount.
    fn drop(&mut self) {
        self.cache.files.take_held().for_each(|file| self.client.let_go(file));
    }
}

impl Filesystem for WeirFs {
    fn lookup(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        let found = self.find(ctx, self.file(parent)?, name);
        if name != b".." {
            return Ok(self.lasting(ctx, self.named(ctx, (parent, name), in_directory(found)?)?));
        }
        // Only NFS export asks for it, and knows what it means if nothing is there any more.
        let attr = found?;
        let node = self.nodes.found_by_number(&attr, None);
        Ok(self.lasting(ctx, Entry { node, ..self.entry(ctx, attr)? }))
    }

    fn find_again(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<Entry> {
        let attr = self.client.getattr(&groupless(ctx), self.file(node)?)?;
        let kind = attr.kind;
        let entry = Entry { node, ..self.entry(ctx, attr)? };
        match kind {
            FileKind::Directory => drop(self.nodes.found_by_number(&entry.attr, Some(node))),
            _ => self.cache.files.told(entry.attr.file),
        }
        Ok(self.lasting(ctx, entry))
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        let file = self.nodes.file(node);
        self.nodes.forget(node, lookups);
        if self.cache.files.forget(FileId(node), lookups) {
            self.client.let_go(FileId(node));
        }
        let Some(file) = file else { return };
        // Before it is looked whether the kernel has the file: another thread may be telling it.
        let number = self.cache.last_told(file);
        if !self.nodes.is_known(node) && !self.cache.files.is_known(file) {
            self.cache.was_dropped(file, node, number);
        }
    }

    fn was_told(&self, file: FileId) {
        self.cache.was_told(file);
    }

    fn getattr(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: Option<u64>,
    ) -> Reply<Attributes> {
        let file = self.file(node)?;
        let question = self.cache.asks(ctx.pid, Some(file), Answer::Attributes);
        let by = groupless(ctx);
        let attr = match self.found(ctx, self.attr_or_last(&by, file))? {
            Found::Now(attr) => attr,
            Found::Last(attr) => return Ok(Attributes { attr, allocated: None, ttl: self.ttl() }),
        };
        let attr = self.tell(ctx, question, attr)?;
        if fh.is_some() && attr.sparse {
            // The kernel wants the size alone, for a read or a seek: stat and fstat name no
            // handle, and ask.
            return Ok(Attributes { attr, allocated: None, ttl: Duration::ZERO });
        }
        let (attr, allocated) = self.with_room(ctx, attr)?;
        let ttl = self.lifetime(ctx, &attr, node);
        Ok(Attributes { attr, allocated, ttl })
    }

    fn statx(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: Option<u64>,
        _mask: u32,
    ) -> Reply<Statx> {
        let attributes = self.getattr(ctx, node, fh)?;
        Ok(Statx { birth: attributes.attr.birth, attributes })
    }

    fn setattr(&self, ctx: &RequestContext<'_>, node: NodeId, set: &SetAttr) -> Reply<Attributes> {
        let context = context(ctx);
        let request = meta::SetAttrRequest {
            file: self.file(node)?,
            mode: set.mode.map(|mode| (mode & 0o7777) as u16),
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime.map(set_time),
            mtime: set.mtime.map(set_time),
        };
        // ftruncate works on what was opened, whatever the mode says now.
        let by_handle = set.fh.is_some() && set.size.is_some();
        let by = if by_handle { &data_context(ctx) } else { &context };
        let question = self.cache.asks(ctx.pid, Some(request.file), Answer::Change);
        if self.may_take_back(ctx, set)? {
            let attr = self.client.getattr(by, request.file)?;
            if set.size != Some(attr.size) {
                // Of the kernel nobody hears this. A program does, and what it asks for again
                // is done.
                return Err(Errno::EINTR);
            }
            let attr = self.tell(ctx, question, attr)?;
            return Ok(Attributes { attr, allocated: None, ttl: Duration::ZERO });
        }
        if set.atime.is_some() {
            self.access_is_set(request.file);
        }
        let change = |by: &Context| self.set_attr_or_last(by, &request);
        let known = self.client.known_attr(request.file);
        let done = match by_handle || groups_may_matter(&request, known.as_ref()) {
            true => change(by),
            false => self.judged(ctx, request.file, WRITE, change),
        };
        let mut attr = match self.found(ctx, done)? {
            Found::Now(attr) => attr,
            Found::Last(attr) => return Ok(Attributes { attr, allocated: None, ttl: self.ttl() }),
        };
        // Nothing to set is `chown` to nobody else, or a write that takes these away.
        // (The kernel asks nobody for such a change, and so it is for us to see who may.)
        let nothing = request == set_nothing(request.file);
        let may = ctx.uid == 0 || ctx.uid == attr.uid;
        if set.kill_suidgid || (nothing && may && attr.kind == FileKind::File) {
            self.clear_suid(&context, self.file(node)?)?;
            attr = self.client.getattr(&context, self.file(node)?)?;
        }
        let attr = self.tell(ctx, question, attr)?;
        // Whoever wants to know what it takes asks.
        let ttl = if attr.sparse { Duration::ZERO } else { self.ttl() };
        Ok(Attributes { attr, allocated: None, ttl })
    }

    fn readlink(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<Vec<u8>> {
        let file = self.file(node)?;
        let target = self.client.readlink(&groupless(ctx), file)?;
        self.is_looked_at(file);
        Ok(target)
    }

    fn symlink(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Reply<Entry> {
        let dir = self.file(parent)?;
        let made = |by: &Context| self.client.symlink(by, dir, name, target);
        let attr = in_directory(self.judged(ctx, dir, CHANGE, made))?;
        self.made(ctx, attr)
    }

    fn mknod(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        mode: NewMode,
        rdev: u32,
    ) -> Reply<Entry> {
        let kind = FileKind::from_mode(mode.mode).ok_or(Errno::EINVAL)?;
        let (by, dir) = (context(ctx), self.file(parent)?);
        let made = self.client.mknod(&by, dir, name, kind, masked(mode), rdev);
        self.made(ctx, in_directory(made)?)
    }

    fn mkdir(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        mode: NewMode,
    ) -> Reply<Entry> {
        let dir = self.file(parent)?;
        let made = |by: &Context| self.client.mkdir_masked(by, dir, name, masked(mode));
        let attr = in_directory(self.judged(ctx, dir, CHANGE, made))?;
        self.named(ctx, (parent, name), attr)
    }

    fn unlink(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<()> {
        let dir = self.file(parent)?;
        let left = self.judged(ctx, dir, CHANGE, |by| self.client.unlink_and_hold(by, dir, name));
        in_directory(left)?.into_iter().for_each(|left| self.lost_a_name(left));
        Ok(())
    }

    fn rmdir(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<()> {
        let dir = self.file(parent)?;
        in_directory(self.judged(ctx, dir, CHANGE, |by| self.client.rmdir(by, dir, name)))?;
        self.nodes.removed(parent, name);
        Ok(())
    }

    fn rename(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        flags: u32,
    ) -> Reply<()> {
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT) != 0 {
            return Err(Errno::EINVAL);
        }
        let request = RenameRequest {
            parent: self.file(parent)?,
            name: name.into(),
            new_parent: self.file(new_parent)?,
            new_name: new_name.into(),
            no_replace: flags & libc::RENAME_NOREPLACE != 0,
            exchange: flags & libc::RENAME_EXCHANGE != 0,
            whiteout: flags & libc::RENAME_WHITEOUT != 0,
            hold: true,
        };
        let dirs = [request.parent, request.new_parent];
        let replace = |by: &Context| self.client.replace(by, &request);
        let left = in_directory(self.judged_by_all(ctx, &dirs, CHANGE, replace))?;
        left.into_iter().for_each(|left| self.lost_a_name(left));
        self.nodes.moved((parent, name), (new_parent, new_name), request.exchange);
        Ok(())
    }

    fn link(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: &[u8],
    ) -> Reply<Entry> {
        let file = self.file(node)?;
        // The kernel believes the size in this answer, come what may.
        let question = self.cache.asks(ctx.pid, Some(file), Answer::Change);
        let dir = self.file(new_parent)?;
        let link = |by: &Context| self.client.link(by, file, dir, new_name);
        let attr = self.of_link(ctx, dir, self.judged(ctx, dir, CHANGE, link))?;
        let entry = Entry::new(self.tell(ctx, question, attr)?, self.ttl());
        self.cache.files.told(file);
        Ok(entry)
    }

    fn open(&self, ctx: &RequestContext<'_>, node: NodeId, args: OpenArgs) -> Reply<Opened> {
        let (file, rights) = (self.file(node)?, rights_of(args.flags));
        let open = |by: &Context| self.client.open(by, file, rights);
        let judged = |open: &dyn Fn(&Context) -> _| self.judged(ctx, file, bits_of(rights), open);
        let opened =
            if is_to_run(args.flags) { for_kernel(ctx, open, judged) } else { judged(&open) };
        let (file, attr) = self.found(ctx, opened)?;
        Ok(self.opened(ctx, file, &attr, args.flags))
    }

    fn create(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        mode: NewMode,
        args: OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        let options = create_options(mode, args);
        let dir = self.file(parent)?;
        let create = |by: &Context, exclusive: bool| {
            self.client.create(by, dir, name, &CreateOptions { exclusive, ..options.clone() })
        };
        // Who is of the group keeps setgid: of a new file, and of one that is emptied. As a rule there
        // is none: the kernel has just asked for the name.
        let sets_group = u32::from(options.mode) & libc::S_ISGID != 0;
        let made = match sets_group {
            true => create(&context(ctx), options.exclusive),
            false => match self.judged(ctx, dir, CHANGE, |by| create(by, true)) {
                Err(error) if error.kind == ErrorKind::Exists && !options.exclusive => {
                    create(&context(ctx), false)
                }
                made => made,
            },
        };
        self.created(ctx, in_directory(made)?, args)
    }

    fn tmpfile(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        mode: NewMode,
        args: OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        let options = create_options(mode, args);
        let made = self.client.create_unnamed(&context(ctx), self.file(parent)?, &options);
        self.created(ctx, in_directory(made)?, args)
    }

    fn read(
        &self,
        ctx: &RequestContext<'_>,
        _node: NodeId,
        fh: u64,
        offset: u64,
        buffer: &mut [u8],
        args: &IoArgs,
    ) -> Reply<usize> {
        self.read_file(ctx, fh, (offset, buffer), args)
    }

    fn write(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        offset: u64,
        data: WriteData<'_>,
        args: &IoArgs,
    ) -> Reply<usize> {
        self.write_file(ctx, (node, fh), (offset, data), args)
    }

    fn appends_here(&self, fh: u64, offset: u64) -> bool {
        let handle = self.handle(fh);
        handle.is_ok_and(|h| h.file().is_ok_and(|file| file.opening.appends_here(offset)))
    }

    fn write_is_refused(&self, ctx: &RequestContext<'_>, fh: u64) {
        if let Ok(handle) = self.handle(fh)
            && let Ok(handle) = handle.file()
        {
            self.write_fails(ctx, fh, handle);
        }
    }

    fn flush(&self, ctx: &RequestContext<'_>, node: NodeId, fh: u64, owner: u64) -> Reply<()> {
        let handle = self.handle(fh)?;
        let open = handle.file()?;
        self.is_closed(open.file.id(), &open.access);
        let flushed = open.file.flush_for_close(&data_context(ctx));
        // Whoever gets the lock next sees what was written under it.
        self.client.unlock_all(&Context::root(), self.file(node)?, owner, false);
        self.locks.forget(fh, owner);
        Ok(flushed?)
    }

    fn abandon(&self, node: NodeId, fh: u64, owner: u64) {
        if let Ok(file) = self.file(node) {
            self.client.unlock_all_later(file, owner, false);
            self.locks.forget(fh, owner);
        }
    }

    fn unlock_closed(
        &self,
        _ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        args: ReleaseArgs,
    ) -> Reply<()> {
        self.unlock_left(fh, node, args)
    }

    fn release(&self, _ctx: &RequestContext<'_>, _node: NodeId, fh: u64) -> Reply<()> {
        // Dropping the last reference closes the file.
        self.handles.remove(fh);
        Ok(())
    }

    fn getlk(&self, ctx: &RequestContext<'_>, node: NodeId, args: &LockArgs) -> Reply<Lock> {
        self.test_lock(&data_context(ctx), node, args)
    }

    fn setlk(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        args: &LockArgs,
        wait: bool,
    ) -> Reply<()> {
        self.set_lock((&data_context(ctx), ctx.pid), node, args, wait)
    }

    fn fsync(&self, ctx: &RequestContext<'_>, _node: NodeId, fh: u64, _data: bool) -> Reply<()> {
        Ok(self.handle(fh)?.file()?.file.sync(&data_context(ctx))?)
    }

    fn fallocate(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Reply<()> {
        let (handle, by) = (self.handle(fh)?, data_context(ctx));
        let file = &handle.file()?.file;
        let keep_size = mode & KEEP_SIZE != 0;
        let is_offered = match mode & !KEEP_SIZE {
            0 | ZERO_RANGE => true,
            PUNCH_HOLE => keep_size,
            _ => false,
        };
        if is_offered && ctx.uid != 0 {
            // The kernel leaves that to us, and does not say when.
            self.clear_suid(&context(ctx), self.file(node)?)?;
        }
        match mode & !KEEP_SIZE {
            0 => file.allocate(&by, offset, length, keep_size)?,
            PUNCH_HOLE if keep_size => file.punch(&by, offset, length)?,
            ZERO_RANGE => file.zero(&by, offset, length, keep_size)?,
            // Bytes do not move from column to column.
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }

    fn lseek(
        &self,
        ctx: &RequestContext<'_>,
        _node: NodeId,
        fh: u64,
        offset: u64,
        whence: u32,
    ) -> Reply<u64> {
        let (handle, by) = (self.handle(fh)?, data_context(ctx));
        let file = &handle.file()?.file;
        let found = match whence as i32 {
            libc::SEEK_DATA => self.next_data(&by, file, offset)?,
            libc::SEEK_HOLE => self.next_hole(&by, file, offset)?,
            _ => return Err(Errno::EINVAL),
        };
        found.ok_or(Errno::ENXIO)
    }

    fn copy_file_range(
        &self,
        ctx: &RequestContext<'_>,
        _node: NodeId,
        args: &CopyArgs,
    ) -> Reply<u64> {
        if args.flags != 0 {
            return Err(Errno::EINVAL);
        }
        let (from, to) = (self.handle(args.fh_in)?, self.handle(args.fh_out)?);
        let (source, to, by) = (from.file()?, to.file()?, data_context(ctx));
        let from = &source.file;
        if ctx.uid != 0 {
            // The kernel leaves that to us, and does not say when.
            self.clear_suid(&context(ctx), self.file(args.node_out)?)?;
        }
        let (start, len) = (args.offset_out, args.length.min(MAX_COPY_CALL_BYTES));
        // The kernel has written its pages back, holds the file's lock, and drops what
        // it has of the bytes when this returns: as for a write past its pages.
        let mut copied = 0;
        to.opening.passing(ctx.pid, || {
            copied = from.copy_range(&by, args.offset_in, &to.file, start, len)?;
            let believed_end = if copied > 0 { start + copied } else { 0 };
            Ok::<_, Errno>(Passed { bytes: start..start + copied, believed_end })
        })?;
        if copied > 0 {
            self.is_read(from.id(), 0, &source.access, 0);
        }
        if to.synchronous {
            to.file.sync(&by)?;
        }
        Ok(copied)
    }

    fn opendir(&self, _ctx: &RequestContext<'_>, _node: NodeId, flags: u32) -> Reply<Opened> {
        Ok(Opened::new(self.handles.insert(Handle::Dir(DirHandle::new(flags)))))
    }

    fn readdir(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Reply<()> {
        self.list(ctx, node, fh, offset, sink)
    }

    fn releasedir(&self, _ctx: &RequestContext<'_>, _node: NodeId, fh: u64) -> Reply<()> {
        self.handles.remove(fh);
        Ok(())
    }

    fn fsyncdir(&self, ctx: &RequestContext<'_>, _node: NodeId, _fh: u64, _d: bool) -> Reply<()> {
        Ok(self.client.sync_metadata(&data_context(ctx))?)
    }

    fn statfs(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<FsUsage> {
        let file = self.nodes.file(node).unwrap_or(FileId::ROOT);
        Ok(self.client.statfs(&data_context(ctx), file)?)
    }

    fn setxattr(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
        _kill_sgid: bool,
    ) -> Reply<()> {
        if refused_xattr(name) || is_quota(name) {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(hint) = Hint::named(name) {
            return self.hint(ctx, (node, hint), Some(value));
        }
        if is_layout(name) {
            return self.set_layout(ctx, node, Some(value));
        }
        let mode = match flags as i32 {
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            0 => XattrMode::Any,
            // Both at once cannot be, whether it is there or not.
            BOTH => {
                self.client.get_xattr(&context(ctx), self.file(node)?, name)?;
                return Err(Errno::EEXIST);
            }
            _ => return Err(Errno::EINVAL),
        };
        let file = self.file(node)?;
        self.of_node(file, self.client.set_xattr(&context(ctx), file, name, value, mode))?;
        if name == CAPABILITY {
            self.is_capable(file);
        }
        Ok(())
    }

    fn getxattr(&self, ctx: &RequestContext<'_>, node: NodeId, name: &[u8]) -> Reply<Vec<u8>> {
        if refused_xattr(name) {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(hint) = Hint::named(name) {
            return self.hinted(ctx, (node, hint));
        }
        if is_layout(name) {
            return self.shown_layout(ctx, node);
        }
        if is_quota(name) {
            return self.quotas(ctx, node);
        }
        let file = self.file(node)?;
        if is_acl(name) {
            self.cache.tells_acl(file, node);
        }
        let wanted = if name.starts_with(b"user.") { READ } else { 0 };
        let value = self.judged(ctx, file, wanted, |by| self.client.get_xattr(by, file, name));
        let none = Err(ErrorKind::NoAttribute.into());
        Ok(self.of_attributes(file, value, |last| may_have_had(last, name), none)?)
    }

    fn listxattr(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<Vec<Vec<u8>>> {
        let file = self.file(node)?;
        let names = self.client.list_xattr(&groupless(ctx), file);
        let names = self.of_attributes(file, names, |last| last.extras.any, Ok(Vec::new()))?;
        Ok(names.into_iter().map(|name| name.0).collect())
    }

    fn removexattr(&self, ctx: &RequestContext<'_>, node: NodeId, name: &[u8]) -> Reply<()> {
        if refused_xattr(name) || is_quota(name) {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(hint) = Hint::named(name) {
            return self.hint(ctx, (node, hint), None);
        }
        if is_layout(name) {
            return self.set_layout(ctx, node, None);
        }
        let file = self.file(node)?;
        self.of_node(file, self.client.remove_xattr(&context(ctx), file, name))
    }
}
