//! A file system in memory, with a few files that misbehave on purpose.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_fuse::{
    Attributes, DirEntry, DirSink, Entry, Errno, Filesystem, IoArgs, LockArgs, LockKind, NewMode,
    NodeId, Notifier, OpenArgs, Opened, OwnedWriteData, ROOT, Reply, RequestContext, SetAttr,
    SetTime, WriteData,
};
use weir_types::{Attr, Extras, FileId, FileKind, FsUsage, Generation, Timestamp};

/// Opening `blocks` works; reading it waits until the reader is interrupted.
pub const BLOCKS: &str = "blocks";
/// Reading it panics.
pub const PANICS: &str = "panics";
/// Reading it sends a notification from the thread that serves the read.
pub const NOTIFIES: &str = "notifies";
/// Its end waits as a read of `blocks` does. Somebody else has locked it.
pub const CLOSES: &str = "closes";

struct Node {
    attr: Attr,
    data: Vec<u8>,
    children: BTreeMap<Vec<u8>, NodeId>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<NodeId, Node>,
    next: NodeId,
    /// Written data that was taken over and not applied yet.
    behind: Vec<(NodeId, u64, OwnedWriteData)>,
}

/// What a test can see and steer.
#[derive(Default)]
pub struct Probe {
    pub blocked: AtomicUsize,
    pub interrupted: AtomicUsize,
    pub destroyed: AtomicUsize,
    /// Reads of `blocks` end without an interrupt.
    pub(super) released: AtomicBool,
    /// Who waits for a lock is heard by nobody for a while.
    pub slow_lock_waits: AtomicBool,
    pub notify_answer: Mutex<Option<Result<(), Errno>>>,
    pub notifier: Mutex<Option<Notifier>>,
    pub(super) wake: Arc<(Mutex<()>, Condvar)>,
}

#[derive(Clone)]
pub struct MemFs {
    state: Arc<Mutex<State>>,
    pub probe: Arc<Probe>,
    /// How long the kernel may believe names and attributes.
    pub ttl: Duration,
    pub direct_io: bool,
    /// `blocks` is read through the page cache, too.
    pub blocks_in_cache: bool,
    blocks: NodeId,
    closes: NodeId,
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp(since.as_nanos() as i64)
}

impl MemFs {
    pub fn new() -> Self {
        let fs = Self {
            state: Arc::new(Mutex::new(State { next: ROOT, ..State::default() })),
            probe: Arc::default(),
            ttl: Duration::ZERO,
            direct_io: false,
            blocks_in_cache: false,
            blocks: ROOT + 1,
            closes: ROOT + 4,
        };
        let mut state = fs.state.lock().unwrap();
        state.make(None, FileKind::Directory, 0o755, (0, 0));
        for name in [BLOCKS, PANICS, NOTIFIES, CLOSES] {
            let node = state.make(Some((ROOT, name.as_bytes())), FileKind::File, 0o666, (0, 0));
            state.nodes.get_mut(&node).unwrap().attr.size = 1 << 20;
        }
        drop(state);
        fs
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panicking operation does not hold it.
        self.state.lock().unwrap()
    }

    /// Changes a file of the root behind the kernel's back.
    pub fn change_secretly(&self, name: &str, data: &[u8]) -> NodeId {
        let mut state = self.state();
        let node = state.nodes[&ROOT].children[name.as_bytes()];
        let file = state.nodes.get_mut(&node).unwrap();
        file.data = data.to_vec();
        file.attr.size = data.len() as u64;
        node
    }

    /// Renames in the root behind the kernel's back.
    pub fn rename_secretly(&self, from: &str, to: &str) {
        let mut state = self.state();
        let children = &mut state.nodes.get_mut(&ROOT).unwrap().children;
        let node = children.remove(from.as_bytes()).unwrap();
        children.insert(to.as_bytes().to_vec(), node);
    }

    fn entry(&self, state: &State, node: NodeId) -> Reply<Entry> {
        Ok(Entry::new(state.get(node)?.attr.clone(), self.ttl))
    }

    fn opened(&self, node: NodeId) -> Opened {
        let direct_io = self.direct_io || (node == self.blocks && !self.blocks_in_cache);
        let keep_cache = !direct_io && !self.ttl.is_zero();
        Opened { fh: node, direct_io, keep_cache, ..Opened::default() }
    }

    fn block(&self, ctx: &RequestContext<'_>) -> Reply<()> {
        let probe = &self.probe;
        probe.blocked.fetch_add(1, Ordering::SeqCst);
        let wake = Arc::clone(&probe.wake);
        ctx.interrupt().wake_with(
            move || {
                let _guard = wake.0.lock().unwrap();
                wake.1.notify_all();
            },
            || {
                let mut guard = probe.wake.0.lock().unwrap();
                while !ctx.interrupted() && !probe.released.load(Ordering::SeqCst) {
                    guard = probe.wake.1.wait(guard).unwrap();
                }
            },
        );
        probe.blocked.fetch_sub(1, Ordering::SeqCst);
        if !ctx.interrupted() {
            return Ok(());
        }
        probe.interrupted.fetch_add(1, Ordering::SeqCst);
        Err(Errno::EINTR)
    }

    fn misbehave(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<()> {
        let name = {
            let state = self.state();
            let mut names = state.nodes[&ROOT].children.iter();
            names.find(|(_, id)| **id == node).map(|(name, _)| name.clone())
        };
        match name.as_deref() {
            Some(name) if name == BLOCKS.as_bytes() => self.block(ctx),
            Some(name) if name == PANICS.as_bytes() => panic!("on purpose"),
            Some(name) if name == NOTIFIES.as_bytes() => {
                let notifier = self.probe.notifier.lock().unwrap().clone().unwrap();
                let answer = notifier.inval_inode(node, 0, 0);
                *self.probe.notify_answer.lock().unwrap() = Some(answer);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl State {
    fn get(&self, node: NodeId) -> Reply<&Node> {
        self.nodes.get(&node).ok_or(Errno::ENOENT)
    }

    fn get_mut(&mut self, node: NodeId) -> Reply<&mut Node> {
        self.nodes.get_mut(&node).ok_or(Errno::ENOENT)
    }

    fn child(&self, parent: NodeId, name: &[u8]) -> Reply<NodeId> {
        self.get(parent)?.children.get(name).copied().ok_or(Errno::ENOENT)
    }

    fn make(
        &mut self,
        place: Option<(NodeId, &[u8])>,
        kind: FileKind,
        mode: u32,
        (uid, gid): (u32, u32),
    ) -> NodeId {
        let node = self.next;
        self.next += 1;
        let attr = Attr {
            file: FileId(node),
            kind,
            mode: (mode & 0o7777) as u16,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            uid,
            gid,
            rdev: 0,
            size: 0,
            atime: now(),
            mtime: now(),
            ctime: now(),
            change: 0,
            generation: Generation(0),
            preferred_io_bytes: 4096,
            birth: None,
            extras: Extras::default(),
            sparse: false,
        };
        let (data, children, xattrs) = Default::default();
        self.nodes.insert(node, Node { attr, data, children, xattrs });
        if let Some((parent, name)) = place {
            self.nodes.get_mut(&parent).unwrap().children.insert(name.to_vec(), node);
        }
        node
    }

    fn make_new(
        &mut self,
        ctx: &RequestContext<'_>,
        place: (NodeId, &[u8]),
        kind: FileKind,
        mode: u32,
    ) -> Reply<NodeId> {
        match self.child(place.0, place.1) {
            Ok(_) => Err(Errno::EEXIST),
            Err(_) => Ok(self.make(Some(place), kind, mode, (ctx.uid, ctx.gid))),
        }
    }

    fn apply_writes(&mut self) {
        for (node, offset, data) in std::mem::take(&mut self.behind) {
            let Some(file) = self.nodes.get_mut(&node) else { continue };
            let end = offset as usize + data.len();
            if file.data.len() < end {
                file.data.resize(end, 0);
            }
            file.data[offset as usize..end].copy_from_slice(&data);
        }
    }

    fn remove(&mut self, parent: NodeId, name: &[u8], directory: bool) -> Reply<()> {
        let node = self.child(parent, name)?;
        let victim = self.get_mut(node)?;
        if directory && !victim.children.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        victim.attr.nlink = victim.attr.nlink.saturating_sub(1);
        self.get_mut(parent)?.children.remove(name);
        Ok(())
    }
}

impl Filesystem for MemFs {
    fn destroy(&self) {
        self.probe.destroyed.fetch_add(1, Ordering::SeqCst);
    }

    fn lookup(&self, _: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<Entry> {
        let state = self.state();
        self.entry(&state, state.child(parent, name)?)
    }

    fn getattr(&self, _: &RequestContext<'_>, node: NodeId, _: Option<u64>) -> Reply<Attributes> {
        Ok(Attributes {
            attr: self.state().get(node)?.attr.clone(),
            allocated: None,
            ttl: self.ttl,
        })
    }

    fn setattr(&self, _: &RequestContext<'_>, node: NodeId, set: &SetAttr) -> Reply<Attributes> {
        let mut state = self.state();
        state.apply_writes();
        let file = state.get_mut(node)?;
        let time = |time| match time {
            SetTime::Now => now(),
            SetTime::At(time) => time,
        };
        let attr = &mut file.attr;
        attr.mode = set.mode.map_or(attr.mode, |mode| mode as u16);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, time);
        attr.mtime = set.mtime.map_or(attr.mtime, time);
        if let Some(size) = set.size {
            attr.size = size;
            file.data.resize(size as usize, 0);
        }
        Ok(Attributes { attr: file.attr.clone(), allocated: None, ttl: self.ttl })
    }

    fn readlink(&self, _: &RequestContext<'_>, node: NodeId) -> Reply<Vec<u8>> {
        Ok(self.state().get(node)?.data.clone())
    }

    fn symlink(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Reply<Entry> {
        let mut state = self.state();
        let node = state.make_new(ctx, (parent, name), FileKind::Symlink, 0o777)?;
        let link = state.get_mut(node)?;
        link.data = target.to_vec();
        link.attr.size = target.len() as u64;
        self.entry(&state, node)
    }

    fn mknod(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        mode: NewMode,
        rdev: u32,
    ) -> Reply<Entry> {
        let mut state = self.state();
        let kind = FileKind::from_mode(mode.mode).ok_or(Errno::EINVAL)?;
        let node = state.make_new(ctx, (parent, name), kind, mode.mode)?;
        state.get_mut(node)?.attr.rdev = rdev;
        self.entry(&state, node)
    }

    fn mkdir(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        mode: NewMode,
    ) -> Reply<Entry> {
        let mut state = self.state();
        let node = state.make_new(ctx, (parent, name), FileKind::Directory, mode.mode)?;
        self.entry(&state, node)
    }

    fn unlink(&self, _: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<()> {
        self.state().remove(parent, name, false)
    }

    fn rmdir(&self, _: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Reply<()> {
        self.state().remove(parent, name, true)
    }

    fn rename(
        &self,
        _: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        flags: u32,
    ) -> Reply<()> {
        let mut state = self.state();
        let node = state.child(parent, name)?;
        let there = state.child(new_parent, new_name).is_ok();
        match (flags, there) {
            (0, _) | (libc::RENAME_NOREPLACE, false) => {}
            (libc::RENAME_NOREPLACE, true) => return Err(Errno::EEXIST),
            _ => return Err(Errno::EINVAL),
        }
        state.get_mut(parent)?.children.remove(name);
        state.get_mut(new_parent)?.children.insert(new_name.to_vec(), node);
        Ok(())
    }

    fn link(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: &[u8],
    ) -> Reply<Entry> {
        let mut state = self.state();
        if state.child(new_parent, new_name).is_ok() {
            return Err(Errno::EEXIST);
        }
        state.get_mut(node)?.attr.nlink += 1;
        state.get_mut(new_parent)?.children.insert(new_name.to_vec(), node);
        self.entry(&state, node)
    }

    fn open(&self, _: &RequestContext<'_>, node: NodeId, _: OpenArgs) -> Reply<Opened> {
        Ok(self.opened(node))
    }

    fn create(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        mode: NewMode,
        _: OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        let mut state = self.state();
        let node = state.make_new(ctx, (parent, name), FileKind::File, mode.mode)?;
        Ok((self.entry(&state, node)?, self.opened(node)))
    }

    fn tmpfile(
        &self,
        ctx: &RequestContext<'_>,
        _: NodeId,
        mode: NewMode,
        _: OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        let mut state = self.state();
        let node = state.make(None, FileKind::File, mode.mode, (ctx.uid, ctx.gid));
        state.get_mut(node)?.attr.nlink = 0;
        Ok((self.entry(&state, node)?, self.opened(node)))
    }

    fn read(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        offset: u64,
        buffer: &mut [u8],
        _: &IoArgs,
    ) -> Reply<usize> {
        assert_eq!(fh, node, "the handle that open gave");
        self.misbehave(ctx, node)?;
        let mut state = self.state();
        state.apply_writes();
        let data = &state.get(node)?.data;
        let rest = data.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        fh: u64,
        offset: u64,
        data: WriteData<'_>,
        _: &IoArgs,
    ) -> Reply<usize> {
        assert_eq!(fh, node, "the handle that open gave");
        let length = data.len();
        let owned = match data.try_take() {
            Ok(owned) => owned,
            Err(data) => {
                self.state().apply_writes();
                data.take()?
            }
        };
        let mut state = self.state();
        state.behind.push((node, offset, owned));
        let attr = &mut state.get_mut(node)?.attr;
        attr.size = attr.size.max(offset + length as u64);
        attr.mtime = now();
        Ok(length)
    }

    fn flush(&self, _: &RequestContext<'_>, _: NodeId, _: u64, _: u64) -> Reply<()> {
        self.state().apply_writes();
        Ok(())
    }

    fn release(&self, ctx: &RequestContext<'_>, node: NodeId, _: u64) -> Reply<()> {
        if node == self.closes { self.block(ctx) } else { Ok(()) }
    }

    fn setlk(&self, ctx: &RequestContext<'_>, _: NodeId, args: &LockArgs, wait: bool) -> Reply<()> {
        if wait && self.probe.slow_lock_waits.load(Ordering::SeqCst) {
            let ended = self.block(ctx);
            std::thread::sleep(Duration::from_millis(300));
            return ended;
        }
        if args.lock.kind == LockKind::Unlock { Ok(()) } else { Err(Errno::EAGAIN) }
    }

    fn fsync(&self, _: &RequestContext<'_>, _: NodeId, _: u64, _: bool) -> Reply<()> {
        self.state().apply_writes();
        Ok(())
    }

    fn readdir(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        _: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Reply<()> {
        let state = self.state();
        let dots = [(&b"."[..], node), (&b".."[..], node)];
        let children = &state.get(node)?.children;
        let all = dots.into_iter().chain(children.iter().map(|(name, id)| (name.as_slice(), *id)));
        for ((name, id), next_offset) in all.zip(1..).skip(offset as usize) {
            let entry = self.entry(&state, id)?;
            let kind = entry.attr.kind;
            let entry = sink.wants_entries().then_some(&entry);
            if !sink.push(&DirEntry { node: id, kind, name, next_offset, entry }) {
                break;
            }
        }
        Ok(())
    }

    fn statfs(&self, _: &RequestContext<'_>, _: NodeId) -> Reply<FsUsage> {
        let (total_bytes, free_bytes) = (1 << 30, 1 << 29);
        Ok(FsUsage { total_bytes, free_bytes, total_files: 1000, free_files: 900 })
    }

    fn setxattr(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        _: u32,
        _: bool,
    ) -> Reply<()> {
        self.state().get_mut(node)?.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn getxattr(&self, _: &RequestContext<'_>, node: NodeId, name: &[u8]) -> Reply<Vec<u8>> {
        self.state().get(node)?.xattrs.get(name).cloned().ok_or(Errno::ENODATA)
    }

    fn listxattr(&self, _: &RequestContext<'_>, node: NodeId) -> Reply<Vec<Vec<u8>>> {
        Ok(self.state().get(node)?.xattrs.keys().cloned().collect())
    }

    fn removexattr(&self, _: &RequestContext<'_>, node: NodeId, name: &[u8]) -> Reply<()> {
        let removed = self.state().get_mut(node)?.xattrs.remove(name);
        removed.map(drop).ok_or(Errno::ENODATA)
    }
}
