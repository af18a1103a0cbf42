//! The files of a cluster as a tree for cp.

use crate::failure::{Done, Failure};
use crate::files::name::{child, split};
use crate::files::remote::RemoteTree;
use crate::files::tree::{
    ClusterSign, Held, Keep, Making, Meta, PRIVILEGE, Pages, Sink, Source, Take, Tree, Xattrs,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_client::{Client, Context, CreateOptions, File, set_nothing};
use weir_types::limits::MAX_READDIR_ENTRIES;
use weir_types::{
    Attr, Error, ErrorKind, FileId, FileKind, FileLayout, LayoutKind, LayoutSpec, Placement,
    Segment,
};
use weir_wire::Rights;
use weir_wire::lock::{LAST_BYTE, Lock, LockMode, LockWait};
use weir_wire::meta::{RenameRequest, SetTime, XattrMode};

/// In a smaller file, in bytes, holes are not looked for: asking the servers would take longer.
const SMALL_BYTES: u64 = 64 << 10;
/// How long to wait for a lock before another run of cp counts as alive. This is longer than the
/// session of a killed run lasts (`session_timeout_ms`).
const LOCK_PATIENCE: Duration = Duration::from_secs(45);
/// The interval of attempts to lock a file.
const LOCK_PAUSE: Duration = Duration::from_millis(500);

/// The next lock owner of this process. Each file gets one of its own.
static OWNERS: AtomicU64 = AtomicU64::new(1);

impl RemoteTree {
    fn node(&self, path: &[u8], id: FileId) -> RemoteNode {
        let (client, context) = (self.client.clone(), self.context.clone());
        RemoteNode { client, context, id, name: self.shown(path) }
    }

    fn handle(&self, path: &[u8], file: File) -> RemoteFile {
        RemoteFile { node: self.node(path, file.id()), file, lock: None }
    }

    /// Locks a file while it is open here. `None` if another process still holds the lock after
    /// `patience`, or held it until now.
    fn locked(&self, path: &[u8], file: File, patience: Duration) -> Done<Option<RemoteFile>> {
        let lock = Lock {
            file: file.id(),
            owner: OWNERS.fetch_add(1, Ordering::Relaxed),
            flock: true,
            start: 0,
            last: LAST_BYTE,
            mode: LockMode::Exclusive,
            pid: std::process::id(),
        };
        let begin = Instant::now();
        loop {
            match self.client.set_lock(&self.context, &lock, LockWait::No) {
                Ok(()) => break,
                Err(e) if e.kind != ErrorKind::WouldBlock => return Err(self.about(path)(e)),
                // The lock may belong to a process that was killed: its session ends by itself.
                Err(_) if begin.elapsed() < patience => std::thread::sleep(LOCK_PAUSE),
                Err(_) => return Ok(None),
            }
        }
        let held = HeldLock { client: self.client.clone(), lock };
        let file = RemoteFile { lock: Some(held), ..self.handle(path, file) };
        // The former holder of the lock may have finished the file meanwhile.
        Ok(self.find(path, false).is_ok_and(|attr| attr.file == file.node.id).then_some(file))
    }

    /// The owner that new files in the directory of a path get.
    fn owner(&self, path: &[u8]) -> Done<u32> {
        if let Some(owner) = self.owner.get() {
            return Ok(*owner);
        }
        let (dir, _) = self.parent(path)?;
        let options = CreateOptions { mode: 0o600, ..CreateOptions::default() };
        let made = self.client.create_unnamed(&self.context, dir, &options);
        let (_, attr) = made.map_err(self.about(path))?;
        Ok(*self.owner.get_or_init(|| attr.uid))
    }

    /// Removes a leftover that has its final mode, which may not even let its owner write.
    fn remove_finished(&self, path: &[u8], file: FileId, patience: Duration) -> Done {
        // Without the right to read there can be no lock, for this process or for others.
        let _held = match self.client.open(&self.context, file, Rights::READ) {
            Ok((file, _)) => match self.locked(path, file, patience)? {
                None => return Ok(()),
                held => held,
            },
            Err(_) => None,
        };
        self.remove(path)
    }
}

/// A file of a cluster, by its number.
struct RemoteNode {
    client: Arc<Client>,
    context: Context,
    id: FileId,
    name: String,
}

impl RemoteNode {
    fn failed(&self, error: Error) -> Failure {
        Failure::from(error).about(&self.name)
    }

    fn xattrs(&self) -> Done<Xattrs> {
        let names = self.client.list_xattr(&self.context, self.id).map_err(|e| self.failed(e))?;
        let value = |name: Vec<u8>| {
            let value = self.client.get_xattr(&self.context, self.id, &name);
            Ok((name, value.map_err(|e| self.failed(e))?))
        };
        names.into_iter().map(|name| value(name.0)).collect()
    }

    fn change(&self, meta: &Meta, keep: Keep) -> Result<bool, Error> {
        let mut request = set_nothing(self.id);
        let mut is_kept = true;
        if keep.times {
            request.atime = Some(SetTime::At(meta.atime));
            request.mtime = Some(SetTime::At(meta.mtime));
        }
        if keep.mode && meta.kind != FileKind::Symlink {
            request.mode = Some(meta.mode);
        }
        if keep.owner && self.context.caller.uid == 0 {
            request.uid = Some(meta.uid);
            request.gid = Some(meta.gid);
        } else if keep.owner && self.context.caller.uid != meta.uid {
            request.mode = request.mode.map(|mode| mode & !PRIVILEGE);
            is_kept = false;
        }
        if request == set_nothing(self.id) {
            return Ok(is_kept);
        }
        match self.client.setattr(&self.context, &request) {
            // The key may map root to another user, who may not change owners.
            Err(e) if e.kind == ErrorKind::NotPermitted && request.uid.is_some() => {
                (request.uid, request.gid) = (None, None);
                request.mode = request.mode.map(|mode| mode & !PRIVILEGE);
                self.client.setattr(&self.context, &request).map(|_| false)
            }
            done => done.map(|_| is_kept),
        }
    }
}

impl Held for RemoteNode {
    fn identity(&self) -> Done<(u64, u64)> {
        Ok((0, self.id.0))
    }

    fn set_meta(&self, meta: &Meta, keep: Keep) -> Done<bool> {
        self.change(meta, keep).map_err(|e| self.failed(e))
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Done<bool> {
        match self.client.set_xattr(&self.context, self.id, name, value, XattrMode::Any) {
            Ok(()) => Ok(true),
            Err(e) if e.kind == ErrorKind::Unsupported => Ok(false),
            // Only the superuser may set attributes of other classes.
            Err(e) if e.kind == ErrorKind::NotPermitted && !name.starts_with(b"user.") => Ok(false),
            Err(e) => Err(self.failed(e)),
        }
    }

    fn remove_xattr(&self, name: &[u8]) -> Done {
        match self.client.remove_xattr(&self.context, self.id, name) {
            Err(e) if matches!(e.kind, ErrorKind::NoAttribute | ErrorKind::Unsupported) => Ok(()),
            done => done.map_err(|e| self.failed(e)),
        }
    }
}

fn meta(attr: &Attr) -> Meta {
    Meta {
        kind: attr.kind,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink,
        rdev: attr.rdev,
        size: attr.size,
        atime: attr.atime,
        mtime: attr.mtime,
        identity: (0, attr.file.0),
    }
}

/// The layout of a file as a specification, as far as it can be derived. `None` if the file has
/// parities in place of copies: its former number of copies is not known, and without parities one
/// copy would be too few.
fn spec_of(layout: &FileLayout) -> Option<LayoutSpec> {
    let first = layout.segments.first();
    if first.is_some_and(Segment::is_coded) {
        return None;
    }
    let column = first.and_then(|segment| segment.columns.first());
    let copies = column.map_or(1, |column| column.targets.len());
    let mut spec = LayoutSpec { kind: layout.kind, copies: copies as u8, ..LayoutSpec::default() };
    if copies > 1 {
        spec.duplication = Some(layout.duplication);
    }
    if copies > 1 || layout.placement == Placement::Graduated {
        spec.placement = layout.placement;
    }
    let Some(first) = first else { return Some(spec) };
    if layout.kind == LayoutKind::Striped {
        spec.base = Some(layout.base);
        spec.count = first.columns.len() as u16;
        spec.stripe_unit_bytes = first.stripe_unit_bytes;
    } else {
        spec.segment_bytes = first.len.unwrap_or(0);
    }
    Some(spec)
}

/// The entries of a directory, one reply of the metadata server at a time.
struct RemotePages {
    tree: Arc<RemoteTree>,
    path: Vec<u8>,
    dir: FileId,
    cookie: u64,
    /// The cookie of the last entry; 0 before the first request.
    last: u64,
    end: bool,
}

impl Pages for RemotePages {
    fn next(&mut self) -> Done<Vec<(Vec<u8>, Meta)>> {
        let mut page = Vec::new();
        // A reply may contain only `.` and `..`.
        while page.is_empty() && !self.end {
            let (tree, most) = (&self.tree, MAX_READDIR_ENTRIES as u32);
            let from = (self.cookie, self.last);
            let reply = tree.client.readdir(&tree.context, self.dir, from, most, true);
            let reply = reply.map_err(tree.about(&self.path))?;
            self.last = reply.last;
            self.end = reply.end || reply.entries.is_empty();
            self.cookie = reply.entries.last().map_or(self.cookie, |entry| entry.cookie);
            for entry in reply.entries {
                let name = entry.name.0;
                if name == b"." || name == b".." {
                    continue;
                }
                let path = child(&self.path, &name);
                let attr = match entry.attr {
                    Some(attr) => attr,
                    None => match tree.find(&path, false) {
                        // Removed since the directory was read.
                        Err(e) if e.kind == ErrorKind::NotFound => continue,
                        found => found.map_err(tree.about(&path))?,
                    },
                };
                if attr.kind == FileKind::Directory {
                    tree.remember(&path, attr.file);
                }
                page.push((name, meta(&attr)));
            }
        }
        Ok(page)
    }
}

impl Tree for RemoteTree {
    fn shown(&self, path: &[u8]) -> String {
        RemoteTree::shown(self, path)
    }

    fn stat(&self, path: &[u8], follow: bool) -> Done<Option<Meta>> {
        match self.find(path, follow) {
            Ok(attr) => Ok(Some(meta(&attr))),
            Err(e) if e.kind == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.about(path)(e)),
        }
    }

    fn real_path(&self, path: &[u8]) -> Done<Vec<u8>> {
        let mut here = path.to_vec();
        // The kernel follows as many links.
        for _ in 0..40 {
            match self.stat(&here, false)? {
                Some(found) if found.kind == FileKind::Symlink => {}
                _ => break,
            }
            let target = self.read_link(&here)?;
            here = match (target.first(), split(&here)) {
                (Some(b'/'), _) | (_, None) => target,
                (_, Some((dir, _))) => child(dir, &target),
            };
        }
        Ok(here)
    }

    fn pages(self: Arc<Self>, path: &[u8], follow: bool) -> Done<Box<dyn Pages>> {
        let dir = self.attr(path, follow)?.file;
        let path = path.to_vec();
        Ok(Box::new(RemotePages { tree: self, path, dir, cookie: 0, last: 0, end: false }))
    }

    fn make_dir(&self, path: &[u8], mode: u16) -> Done {
        let (parent, name) = self.parent(path)?;
        let made = self.client.mkdir(&self.context, parent, name, mode);
        self.remember(path, made.map_err(self.about(path))?.file);
        Ok(())
    }

    fn read_link(&self, path: &[u8]) -> Done<Vec<u8>> {
        let link = self.attr(path, false)?.file;
        self.client.readlink(&self.context, link).map_err(self.about(path))
    }

    fn make_link(&self, path: &[u8], target: &[u8]) -> Done {
        let (parent, name) = self.parent(path)?;
        let made = self.client.symlink(&self.context, parent, name, target);
        made.map(drop).map_err(self.about(path))
    }

    fn make_node(&self, path: &[u8], meta: &Meta, mode: u16) -> Done {
        let (parent, name) = self.parent(path)?;
        let made = self.client.mknod(&self.context, parent, name, meta.kind, (mode, 0), meta.rdev);
        made.map(drop).map_err(self.about(path))
    }

    fn link(&self, path: &[u8], new: &[u8]) -> Done {
        let file = self.attr(path, false)?.file;
        let (parent, name) = self.parent(new)?;
        let made = self.client.link(&self.context, file, parent, name);
        made.map(drop).map_err(self.about(new))
    }

    fn rename(&self, path: &[u8], new: &[u8]) -> Done {
        let (parent, name) = self.parent(path)?;
        let (new_parent, new_name) = self.parent(new)?;
        let request = RenameRequest {
            parent,
            name: name.into(),
            new_parent,
            new_name: new_name.into(),
            no_replace: false,
            exchange: false,
            whiteout: false,
            hold: false,
        };
        self.client.rename(&self.context, &request).map_err(self.about(new))
    }

    fn remove(&self, path: &[u8]) -> Done {
        let (parent, name) = self.parent(path)?;
        self.client.unlink(&self.context, parent, name).map(drop).map_err(self.about(path))
    }

    fn open(&self, path: &[u8], listed: Option<(u64, u64)>) -> Done<Box<dyn Source>> {
        let (file, _) = match listed {
            None => self.open_file(path, Rights::READ)?,
            Some(listed) => {
                let attr = self.attr(path, false)?;
                if attr.kind != FileKind::File || (0, attr.file.0) != listed {
                    return Err(Failure::new("was replaced while being copied")
                        .about(RemoteTree::shown(self, path)));
                }
                let opened = self.client.open(&self.context, attr.file, Rights::READ);
                opened.map_err(self.about(path))?
            }
        };
        Ok(Box::new(self.handle(path, file)))
    }

    fn create(&self, path: &[u8], making: &Making<'_>) -> Done<Box<dyn Sink>> {
        let (parent, name) = self.parent(path)?;
        let mut options = CreateOptions {
            mode: making.mode,
            exclusive: true,
            layout: making.like.and_then(spec_of),
            ..CreateOptions::default()
        };
        let mut made = self.client.create(&self.context, parent, name, &options);
        if made.as_ref().is_err_and(|e| e.kind == ErrorKind::InvalidArgument) {
            // The cluster has changed, and has no room for such a layout.
            options.layout = None;
            made = self.client.create(&self.context, parent, name, &options);
        }
        let (file, _) = made.map_err(self.about(path))?;
        if !making.locked {
            return Ok(Box::new(self.handle(path, file)));
        }
        // This does not wait: another holder of the lock has taken the file for a leftover.
        match self.locked(path, file, Duration::ZERO)? {
            Some(file) => Ok(Box::new(file)),
            None => Err(Failure::new("was taken over by another copy").about(self.shown(path))),
        }
    }

    fn open_node(&self, path: &[u8]) -> Done<Box<dyn Sink>> {
        Err(Failure::new("only a mount can write to devices and pipes").about(self.shown(path)))
    }

    fn take_over(&self, path: &[u8], take: Take) -> Done<Option<Box<dyn Sink>>> {
        let patience = if take == Take::Remove { Duration::ZERO } else { LOCK_PATIENCE };
        let attr = match self.find(path, false) {
            Ok(attr) => attr,
            Err(e) if matches!(e.kind, ErrorKind::NotFound | ErrorKind::Stale) => return Ok(None),
            Err(e) => return Err(self.about(path)(e)),
        };
        let is_plain = attr.kind == FileKind::File;
        let is_ours = || Ok::<_, Failure>(attr.nlink == 1 && attr.uid == self.owner(path)?);
        if !is_plain || !(take == Take::Fill || is_ours()?) {
            return Ok(None);
        }
        match self.client.open(&self.context, attr.file, Rights::READ_WRITE) {
            Ok((file, _)) => {
                let taken = self.locked(path, file, patience)?;
                Ok(taken.map(|file| -> Box<dyn Sink> { Box::new(file) }))
            }
            Err(e) if e.kind == ErrorKind::AccessDenied && take != Take::Fill => {
                self.remove_finished(path, attr.file, patience).map(|()| None)
            }
            Err(e) if matches!(e.kind, ErrorKind::NotFound | ErrorKind::Stale) => Ok(None),
            Err(e) => Err(self.about(path)(e)),
        }
    }

    fn layout(&self, path: &[u8]) -> Done<Option<FileLayout>> {
        let (file, _) = self.open_file(path, Rights::READ)?;
        Ok(Some(file.layout()))
    }

    fn xattrs(&self, path: &[u8], listed: Option<(u64, u64)>) -> Done<Xattrs> {
        let file = self.attr(path, false)?.file;
        if listed.is_some_and(|listed| listed != (0, file.0)) {
            return Err(Failure::new("was replaced while being copied").about(self.shown(path)));
        }
        self.node(path, file).xattrs()
    }

    fn held(&self, path: &[u8], kind: FileKind) -> Done<Box<dyn Held>> {
        let attr = self.attr(path, false)?;
        if attr.kind != kind {
            return Err(Failure::new("was replaced while it was copied").about(self.shown(path)));
        }
        Ok(Box::new(self.node(path, attr.file)))
    }

    fn sync_all(&self, path: &[u8]) -> Done {
        self.client.sync_metadata(&self.context).map_err(self.about(path))
    }

    fn is(&self, other: &str) -> bool {
        self.identity == other
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn cluster_of(&self, _meta: &Meta) -> Done<Option<ClusterSign>> {
        Ok(Some(self.sign.clone()))
    }
}

/// A lock that is released when the file is closed.
struct HeldLock {
    client: Arc<Client>,
    lock: Lock,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.client.unlock_all(&Context::root(), self.lock.file, self.lock.owner, true);
    }
}

struct RemoteFile {
    // The fields are dropped in this order: locks are held through open files.
    lock: Option<HeldLock>,
    file: File,
    node: RemoteNode,
}

impl RemoteFile {
    fn failed(&self, error: Error) -> Failure {
        self.node.failed(error)
    }
}

impl Held for RemoteFile {
    fn identity(&self) -> Done<(u64, u64)> {
        self.node.identity()
    }

    fn set_meta(&self, meta: &Meta, keep: Keep) -> Done<bool> {
        self.node.set_meta(meta, keep)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Done<bool> {
        self.node.set_xattr(name, value)
    }

    fn remove_xattr(&self, name: &[u8]) -> Done {
        self.node.remove_xattr(name)
    }
}

impl Source for RemoteFile {
    fn in_cluster(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Done<usize> {
        self.file.read_at(&self.node.context, offset, buffer).map_err(|e| self.failed(e))
    }

    fn size(&self) -> Done<u64> {
        Ok(self.file.size())
    }

    fn next_data(&self, offset: u64) -> Done<Option<Range<u64>>> {
        let size = self.file.size();
        if size <= SMALL_BYTES {
            return Ok((offset < size).then_some(offset..size));
        }
        let find = || {
            let Some(start) = self.file.next_data(&self.node.context, offset)? else {
                return Ok(None);
            };
            let end = self.file.next_hole(&self.node.context, start)?;
            Ok(end.map(|end| start..end))
        };
        find().map_err(|e| self.failed(e))
    }

    fn xattrs(&self) -> Done<Xattrs> {
        self.node.xattrs()
    }
}

impl Sink for RemoteFile {
    fn relock(&self) -> Done {
        let Some(held) = &self.lock else { return Ok(()) };
        match held.client.set_lock(&self.node.context, &held.lock, LockWait::No) {
            Err(e) if e.kind == ErrorKind::WouldBlock => {
                Err(Failure::new("was taken over by another copy").about(&self.node.name))
            }
            done => done.map_err(|e| self.failed(e)),
        }
    }

    fn copy_at(&self, source: &dyn Source, offset: u64, len: u64) -> Done<Option<u64>> {
        let Some(from) = source.in_cluster() else { return Ok(None) };
        match from.copy_range(&self.node.context, offset, &self.file, offset, len) {
            Ok(n) => Ok(Some(n)),
            // The files belong to two sessions: of two clusters, or of two keys.
            Err(e) if e.kind == ErrorKind::CrossDevice => Ok(None),
            Err(e) => Err(self.failed(e)),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Done {
        self.file.write_at(&self.node.context, offset, bytes).map_err(|e| self.failed(e))
    }

    fn clear(&self, range: Range<u64>) -> Done {
        let len = range.end - range.start;
        self.file.punch(&self.node.context, range.start, len).map_err(|e| self.failed(e))
    }

    fn set_size(&self, size: u64) -> Done {
        self.file.truncate(&self.node.context, size).map(drop).map_err(|e| self.failed(e))
    }

    fn finish(&self) -> Done {
        self.file.flush(&self.node.context).map_err(|e| self.failed(e))
    }

    fn sync(&self) -> Done {
        self.file.sync(&self.node.context).map_err(|e| self.failed(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{Column, Duplication, Epoch, Scheme, SegmentIndex, TargetId};

    #[test]
    fn the_spec_of_a_layout_lays_out_the_same_again() {
        let column = |first: u32| Column { targets: vec![TargetId(first), TargetId(first + 1)] };
        let segment = Segment {
            index: SegmentIndex(0),
            start: 0,
            len: None,
            stripe_unit_bytes: 8192,
            columns: vec![column(2), column(3)],
            scheme: Scheme::Copies,
            state: weir_types::SegmentState::Open,
            epoch: Epoch(1),
            filling: Vec::new(),
            parities: Vec::new(),
        };
        let mut layout = FileLayout {
            kind: LayoutKind::Striped,
            base: 1,
            epoch: Epoch(1),
            duplication: Duplication::Hybrid,
            acting: Duplication::ServerSync,
            placement: Placement::Groups,
            segments: vec![segment],
        };
        let spec = spec_of(&layout).unwrap();
        assert_eq!((spec.base, spec.count, spec.stripe_unit_bytes), (Some(1), 2, 8192));
        assert_eq!((spec.copies, spec.duplication), (2, Some(Duplication::Hybrid)));
        assert_eq!(spec.placement, Placement::Groups);
        layout.segments[0].scheme = Scheme::Coded;
        assert_eq!(spec_of(&layout), None, "it has parities in place of copies");
    }
}
