//! Opening, reading and writing of files.

use crate::kernel::opening::Passed;
use crate::kernel::size::{Answer, Failed};
use crate::open::given_up::{GivenUp, SECOND_PATIENCE};
use crate::open::handles::{FileHandle, Handle, Reading};
use crate::open::jobs::Part;
use crate::translate::{context, is_to_run};
use crate::weirfs::WeirFs;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use weir_client::{Consistency, Context, File, set_nothing};
use weir_fuse::{IoArgs, NodeId, Opened, Reply, RequestContext, SetAttr, WriteData, was_killed};
use weir_types::{Attr, ErrorKind, FileId};
use weir_wire::meta::CAPABILITY;

/// Writes of at least this size keep the buffer they arrived in.
const KEEP_BYTES: usize = 512 << 10;

impl WeirFs {
    pub(crate) fn opened(
        &self,
        ctx: &RequestContext<'_>,
        file: File,
        attr: &Attr,
        flags: u32,
    ) -> Opened {
        // The mount's, unless the file says otherwise.
        let consistency = file.consistency();
        let leased = consistency == Consistency::Strict;
        let maps = flags as i32 & libc::O_ACCMODE == libc::O_RDWR;
        if flags as i32 & libc::O_ACCMODE != libc::O_RDONLY {
            // From now on it changes here, and the kernel does not always know.
            self.cache.end_lifetime(file.id());
        }
        let (opening, others) = self.cache.opening(file.id(), (leased, maps), attr.size);
        let same = self.cache.same(attr);
        let keep_cache = match consistency {
            // As long as a file is open here, leases keep its pages good.
            Consistency::Strict => others || same && file.lease_on_whole().is_some(),
            Consistency::Relaxed => same,
            Consistency::None => false,
        };
        if keep_cache && !others {
            opening.kept(attr.size);
        }
        let is_direct = flags as i32 & libc::O_DIRECT != 0;
        // Where an append ends up, the kernel cannot know. Direct writers of one file need not wait
        // for each other, where the kernel knows that no other handle uses pages.
        let direct = self.options.direct_io
            || consistency == Consistency::None
            || flags as i32 & libc::O_APPEND != 0
            || is_direct;
        // Past the pages go direct writes alone, and all writes where nothing goes through pages.
        let confirmed_past_pages = is_direct || !direct;
        let synchronous = flags as i32 & (libc::O_SYNC | libc::O_DSYNC) != 0;
        // Who is about to become another program has the environment of the one before.
        let part = if is_to_run(flags) { Part::default() } else { self.jobs.of(ctx.pid, ctx.uid) };
        let reading = RwLock::new(Reading::of(part));
        let access = self.access_of(attr, flags, keep_cache);
        let capable = AtomicBool::new(attr.extras.any);
        let given_up = GivenUp::default();
        let handle = FileHandle {
            file,
            direct,
            confirmed_past_pages,
            synchronous,
            opening,
            reading,
            capable,
            access,
            given_up,
        };
        self.hint_of_directory(ctx, &handle);
        let fh = self.handles.insert(Handle::File(handle));
        let parallel_direct_writes = is_direct;
        Opened { direct_io: direct, keep_cache, parallel_direct_writes, ..Opened::new(fh) }
    }

    /// Reads into `buffer` from `offset` on. Returns the number of bytes.
    pub(crate) fn read_file(
        &self,
        ctx: &RequestContext<'_>,
        fh: u64,
        (offset, buffer): (u64, &mut [u8]),
        args: &IoArgs,
    ) -> Reply<usize> {
        let handle = self.handle(fh)?;
        let handle = handle.file()?;
        let FileHandle { file, opening, .. } = handle;
        let bytes = offset..offset.saturating_add(buffer.len() as u64);
        let mut by = handle.context(ctx);
        let begun = Instant::now();
        if !args.is_past_pages() && handle.given_up.takes(&bytes, begun) {
            by.patience_ms = Some(SECOND_PATIENCE.as_millis() as u64);
        }
        let read = |entered: &dyn Fn(bool)| match args.is_past_pages() {
            true => file.read_past_pages(&by, offset, buffer, entered),
            false => file.read_entering(&by, offset, buffer, entered),
        };
        let len = opening.reading(ctx.pid, &bytes, read).inspect_err(|error| {
            let is_silence = matches!(error.kind, ErrorKind::TimedOut | ErrorKind::Unreachable);
            if is_silence && !args.is_past_pages() && by.patience_ms.is_none() {
                handle.given_up.note(&bytes, begun.elapsed(), Instant::now());
            }
        })?;
        self.is_read(file.id(), ctx.pid, &handle.access, args.open_flags);
        if let Some(reader) = &by.reader {
            reader.has_read(offset..offset + len as u64);
        }
        Ok(len)
    }

    /// Writes all of the data at `offset`, or at the end. Returns its length.
    pub(crate) fn write_file(
        &self,
        ctx: &RequestContext<'_>,
        (node, fh): (NodeId, u64),
        (offset, data): (u64, WriteData<'_>),
        args: &IoArgs,
    ) -> Reply<usize> {
        let (handle, len) = (self.handle(fh)?, data.len());
        let handle = handle.file()?;
        let written = self.write_of(ctx, (node, handle), (offset, data), args);
        if written.is_err() && args.is_past_pages() {
            self.write_fails(ctx, fh, handle);
        }
        written.map(|()| len)
    }

    fn write_of(
        &self,
        ctx: &RequestContext<'_>,
        (node, handle): (NodeId, &FileHandle),
        (offset, data): (u64, WriteData<'_>),
        args: &IoArgs,
    ) -> Reply<()> {
        let by = handle.context(ctx);
        if args.kill_suidgid {
            self.clear_suid(&context(ctx), self.file(node)?)?;
        } else if handle.direct && !args.from_page_cache {
            self.drop_capability(handle)?;
        }
        if args.from_page_cache {
            // Nobody waits for these bytes but who maps them, and may ask for
            // them to be durable with fsync or msync.
            return Ok(handle.file.write_page(&by, offset, &data)?);
        }
        let (len, flags) = (data.len() as u64, args.open_flags as i32);
        let bytes = offset..offset.saturating_add(len);
        // The flag may have been cleared since a direct write began.
        let confirmed =
            flags & libc::O_DIRECT != 0 || args.is_past_pages() && handle.confirmed_past_pages;
        let write = || write_through(handle, &by, (offset, data), flags, confirmed);
        if args.is_past_pages() {
            // Where an append ends up the kernel does not know.
            let passed = |end: u64| Passed { bytes: end - len..end, believed_end: bytes.end };
            handle.opening.passing(ctx.pid, || write().map(passed))?;
        } else {
            handle.opening.writing(ctx.pid, bytes, write)?;
        }
        if flags & (libc::O_SYNC | libc::O_DSYNC) != 0 {
            handle.file.sync(&by)?;
        }
        Ok(())
    }

    /// Handles a failed write that bypasses the page cache. If it was past the end known to the
    /// kernel, the kernel takes it back by truncating the file to that end. Other clients may have
    /// written behind it, so the kernel is told the size, and the next size that it sets is
    /// checked.
    pub(crate) fn write_fails(&self, ctx: &RequestContext<'_>, fh: u64, handle: &FileHandle) {
        // Whatever signal has ended the write: it does not end this.
        let (file, by) = (handle.file.id(), Context::root());
        // Not its thread's question: that may be busy with an answer to another one.
        let question = self.cache.asks(0, Some(file), Answer::Other);
        let again = |file| self.client.getattr(&by, file);
        let attr = again(file).and_then(|attr| self.cache.tell(question, attr, again));
        let size = attr.map(|attr| attr.size).ok();
        handle.opening.fails(Failed { by: ctx.pid, fh, size });
    }

    /// Whether a size that is being set may be the kernel's way of taking a failed write back, and
    /// no program's wish.
    pub(crate) fn may_take_back(&self, ctx: &RequestContext<'_>, set: &SetAttr) -> Reply<bool> {
        let (Some(fh), Some(size)) = (set.fh, set.size) else { return Ok(false) };
        let handle = self.handle(fh)?;
        let handle = handle.file()?;
        // A write of one that was killed is answered before it has failed, or has not; perhaps
        // before anybody served it. What else such a thread asked for, nobody waits for.
        Ok(handle.opening.may_take_back(ctx.pid, fh, size) || was_killed(ctx.pid))
    }

    /// Clears setuid and capabilities, as a write by other users does.
    pub(crate) fn clear_suid(&self, ctx: &Context, file: FileId) -> Reply<()> {
        if self.client.getattr(ctx, file)?.mode & 0o6000 != 0 {
            // Nothing that was read before is set: the mode may be another one by now. The
            // server knows who keeps a mark for locking, and who may write without owning it.
            self.client.setattr(ctx, &set_nothing(file))?;
        }
        self.take_capability(file)
    }

    /// Removes capabilities before a write by the superuser that bypasses the page cache. For other
    /// users the kernel asks for it, and before a write into its pages it does so itself. Setuid
    /// and setgid stay.
    fn drop_capability(&self, handle: &FileHandle) -> Reply<()> {
        let file = handle.file.id();
        // What is known costs nothing. It is not, where nothing is kept or others write too: then
        // it is as when the file was opened, or as this mount has set it since.
        let known = || self.client.known_attr(file).is_some_and(|attr| attr.extras.any);
        if !handle.capable.swap(false, Ordering::Relaxed) && !known() {
            return Ok(());
        }
        let taken = self.take_capability(file);
        if taken.is_err() {
            handle.capable.store(true, Ordering::Relaxed);
        }
        taken
    }

    /// Records that a file has capabilities, which the next write through any handle removes.
    pub(crate) fn is_capable(&self, file: FileId) {
        for handle in self.handles.of(file) {
            if let Ok(handle) = handle.file() {
                handle.capable.store(true, Ordering::Relaxed);
            }
        }
    }

    fn take_capability(&self, file: FileId) -> Reply<()> {
        let by = &Context::root();
        let has = self.client.get_xattr(by, file, CAPABILITY);
        match has.and_then(|_| self.client.remove_xattr(by, file, CAPABILITY)) {
            // Or another writer has taken it away just now.
            Err(error) if error.kind == ErrorKind::NoAttribute => Ok(()),
            done => Ok(done?),
        }
    }
}

/// Writes, and returns the end of the bytes. With `confirmed` it returns when the servers have
/// them.
fn write_through(
    handle: &FileHandle,
    by: &Context,
    (offset, data): (u64, WriteData<'_>),
    flags: i32,
    confirmed: bool,
) -> Reply<u64> {
    let (file, len) = (&handle.file, data.len() as u64);
    if flags & libc::O_APPEND != 0 {
        let at = match confirmed {
            true => file.append_confirmed(by, &data)?,
            false => file.append(by, &data)?,
        };
        return Ok(at + len);
    }
    let taken = if data.len() >= KEEP_BYTES { data.try_take() } else { Err(data) };
    match (taken, confirmed) {
        (Ok(owned), true) => file.write_owned_confirmed(by, offset, Box::new(owned))?,
        (Ok(owned), false) => file.write_owned(by, offset, Box::new(owned))?,
        (Err(data), true) => file.write_at_confirmed(by, offset, &data)?,
        (Err(data), false) => file.write_at(by, offset, &data)?,
    }
    Ok(offset + len)
}
