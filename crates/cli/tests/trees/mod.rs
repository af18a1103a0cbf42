//! Trees of files that copying programs stumble over, and all that can be seen of a tree.

use crate::harness::noise;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags, lsetxattr, makedev,
    mkdirat, mknodat, openat, utimensat,
};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use weir_types::checksum::crc32c;

/// Directories below each other in [`deep`], each with a name of 100 bytes.
const DEPTH: usize = 600;

/// All that can be seen of a file, but for its access time and number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub kind: FileType,
    pub mode: u32,
    pub owner: (u32, u32),
    pub size: u64,
    pub mtime: (i64, i64),
    pub rdev: u64,
    /// Checksum of the bytes, or of what a link says.
    pub bytes: u32,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first of its names.
    pub first_name: Vec<u8>,
}

/// A tree by the paths of its files from its root.
pub type Snapshot = BTreeMap<Vec<u8>, Seen>;

/// A directory by its path from a root, which may be longer than any call takes; everything in
/// it can be named by this path.
fn enter(root: &Path, dir: &[u8]) -> (OwnedFd, PathBuf) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, root, flags, Mode::empty()).unwrap();
    let names: Vec<&[u8]> = dir.split(|b| *b == b'/').filter(|name| !name.is_empty()).collect();
    for names in names.chunks(15) {
        at = openat(&at, names.join(&b'/').as_slice(), flags, Mode::empty()).unwrap();
    }
    let path = PathBuf::from(format!("/proc/self/fd/{}", at.as_raw_fd()));
    (at, path)
}

/// Looks at a whole tree. What `is_left_out` says of its name is left out.
pub fn snapshot(root: &Path, is_left_out: impl Fn(&[u8]) -> bool) -> Snapshot {
    let mut all = Snapshot::new();
    let mut first = BTreeMap::new();
    let mut dirs = vec![Vec::new()];
    while let Some(dir) = dirs.pop() {
        let (_open, here) = enter(root, &dir);
        let names = fs::read_dir(&here).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        for name in names.iter().filter(|name| !is_left_out(name.as_bytes())) {
            let path = [dir.as_slice(), b"/", name.as_bytes()].concat();
            let seen = see(&here.join(name));
            if seen.kind == FileType::Directory {
                dirs.push(path.clone());
            }
            all.insert(path, seen);
        }
    }
    // By number, in the order of the paths.
    for (path, seen) in &mut all {
        let number = std::mem::take(&mut seen.first_name);
        seen.first_name = first.entry(number).or_insert_with(|| path.clone()).clone();
    }
    all
}

fn see(path: &Path) -> Seen {
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = FileType::from_raw_mode(meta.mode());
    let bytes = match kind {
        FileType::RegularFile => crc32c_of(&File::open(path).unwrap()),
        FileType::Symlink => crc32c(fs::read_link(path).unwrap().as_os_str().as_bytes()),
        _ => 0,
    };
    Seen {
        kind,
        mode: meta.mode() & 0o7777,
        owner: (meta.uid(), meta.gid()),
        size: if kind == FileType::Directory { 0 } else { meta.size() },
        mtime: (meta.mtime(), meta.mtime_nsec()),
        rdev: meta.rdev(),
        bytes,
        xattrs: xattrs(path),
        first_name: format!("{} {}", meta.dev(), meta.ino()).into_bytes(),
    }
}

fn crc32c_of(file: &File) -> u32 {
    let mut buffer = vec![0; 1 << 20];
    let (mut offset, mut sum) = (0, 0);
    loop {
        match file.read_at(&mut buffer, offset).unwrap() {
            0 => return sum,
            n => {
                sum = crc32c(&[&sum.to_le_bytes(), &buffer[..n]].concat());
                // Reads of another length would give another sum.
                assert!(n == buffer.len() || offset + n as u64 == file.metadata().unwrap().len());
                offset += n as u64;
            }
        }
    }
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut list = vec![0; 65_536];
    let len = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or(0);
    let names = list[..len]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty() && !name.starts_with(b"security.selinux"));
    let value = |name: &[u8]| {
        let mut value = vec![0; 65_536];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(len);
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

/// The first difference of two trees in words.
#[track_caller]
pub fn assert_same(a: &Snapshot, b: &Snapshot) {
    let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    for (path, seen) in a {
        let other = b.get(path).unwrap_or_else(|| panic!("{} is missing", shown(path)));
        assert_eq!(seen, other, "{}", shown(path));
    }
    let more = b.keys().find(|path| !a.contains_key(*path));
    assert!(more.is_none(), "{} is too much", more.map(|path| shown(path)).unwrap_or_default());
}

/// Sets times that no clock gives.
fn set_times(path: &Path, seconds: i64, nanos: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Makes a tree of everything that is awkward. As root.
pub fn awkward(root: &Path) {
    fs::create_dir(root).unwrap();
    holes(&root.join("holes"));
    names(&root.join("names"));
    special(&root.join("special"));
    attributes(&root.join("attributes"));
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    // More than a page of entries, of 0 to 2 blocks.
    for i in 0..1500 {
        fs::write(many.join(format!("{i}")), noise(i * 7 % 9000, i as u64)).unwrap();
    }
    // After what was made in them.
    set_times(&many, -1_000_000_000, 999_999_999);
    set_times(root, 4_000_000_000, 1);
}

fn holes(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let sparse = |name: &str, data: &[(u64, usize)], size: u64| {
        let file = File::create(dir.join(name)).unwrap();
        for (at, len) in data {
            file.write_all_at(&noise(*len, *at + 1), *at).unwrap();
        }
        file.set_len(size).unwrap();
    };
    sparse("nothing but a hole", &[], (70 << 20) + 3);
    sparse("hole at the end", &[(0, 5000)], 80 << 20);
    sparse("hole at the beginning", &[(150 << 20, 12_345)], (150 << 20) + 12_345);
    sparse("islands", &[(1 << 20, 1), (66 << 20, 70_000), (130 << 20, 4096)], 200 << 20);
    fs::write(dir.join("empty"), "").unwrap();
    fs::write(dir.join("odd"), noise(5_000_001, 9)).unwrap();
}

fn names(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for byte in (1..=255u8).filter(|byte| *byte != b'/') {
        let name = [b'n', byte];
        fs::write(dir.join(std::ffi::OsStr::from_bytes(&name)), [byte]).unwrap();
    }
    for name in [" ", "-r", "weir:", "*", "x".repeat(255).as_str(), "...", "~"] {
        fs::write(dir.join(name), name).unwrap();
    }
}

fn special(dir: &Path) {
    fs::create_dir_all(dir.join("other")).unwrap();
    fs::write(dir.join("b first"), noise(100_000, 1)).unwrap();
    fs::hard_link(dir.join("b first"), dir.join("c second")).unwrap();
    fs::hard_link(dir.join("b first"), dir.join("other/third")).unwrap();
    fs::hard_link(dir.join("b first"), dir.parent().unwrap().join("zz outside")).unwrap();
    symlink("b first", dir.join("link")).unwrap();
    fs::hard_link(dir.join("link"), dir.join("other/link of two names")).unwrap();
    symlink("/no/such/file", dir.join("dangling")).unwrap();
    symlink("x/".repeat(2000), dir.join("long link")).unwrap();
    set_times(&dir.join("link"), 1_000_000_000, 123_456_789);
    lchown(dir.join("dangling"), Some(12), Some(34)).unwrap();
    let node = |name: &str, kind, dev| {
        mknodat(CWD, dir.join(name), kind, Mode::from_raw_mode(0o640), dev).unwrap();
        set_times(&dir.join(name), 1_234_567_890, 5);
    };
    node("pipe", FileType::Fifo, 0);
    node("null", FileType::CharacterDevice, makedev(1, 3));
    node("disk", FileType::BlockDevice, makedev(259, 70_000));
    drop(UnixListener::bind(short(&dir.join("socket")).1).unwrap());
}

/// A path that is short enough for a socket.
fn short(path: &Path) -> (OwnedFd, PathBuf) {
    let (fd, dir) = enter(path.parent().unwrap(), b"");
    let path = dir.join(path.file_name().unwrap());
    (fd, path)
}

fn attributes(dir: &Path) {
    fs::create_dir_all(dir.join("setgid")).unwrap();
    fs::create_dir(dir.join("closed")).unwrap();
    fs::write(dir.join("closed/in it"), "x").unwrap();
    let file = |name: &str, mode: u32, owner: u32| {
        fs::write(dir.join(name), name).unwrap();
        lchown(dir.join(name), Some(owner), Some(owner + 1)).unwrap();
        fs::set_permissions(dir.join(name), Permissions::from_mode(mode)).unwrap();
    };
    file("nobody reads", 0o000, 0);
    file("setuid", 0o4755, 1234);
    file("setgid file", 0o2711, 4_000_000_000);
    file("with attributes", 0o444, 5);
    let set = |path: &Path, name: &str, value: &[u8]| {
        lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
    };
    set(&dir.join("with attributes"), "user.empty", b"");
    set(&dir.join("with attributes"), "user.bytes", &noise(1000, 4));
    set(&dir.join("with attributes"), "trusted.weir-test", b"\0");
    set(&dir.join("setgid"), "user.dir", b"d");
    // A change of owner takes it away: version 2, effective, CAP_NET_BIND_SERVICE permitted.
    file("with capabilities", 0o755, 6);
    let mut capability = [0; 20];
    (capability[0], capability[3], capability[5]) = (1, 2, 4);
    set(&dir.join("with capabilities"), "security.capability", &capability);
    set_times(&dir.join("with attributes"), 0, 1);
    fs::set_permissions(dir.join("closed"), Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(dir.join("setgid"), Permissions::from_mode(0o3777)).unwrap();
    set_times(&dir.join("closed"), 1_600_000_000, 700);
}

/// Makes directories so deep that no call takes the path, with a file at the bottom.
pub fn deep(root: &Path) {
    fs::create_dir(root).unwrap();
    let (mut at, _) = enter(root, b"");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    for level in 0..DEPTH {
        let name = format!("{level:0>100}");
        mkdirat(&at, name.as_str(), Mode::from_raw_mode(0o755)).unwrap();
        at = openat(&at, name.as_str(), flags, Mode::empty()).unwrap();
    }
    let bottom = PathBuf::from(format!("/proc/self/fd/{}/bottom", at.as_raw_fd()));
    fs::write(&bottom, noise(10_001, 3)).unwrap();
    symlink("bottom", bottom.with_file_name("link")).unwrap();
    fs::hard_link(&bottom, bottom.with_file_name("same")).unwrap();
}

/// Bytes that a file takes on the disk.
pub fn allocated(path: &Path) -> u64 {
    OpenOptions::new().read(true).open(path).unwrap().metadata().unwrap().blocks() * 512
}

/// How many entries are in a directory and below it.
pub fn count(dir: &Path) -> usize {
    match fs::read_dir(dir) {
        Ok(entries) => entries
            .flatten()
            .map(|entry| 1 + if entry.path().is_dir() { count(&entry.path()) } else { 0 })
            .sum(),
        Err(_) => 0,
    }
}
