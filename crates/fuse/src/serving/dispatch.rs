//! Calls the file system's method for a parsed request, and sends its result.

use std::os::fd::AsFd;
use std::time::Duration;

use weir_types::limits::MAX_SYMLINK_BYTES;
use zerocopy::IntoBytes;

use crate::filesystem::{Filesystem, Reply, RequestContext};
use crate::interrupts::arrivals::{Arrivals, Noted};
use crate::protocol::abi;
use crate::protocol::answer::Answer;
use crate::protocol::args::{
    CopyArgs, Entry, IoArgs, IoctlArgs, LockKind, NodeId, Opened, ReleaseArgs,
};
use crate::protocol::dir_sink::{DirSink, given};
use crate::protocol::encode;
use crate::protocol::errno::Errno;
use crate::protocol::request::Op;
use crate::write_data::WriteData;

/// One request on its way through the file system. Methods send success themselves; their error is
/// for the caller to send.
pub(crate) struct Dispatch<'a, F, D> {
    pub(crate) fs: &'a F,
    pub(crate) ctx: &'a RequestContext<'a>,
    pub(crate) node: NodeId,
    pub(crate) answer: &'a Answer<D>,
    pub(crate) arrivals: &'a Arrivals,
    /// The request, if later ones may have to wait for it.
    pub(crate) noted: &'a mut Option<Noted>,
    /// The worker's warm buffer for replies.
    pub(crate) buffer: &'a mut [u8],
    pub(crate) negative_ttl: Duration,
}

impl<F: Filesystem, D: AsFd> Dispatch<'_, F, D> {
    /// Serves everything except WRITE and requests that workers handle themselves.
    pub(crate) fn serve(self, op: Op<'_>) -> Reply<()> {
        let (fs, ctx, node) = (self.fs, self.ctx, self.node);
        match op {
            Op::Lookup { name } => self.lookup(name),
            Op::GetAttr { fh } => {
                let attributes = fs.getattr(ctx, node, fh)?;
                self.value(&encode::attributes(&attributes))?;
                if !attributes.ttl.is_zero() {
                    fs.was_told(attributes.attr.file);
                }
                Ok(())
            }
            Op::SetAttr(set) => self.value(&encode::attributes(&fs.setattr(ctx, node, &set)?)),
            Op::Statx { fh, mask, .. } => {
                let statx = fs.statx(ctx, node, fh, mask)?;
                self.value(&encode::statx(&statx))?;
                if !statx.attributes.ttl.is_zero() {
                    fs.was_told(statx.attributes.attr.file);
                }
                Ok(())
            }
            Op::Access { mask } => self.done(fs.access(ctx, node, mask)),

            Op::Symlink { name, target } => self.entry(&fs.symlink(ctx, node, name, target)?),
            Op::MkNod { name, mode, rdev } => self.entry(&fs.mknod(ctx, node, name, mode, rdev)?),
            Op::MkDir { name, mode } => self.entry(&fs.mkdir(ctx, node, name, mode)?),
            Op::Link { node: file, new_name } => self.entry(&fs.link(ctx, file, node, new_name)?),
            Op::Unlink { name } => self.changed(fs.unlink(ctx, node, name)),
            Op::RmDir { name } => self.changed(fs.rmdir(ctx, node, name)),
            Op::Rename { name, new_parent, new_name, flags } => {
                self.changed(fs.rename(ctx, node, name, new_parent, new_name, flags))
            }
            Op::ReadLink => self.readlink(),

            Op::Open(args) => {
                let opened = fs.open(ctx, node, args)?;
                self.value(&encode::opened(&opened))?;
                self.take_back(node, &opened);
                Ok(())
            }
            Op::OpenDir { flags } => {
                let opened = fs.opendir(ctx, node, flags)?;
                self.value(&encode::opened(&opened))?;
                if !self.answer.was_heard() {
                    fs.releasedir(ctx, node, opened.fh)?;
                }
                Ok(())
            }
            Op::Create { name, mode, args } => {
                self.created(&fs.create(ctx, node, name, mode, args)?)
            }
            Op::TmpFile { mode, args } => self.created(&fs.tmpfile(ctx, node, mode, args)?),
            Op::Flush { fh, lock_owner } => self.done(fs.flush(ctx, node, fh, lock_owner)),
            Op::Release { fh, args } => self.release(fh, args),
            Op::ReleaseDir { fh, .. } => self.done(fs.releasedir(ctx, node, fh)),
            Op::Fsync { fh, data_only } => self.done(fs.fsync(ctx, node, fh, data_only)),
            Op::FsyncDir { fh, data_only } => self.done(fs.fsyncdir(ctx, node, fh, data_only)),
            Op::SyncFs => self.done(fs.syncfs(ctx, node)),

            Op::Read { fh, offset, size, args } => self.read(fh, offset, size, &args),
            Op::ReadDir { fh, offset, size, plus } => self.readdir(fh, offset, size, plus),
            Op::LSeek { fh, offset, whence } => {
                let offset = fs.lseek(ctx, node, fh, offset, whence)?;
                self.value(&abi::LseekOut { offset })
            }
            Op::Fallocate { fh, offset, length, mode } => {
                self.done(fs.fallocate(ctx, node, fh, offset, length, mode))
            }
            Op::CopyFileRange { args, wide_reply } => self.copy(args, wide_reply),

            Op::SetXattr { name, value, flags, kill_sgid } => {
                self.done(fs.setxattr(ctx, node, name, value, flags, kill_sgid))
            }
            Op::GetXattr { name, size } => {
                let value = fs.getxattr(ctx, node, name)?;
                self.sized(&value, size)
            }
            Op::ListXattr { size } => {
                let names = fs.listxattr(ctx, node)?;
                let list: Vec<u8> =
                    names.into_iter().flat_map(|n| n.into_iter().chain([0])).collect();
                self.sized(&list, size)
            }
            Op::RemoveXattr { name } => self.done(fs.removexattr(ctx, node, name)),

            Op::GetLk(args) => {
                let test = || fs.getlk(ctx, node, &args);
                let lock = self.after_closes(test, |lock| lock.kind != LockKind::Unlock)?;
                self.value(&encode::lock(&lock))
            }
            Op::SetLk { args, wait: true } => self.done(fs.setlk(ctx, node, &args, true)),
            Op::SetLk { args, wait: false } => {
                self.done(self.after_closes(|| fs.setlk(ctx, node, &args, false), |()| false))
            }
            Op::StatFs => self.value(&encode::usage(&fs.statfs(ctx, node)?)),
            Op::Ioctl(args) => self.ioctl(&args),
            Op::Poll { fh, events } => {
                let revents = fs.poll(ctx, node, fh, events)?;
                self.value(&abi::PollOut { revents, padding: 0 })
            }
            Op::BMap { block, block_size_bytes } => {
                let block = fs.bmap(ctx, node, block, block_size_bytes)?;
                self.value(&abi::BmapOut { block })
            }
            Op::Destroy => self.done(Ok(())),
            Op::Write { .. }
            | Op::Init(_)
            | Op::Interrupt { .. }
            | Op::Forget { .. }
            | Op::BatchForget(_) => Err(Errno::EIO),
        }
    }

    /// Serves WRITE.
    pub(crate) fn write(
        self,
        fh: u64,
        offset: u64,
        data: WriteData<'_>,
        args: &IoArgs,
    ) -> Reply<()> {
        let length = data.len();
        let written = self.fs.write(self.ctx, self.node, fh, offset, data, args)?;
        if written > length {
            return Err(Errno::EIO);
        }
        self.value(&abi::WriteOut { size: written as u32, padding: 0 })
    }

    /// Requests a lock, and once more if another conflicts and an earlier close, for whose end the
    /// kernel did not wait, has released locks since.
    fn after_closes<T>(
        &self,
        ask: impl Fn() -> Reply<T>,
        is_in_the_way: impl Fn(&T) -> bool,
    ) -> Reply<T> {
        let served = self.arrivals.closes();
        let first = ask();
        let fails = match &first {
            Ok(found) => is_in_the_way(found),
            Err(errno) => *errno == Errno::EAGAIN,
        };
        if fails && self.arrivals.wait_for_closes(self.node, self.ctx.unique, served) {
            return ask();
        }
        first
    }

    fn value(&self, value: &(impl IntoBytes + zerocopy::Immutable)) -> Reply<()> {
        self.answer.value(value);
        Ok(())
    }

    fn done(&self, result: Reply<()>) -> Reply<()> {
        result?;
        self.answer.empty();
        Ok(())
    }

    fn changed(&self, result: Reply<()>) -> Reply<()> {
        self.done(result)?;
        self.fs.was_answered(self.ctx);
        Ok(())
    }

    fn entry(&self, entry: &Entry) -> Reply<()> {
        self.value(&encode::entry(entry))?;
        self.take_back_entry(entry);
        Ok(())
    }

    fn created(&self, (entry, opened): &(Entry, Opened)) -> Reply<()> {
        let reply = (encode::entry(entry), encode::opened(opened));
        self.answer.parts(reply.0.as_bytes(), reply.1.as_bytes());
        self.take_back(entry.node, opened);
        self.take_back_entry(entry);
        Ok(())
    }

    /// Closes a file whose opener was killed meanwhile, because no program will.
    fn take_back(&self, node: NodeId, opened: &Opened) {
        let released = || self.fs.release(self.ctx, node, opened.fh);
        if !self.answer.was_heard()
            && let Err(errno) = released()
        {
            tracing::debug!(?errno, "a file of a killed program was not released");
        }
    }

    /// Forgets an entry that the kernel did not receive, and so will never forget.
    fn take_back_entry(&self, entry: &Entry) {
        if !self.answer.was_heard() {
            self.fs.forget(entry.node, 1);
        }
    }

    fn lookup(&self, name: &[u8]) -> Reply<()> {
        // Only NFS export asks for the dots: it finds a file by its node id.
        if name == b"." {
            return self.found(&self.fs.find_again(self.ctx, self.node)?);
        }
        match self.fs.lookup(self.ctx, self.node, name) {
            Ok(entry) => {
                self.found(&entry)?;
                if !entry.entry_ttl.is_zero() {
                    self.fs.was_answered(self.ctx);
                }
                Ok(())
            }
            Err(Errno::ENOENT) if !self.negative_ttl.is_zero() => {
                self.value(&encode::negative_entry(self.negative_ttl))
            }
            Err(errno) => Err(errno),
        }
    }

    fn found(&self, entry: &Entry) -> Reply<()> {
        self.value(&encode::entry(entry))?;
        if !entry.attr_ttl.is_zero() {
            self.fs.was_told(entry.attr.file);
        }
        self.take_back_entry(entry);
        Ok(())
    }

    fn release(self, fh: u64, args: ReleaseArgs) -> Reply<()> {
        let unlocked = self.fs.unlock_closed(self.ctx, self.node, fh, args);
        // Whoever asks for a lock waits no longer: to close may take a while.
        self.noted.take();
        let released = self.fs.release(self.ctx, self.node, fh);
        self.done(unlocked.and(released))
    }

    fn readlink(&self) -> Reply<()> {
        let target = self.fs.readlink(self.ctx, self.node)?;
        if target.is_empty() || target.len() > MAX_SYMLINK_BYTES {
            return Err(Errno::EIO);
        }
        self.answer.bytes(&target);
        Ok(())
    }

    fn read(self, fh: u64, offset: u64, size: u32, args: &IoArgs) -> Reply<()> {
        let buffer = self.buffer.get_mut(..size as usize).ok_or(Errno::EINVAL)?;
        let length = self.fs.read(self.ctx, self.node, fh, offset, buffer, args)?;
        self.answer.bytes(buffer.get(..length).ok_or(Errno::EIO)?);
        Ok(())
    }

    fn readdir(self, fh: u64, offset: u64, size: u32, plus: bool) -> Reply<()> {
        let size = self.buffer.len().min(size as usize);
        let mut sink = DirSink::new(&mut self.buffer[..size], plus);
        self.fs.readdir(self.ctx, self.node, fh, offset, &mut sink)?;
        let used = sink.used();
        self.answer.bytes(&self.buffer[..used]);
        if plus {
            let was_heard = self.answer.was_heard();
            let mut names_last = false;
            for given in given(&self.buffer[..used]) {
                given.lasting.into_iter().for_each(|file| self.fs.was_told(file));
                names_last |= given.name_lasts;
                if !was_heard {
                    self.fs.forget(given.node, 1);
                }
            }
            if names_last {
                self.fs.was_answered(self.ctx);
            }
        }
        Ok(())
    }

    fn copy(&self, args: CopyArgs, wide_reply: bool) -> Reply<()> {
        // The narrow answer holds 32 bits; a short copy is continued.
        let most = if wide_reply { args.length } else { args.length.min(u64::from(u32::MAX)) };
        let args = CopyArgs { length: most, ..args };
        let copied = self.fs.copy_file_range(self.ctx, self.node, &args)?.min(most);
        if wide_reply {
            self.value(&abi::CopyFileRangeOut { bytes_copied: copied })
        } else {
            self.value(&abi::WriteOut { size: copied as u32, padding: 0 })
        }
    }

    /// Replies to a caller whose buffer has `size` bytes; 0 asks for the length.
    fn sized(&self, value: &[u8], size: u32) -> Reply<()> {
        if size == 0 {
            return self.value(&abi::GetxattrOut { size: value.len() as u32, padding: 0 });
        }
        if value.len() > size as usize {
            return Err(Errno::ERANGE);
        }
        self.answer.bytes(value);
        Ok(())
    }

    fn ioctl(&self, args: &IoctlArgs<'_>) -> Reply<()> {
        let reply = self.fs.ioctl(self.ctx, self.node, args)?;
        if reply.output.len() > args.output_bytes as usize {
            return Err(Errno::EIO);
        }
        let head = abi::IoctlOut { result: reply.result, ..Default::default() };
        self.answer.parts(head.as_bytes(), &reply.output);
        Ok(())
    }
}
