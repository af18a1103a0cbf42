//! The files of this machine.

use crate::cluster::mounts;
use crate::failure::{Done, Failure};
use crate::files::local_held::{self, LocalNode};
use crate::files::near::Near;
use crate::files::tree::{
    ClusterSign, Held, Keep, Making, Meta, Pages, Sink, Source, Take, Tree, Xattrs,
};
use crate::settings::Cluster;
use rustix::fs::{
    CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, fallocate, flock,
    mknodat, openat, seek, syncfs,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions, ReadDir};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_types::{FileKind, Timestamp};

/// The most entries of a directory that are held in memory at a time.
const PAGE: usize = 1024;

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalTree;

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn failed(bytes: &[u8]) -> impl Fn(io::Error) -> Failure + '_ {
    move |e| Failure::file(path(bytes), e)
}

/// Calls `call` with a path that the system call accepts.
fn with<T>(bytes: &[u8], call: impl FnOnce(&Path) -> io::Result<T>) -> Done<T> {
    Near::new(bytes).and_then(|near| call(near.path())).map_err(failed(bytes))
}

fn meta(m: &std::fs::Metadata) -> Meta {
    Meta {
        kind: FileKind::from_mode(m.mode()).unwrap_or(FileKind::File),
        mode: (m.mode() & 0o7777) as u16,
        uid: m.uid(),
        gid: m.gid(),
        nlink: u32::try_from(m.nlink()).unwrap_or(u32::MAX),
        rdev: packed(m.rdev()),
        size: m.size(),
        atime: Timestamp::new(m.atime(), m.atime_nsec() as u32),
        mtime: Timestamp::new(m.mtime(), m.mtime_nsec() as u32),
        identity: (m.dev(), m.ino()),
    }
}

/// The number of a device, packed into 32 bits as the kernel does (`new_encode_dev`).
fn packed(dev: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}

fn unpacked(dev: u32) -> u64 {
    rustix::fs::makedev((dev >> 8) & 0xfff, (dev & 0xff) | ((dev >> 12) & !0xff))
}

/// The entries of a directory. Its descriptor is closed after the last entry is read, so that only
/// large directories on the path keep one open.
struct LocalPages {
    dir: Vec<u8>,
    rest: Option<ReadDir>,
}

impl Pages for LocalPages {
    fn next(&mut self) -> Done<Vec<(Vec<u8>, Meta)>> {
        let mut page = Vec::new();
        let Some(rest) = &mut self.rest else { return Ok(page) };
        while page.len() < PAGE {
            let Some(entry) = rest.next() else {
                self.rest = None;
                break;
            };
            let entry = entry.map_err(failed(&self.dir))?;
            let name = entry.file_name().as_bytes().to_vec();
            let m = match entry.metadata() {
                // Removed since the directory was read.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                m => m.map_err(failed(&crate::files::name::child(&self.dir, &name)))?,
            };
            page.push((name, meta(&m)));
        }
        Ok(page)
    }
}

impl Tree for LocalTree {
    fn shown(&self, bytes: &[u8]) -> String {
        path(bytes).display().to_string()
    }

    fn stat(&self, bytes: &[u8], follow: bool) -> Done<Option<Meta>> {
        let found = Near::new(bytes).and_then(|near| {
            let path = near.path();
            if follow { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) }
        });
        match found {
            Ok(m) => Ok(Some(meta(&m))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed(bytes)(e)),
        }
    }

    fn real_path(&self, bytes: &[u8]) -> Done<Vec<u8>> {
        match std::fs::canonicalize(path(bytes)) {
            Ok(real) => Ok(real.into_os_string().as_bytes().to_vec()),
            // A link to a file without a name, as in /proc, cannot be replaced.
            Err(e) if e.kind() == io::ErrorKind::NotFound => match std::fs::metadata(path(bytes)) {
                Ok(_) => {
                    Err(Failure::new("leads to a file without a name").about(self.shown(bytes)))
                }
                Err(_) => Ok(bytes.to_vec()),
            },
            Err(e) => Err(failed(bytes)(e)),
        }
    }

    fn pages(self: Arc<Self>, bytes: &[u8], follow: bool) -> Done<Box<dyn Pages>> {
        let rest = Some(with(bytes, |path| match follow {
            true => std::fs::read_dir(path),
            false => read_dir_itself(path),
        })?);
        Ok(Box::new(LocalPages { dir: bytes.to_vec(), rest }))
    }

    fn make_dir(&self, bytes: &[u8], mode: u16) -> Done {
        with(bytes, |path| DirBuilder::new().mode(u32::from(mode)).create(path))
    }

    fn read_link(&self, bytes: &[u8]) -> Done<Vec<u8>> {
        let target = with(bytes, |path| std::fs::read_link(path))?;
        Ok(target.as_os_str().as_bytes().to_vec())
    }

    fn make_link(&self, bytes: &[u8], target: &[u8]) -> Done {
        with(bytes, |near| symlink(path(target), near))
    }

    fn make_node(&self, bytes: &[u8], meta: &Meta, mode: u16) -> Done {
        let kind = FileType::from_raw_mode(meta.kind.mode_bits());
        let mode = Mode::from_raw_mode(u32::from(mode));
        with(bytes, |path| Ok(mknodat(CWD, path, kind, mode, unpacked(meta.rdev))?))
    }

    fn link(&self, bytes: &[u8], new: &[u8]) -> Done {
        with(bytes, |path| Near::new(new).and_then(|new| std::fs::hard_link(path, new.path())))
            .map_err(|failure| failure.about(self.shown(new)))
    }

    fn rename(&self, bytes: &[u8], new: &[u8]) -> Done {
        with(new, |new| Near::new(bytes).and_then(|from| std::fs::rename(from.path(), new)))
    }

    fn remove(&self, bytes: &[u8]) -> Done {
        with(bytes, |path| std::fs::remove_file(path))
    }

    fn open(&self, bytes: &[u8], listed: Option<(u64, u64)>) -> Done<Box<dyn Source>> {
        let Some(listed) = listed else {
            let file = with(bytes, |path| File::open(path))?;
            return Ok(Box::new(LocalFile { file, path: path(bytes).to_owned() }));
        };
        // Opening a pipe does not wait for its other end.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let opened = with(bytes, |path| {
            match OpenOptions::new().read(true).custom_flags(flags).open(path) {
                Err(e) if e.raw_os_error() == Some(libc::ELOOP) => Ok(None),
                opened => opened.map(Some),
            }
        })?;
        if let Some(file) = opened {
            let m = file.metadata().map_err(failed(bytes))?;
            if m.is_file() && (m.dev(), m.ino()) == listed {
                return Ok(Box::new(LocalFile { file, path: path(bytes).to_owned() }));
            }
        }
        Err(Failure::new("was replaced while being copied").about(self.shown(bytes)))
    }

    fn create(&self, bytes: &[u8], making: &Making<'_>) -> Done<Box<dyn Sink>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(u32::from(making.mode));
        let file = with(bytes, |path| options.open(path))?;
        // The lock costs nothing here, so it is taken for every file. Some file systems have no
        // locks.
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                Err(Failure::new("is locked by another program").about(self.shown(bytes)))
            }
            _ => Ok(Box::new(LocalFile { file, path: path(bytes).to_owned() })),
        }
    }

    fn open_node(&self, bytes: &[u8]) -> Done<Box<dyn Sink>> {
        let file = with(bytes, |path| OpenOptions::new().write(true).open(path))?;
        Ok(Box::new(LocalFile { file, path: path(bytes).to_owned() }))
    }

    fn take_over(&self, bytes: &[u8], take: Take) -> Done<Option<Box<dyn Sink>>> {
        let taken = Near::new(bytes).and_then(|near| take_over(near.path(), take));
        let file = taken.map_err(failed(bytes))?;
        Ok(file.map(|file| -> Box<dyn Sink> {
            Box::new(LocalFile { file, path: path(bytes).to_owned() })
        }))
    }

    fn xattrs(&self, bytes: &[u8], listed: Option<(u64, u64)>) -> Done<Xattrs> {
        let node = Near::new(bytes).and_then(|near| LocalNode::hold(path(bytes), &near));
        let node = node.map_err(failed(bytes))?;
        if let Some(listed) = listed
            && node.identity()? != listed
        {
            return Err(Failure::new("was replaced while being copied").about(self.shown(bytes)));
        }
        node.xattrs().map_err(failed(bytes))
    }

    fn held(&self, bytes: &[u8], kind: FileKind) -> Done<Box<dyn Held>> {
        let node = Near::new(bytes).and_then(|near| LocalNode::hold(path(bytes), &near));
        let node = node.map_err(failed(bytes))?;
        if node.kind().map_err(failed(bytes))? != Some(kind) {
            return Err(Failure::new("was replaced while it was copied").about(self.shown(bytes)));
        }
        Ok(Box::new(node))
    }

    fn sync_all(&self, bytes: &[u8]) -> Done {
        with(bytes, |path| Ok(syncfs(File::open(path)?)?))
    }

    fn is(&self, other: &str) -> bool {
        self.identity() == other
    }

    fn identity(&self) -> String {
        "local".to_owned()
    }

    fn cluster_of(&self, meta: &Meta) -> Done<Option<ClusterSign>> {
        let Some(mount) = mounts::of_device(meta.identity.0)? else { return Ok(None) };
        let Some(cluster) = Cluster::from_source(&mount.source) else { return Ok(None) };
        // Without the right to read the mount's credential, the source alone identifies the
        // cluster.
        let (name, metadata) = match cluster.credential() {
            Ok(credential) => (credential.cluster, credential.metadata),
            Err(_) => (String::new(), Vec::new()),
        };
        Ok(Some(ClusterSign { source: mount.source, name, metadata }))
    }
}

/// Reads a directory. Fails if the path is a symbolic link.
fn read_dir_itself(path: &Path) -> io::Result<ReadDir> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(CWD, path, flags, Mode::empty())?;
    std::fs::read_dir(Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()))
}

/// Opens and locks a leftover of an earlier run.
fn take_over(path: &Path, take: Take) -> io::Result<Option<File>> {
    let open = |write| {
        let mut options = OpenOptions::new();
        options.read(true).write(write).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        options.open(path)
    };
    let may_take = |m: &std::fs::Metadata| {
        let ours = || m.nlink() == 1 && m.uid() == rustix::process::geteuid().as_raw();
        m.is_file() && (take == Take::Fill || ours())
    };
    let is_there = |file: &File| {
        let there = std::fs::symlink_metadata(path);
        let is = file.metadata()?;
        Ok::<_, io::Error>(there.is_ok_and(|m| (m.dev(), m.ino()) == (is.dev(), is.ino())))
    };
    // Without locks it is not known whether a process writes the file.
    let locked = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
    match open(true) {
        Ok(file) if may_take(&file.metadata()?) => {
            // The former holder of the lock may have finished the file meanwhile.
            Ok(if locked(&file) && is_there(&file)? { Some(file) } else { None })
        }
        // The file has its final mode, which does not even let its owner write it. So the copy
        // starts again.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && take != Take::Fill => {
            if !std::fs::symlink_metadata(path).is_ok_and(|m| may_take(&m)) {
                return Ok(None);
            }
            if open(false).map_or(true, |file| locked(&file) && is_there(&file).unwrap_or(false)) {
                std::fs::remove_file(path)?;
            }
            Ok(None)
        }
        Err(e) if take == Take::Fill && e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(None),
    }
}

struct LocalFile {
    file: File,
    path: PathBuf,
}

impl LocalFile {
    fn failed(&self) -> impl Fn(io::Error) -> Failure + '_ {
        move |e| Failure::file(&self.path, e)
    }

    fn seek(&self, to: SeekFrom) -> Done<Option<u64>> {
        match seek(&self.file, to) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(e) => Err(self.failed()(e.into())),
        }
    }
}

impl Source for LocalFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Done<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A pipe or a terminal: the next bytes are read, whatever the offset.
                Err(e) if e.raw_os_error() == Some(libc::ESPIPE) => {
                    return io::Read::read(&mut &self.file, buffer).map_err(self.failed());
                }
                Err(e) => return Err(Failure::file(&self.path, e)),
            }
        }
        Ok(filled)
    }

    fn size(&self) -> Done<u64> {
        Ok(self.file.metadata().map_err(self.failed())?.len())
    }

    fn next_data(&self, offset: u64) -> Done<Option<Range<u64>>> {
        if !self.file.metadata().map_err(self.failed())?.is_file() {
            return Ok(Some(offset..u64::MAX));
        }
        let start = match seek(&self.file, SeekFrom::Data(offset)) {
            // Files of /proc do not report holes.
            Err(Errno::INVAL) => return Ok(Some(offset..u64::MAX)),
            Err(Errno::NXIO) => return Ok(None),
            start => start.map_err(|e| self.failed()(e.into()))?,
        };
        Ok(self.seek(SeekFrom::Hole(start))?.map(|end| start..end))
    }

    fn xattrs(&self) -> Done<Xattrs> {
        local_held::xattrs(&self.file).map_err(self.failed())
    }
}

impl Held for LocalFile {
    fn identity(&self) -> Done<(u64, u64)> {
        local_held::identity(&self.file).map_err(self.failed())
    }

    fn set_meta(&self, meta: &Meta, keep: Keep) -> Done<bool> {
        local_held::set_meta(&self.file, meta, keep).map_err(self.failed())
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Done<bool> {
        local_held::set_xattr(&self.file, name, value).map_err(self.failed())
    }

    fn remove_xattr(&self, name: &[u8]) -> Done {
        local_held::remove_xattr(&self.file, name).map_err(self.failed())
    }
}

impl Sink for LocalFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Done {
        match self.file.write_all_at(bytes, offset) {
            // A pipe or a terminal can only be written at its end.
            Err(e) if e.raw_os_error() == Some(libc::ESPIPE) => {
                io::Write::write_all(&mut &self.file, bytes)
            }
            done => done,
        }
        .map_err(self.failed())
    }

    fn clear(&self, range: Range<u64>) -> Done {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, mode, range.start, range.end - range.start) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(range),
            done => done.map_err(|e| self.failed()(e.into())),
        }
    }

    fn set_size(&self, size: u64) -> Done {
        self.file.set_len(size).map_err(self.failed())
    }

    fn finish(&self) -> Done {
        Ok(())
    }

    fn sync(&self) -> Done {
        self.file.sync_all().map_err(self.failed())
    }
}

impl LocalFile {
    /// Writes zeros, for file systems that cannot make holes.
    fn write_zeros(&self, range: Range<u64>) -> Done {
        let zeros = vec![0; 1 << 20];
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(zeros.len() as u64) as usize;
            self.write_at(at, &zeros[..len])?;
            at += len as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_devices_survive_packing() {
        for (major, minor) in [(1, 3), (8, 255), (259, 65_537), (4095, 0xf_ffff)] {
            let dev = rustix::fs::makedev(major, minor);
            assert_eq!(unpacked(packed(dev)), dev, "{major}:{minor}");
        }
    }

    fn bytes(path: &Path) -> &[u8] {
        path.as_os_str().as_bytes()
    }

    #[test]
    fn a_file_that_is_not_the_one_that_was_listed_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("f");
        std::fs::write(&at, "f").unwrap();
        let listed = LocalTree.stat(bytes(&at), false).unwrap().unwrap().identity;
        assert!(LocalTree.open(bytes(&at), Some(listed)).is_ok());
        let refused = || {
            let failure = LocalTree.open(bytes(&at), Some(listed)).err().unwrap();
            assert!(failure.message.contains("was replaced"), "{}", failure.message);
        };
        std::fs::rename(&at, dir.path().join("g")).unwrap();
        symlink("g", &at).unwrap();
        refused();
        std::fs::remove_file(&at).unwrap();
        mknodat(CWD, &at, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        refused();
        std::fs::remove_file(&at).unwrap();
        std::fs::write(&at, "another").unwrap();
        refused();
    }

    #[test]
    fn attributes_are_those_of_the_file_that_was_listed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let give = |name: &str, value: &str| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(at(name), "user.of", value.as_bytes(), flags)
        };
        for name in ["file", "other", "secret"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::fs::create_dir(at("dir")).unwrap();
        for name in ["file", "other", "secret", "dir"] {
            // The file system does not support such attributes, so there is nothing to test.
            if give(name, name) == Err(Errno::OPNOTSUPP) {
                return;
            }
        }
        let of = |name: &str| vec![(b"user.of".to_vec(), name.as_bytes().to_vec())];
        let listed =
            |name: &str| LocalTree.stat(bytes(&at(name)), false).unwrap().unwrap().identity;
        let (file, listed_dir) = (listed("file"), listed("dir"));
        assert_eq!(LocalTree.xattrs(bytes(&at("dir")), Some(listed_dir)).unwrap(), of("dir"));
        // Attributes are read from the open file, even if another file has its name.
        let open = LocalTree.open(bytes(&at("file")), Some(file)).unwrap();
        std::fs::rename(at("other"), at("file")).unwrap();
        assert_eq!(open.xattrs().unwrap(), of("file"));
        std::fs::rename(at("dir"), at("moved")).unwrap();
        symlink("secret", at("dir")).unwrap();
        for (name, listed) in [("file", file), ("dir", listed_dir)] {
            let failure = LocalTree.xattrs(bytes(&at(name)), Some(listed)).unwrap_err();
            assert!(failure.message.contains("was replaced"), "{}", failure.message);
        }
        // A link has none of the attributes of its target.
        assert_eq!(LocalTree.xattrs(bytes(&at("dir")), None).unwrap(), Vec::new());
    }

    #[test]
    fn what_has_a_mode_by_which_it_cannot_be_written_is_begun_anew() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("left");
        std::fs::write(&at, "left").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o444);
        std::fs::set_permissions(&at, mode).unwrap();
        for path in [dir.path(), &at] {
            std::os::unix::fs::chown(path, Some(4321), None).unwrap();
        }
        let user = std::thread::spawn(move || {
            let uid = rustix::fs::Uid::from_raw(4321);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            // Not while another process holds it.
            let held = File::open(&at).unwrap();
            flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
            assert!(LocalTree.take_over(bytes(&at), Take::GoOn).unwrap().is_none());
            assert!(at.exists());
            drop(held);
            assert!(LocalTree.take_over(bytes(&at), Take::GoOn).unwrap().is_none());
            assert!(!at.exists());
        });
        user.join().unwrap();
    }
}
