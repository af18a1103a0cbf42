//! Weir as a file system of the kernel: each operation that the kernel asks for, as calls of the
//! client.

use crate::kernel::size::Answer;
use crate::open::handles::{DirHandle, Handle};
use crate::operations::callers::{CHANGE, bits_of};
use crate::operations::gone::in_directory;
use crate::operations::told::asker;
use crate::translate::{
    context, create_options, data_context, for_kernel, groupless, is_to_run, masked, rights_of,
};
use crate::weirfs::WeirFs;
use std::time::Instant;
use weir_client::{Context, CreateOptions};
use weir_fuse::{
    Attributes, CopyArgs, DirSink, Entry, Errno, Filesystem, IoArgs, Lock, LockArgs, NewMode,
    NodeId, OpenArgs, Opened, ReleaseArgs, Reply, RequestContext, SetAttr, Statx, WriteData,
};
use weir_types::{ErrorKind, FileId, FileKind, FsUsage};
use weir_wire::meta::RenameRequest;

impl Filesystem for WeirFs {
    fn lookup(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        let dir = self.file(parent)?;
        self.heard(ctx);
        let found = self.find(ctx, dir, name);
        if name != b".." {
            let entry = self.lasting(ctx, self.named(ctx, (parent, name), in_directory(found)?)?);
            return Ok(self.lasting_name(ctx, (dir, name), entry));
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
        self.forgotten(node, lookups);
    }

    fn was_told(&self, file: FileId) {
        self.cache.was_told(file);
    }

    fn was_answered(&self, ctx: &RequestContext<'_>) {
        self.cache.names.sent(asker(ctx), Instant::now());
    }

    fn getattr(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: Option<u64>,
    ) -> Reply<Attributes> {
        self.attributes(ctx, node, fh)
    }

    fn statx(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: Option<u64>,
        _mask: u32,
    ) -> Reply<Statx> {
        let attributes = self.attributes(ctx, node, fh)?;
        Ok(Statx { birth: attributes.attr.birth, attributes })
    }

    fn setattr(&self, ctx: &RequestContext<'_>, node: NodeId, set: &SetAttr) -> Reply<Attributes> {
        self.set_attributes(ctx, node, set)
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
        self.made(ctx, parent, attr)
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
        self.made(ctx, parent, in_directory(made)?)
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
        let unlink = |by: &Context| self.client.unlink_and_hold(by, dir, name);
        let left = self.changing(ctx, &[dir], || self.judged(ctx, dir, CHANGE, unlink));
        in_directory(left)?.into_iter().for_each(|left| self.lost_a_name(left));
        Ok(())
    }

    fn rmdir(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<()> {
        let dir = self.file(parent)?;
        let rmdir = |by: &Context| self.client.rmdir(by, dir, name);
        in_directory(self.changing(ctx, &[dir], || self.judged(ctx, dir, CHANGE, rmdir)))?;
        if let Some(gone) = self.nodes.removed(parent, name) {
            self.below.forget(gone);
        }
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
        let judged = || self.judged_by_all(ctx, &dirs, CHANGE, replace);
        let left = in_directory(self.changing(ctx, &dirs, judged))?;
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
        self.cache.files.told_in(file, new_parent);
        Ok(entry)
    }

    fn open(&self, ctx: &RequestContext<'_>, node: NodeId, args: OpenArgs) -> Reply<Opened> {
        self.heard(ctx);
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
        self.heard(ctx);
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
        self.created(ctx, parent, in_directory(made)?, args)
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
        self.created(ctx, parent, in_directory(made)?, args)
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
        self.allocate(ctx, node, fh, offset, length, mode)
    }

    fn lseek(
        &self,
        ctx: &RequestContext<'_>,
        _node: NodeId,
        fh: u64,
        offset: u64,
        whence: u32,
    ) -> Reply<u64> {
        self.seek(ctx, fh, offset, whence)
    }

    fn copy_file_range(
        &self,
        ctx: &RequestContext<'_>,
        _node: NodeId,
        args: &CopyArgs,
    ) -> Reply<u64> {
        self.copy_range(ctx, args)
    }

    fn opendir(&self, ctx: &RequestContext<'_>, _node: NodeId, flags: u32) -> Reply<Opened> {
        self.heard(ctx);
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
        self.set_xattr(ctx, node, name, value, flags)
    }

    fn getxattr(&self, ctx: &RequestContext<'_>, node: NodeId, name: &[u8]) -> Reply<Vec<u8>> {
        self.xattr(ctx, node, name)
    }

    fn listxattr(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<Vec<Vec<u8>>> {
        self.xattrs(ctx, node)
    }

    fn removexattr(&self, ctx: &RequestContext<'_>, node: NodeId, name: &[u8]) -> Reply<()> {
        self.remove_xattr(ctx, node, name)
    }
}
