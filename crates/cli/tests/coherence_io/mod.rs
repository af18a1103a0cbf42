//! Two mounts of one cluster, and ways to read and write past each kind of cache.

use crate::harness::{Cluster, Place};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Two mounts of one cluster.
pub struct Two<'a> {
    pub cluster: Cluster<'a>,
    pub a: PathBuf,
    pub b: PathBuf,
}

/// Mounts a new cluster twice, with the same options.
pub fn two<'a>(place: &'a Place, name: &str, options: &str) -> Two<'a> {
    let cluster = place.up(name, &["--targets", "2"]);
    let a = cluster.mount("a", options);
    let b = cluster.mount("b", options);
    Two { cluster, a, b }
}

/// The same, where a lease lapses after 40 s, and a call that is not answered ends after 60 s: what
/// takes less than [`LONG`] has waited for neither, however busy the machine is.
pub fn two_patient<'a>(place: &'a Place, name: &str) -> Two<'a> {
    let cluster = place.up(name, &["--targets", "2"]);
    cluster.set_meta(&[("session_timeout_ms", 60_000), ("lease_ms", 40_000), ("grace_ms", 40_000)]);
    let a = cluster.mount("a", "timeout=60");
    let b = cluster.mount("b", "timeout=60");
    Two { cluster, a, b }
}

/// See [`two_patient`].
pub const LONG: Duration = Duration::from_secs(35);

/// Opens for reading and writing; makes the file if need be.
pub fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// The same, past the page cache.
pub fn open_direct(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

/// All that can be read from a descriptor.
pub fn read_all(file: &File) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read_at(&mut buffer, all.len() as u64).unwrap();
        if n == 0 {
            return all;
        }
        all.extend_from_slice(&buffer[..n]);
    }
}

/// A shared mapping of a file's beginning.
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

impl Mapping {
    pub fn new(file: &File, len: usize) -> Self {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start =
            unsafe { mmap(std::ptr::null_mut(), len, both, MapFlags::SHARED, file, 0) }.unwrap();
        Self { start: start.cast(), len }
    }

    pub fn get(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: within the mapping, and the file is as long. Other processes
        // change it: hence volatile.
        unsafe { self.start.add(at).read_volatile() }
    }

    pub fn set(&self, at: usize, value: u8) {
        assert!(at < self.len);
        // SAFETY: as above.
        unsafe { self.start.add(at).write_volatile(value) }
    }

    pub fn sync(&self) {
        // SAFETY: exactly the mapping.
        unsafe { msync(self.start.cast(), self.len, MsyncFlags::SYNC) }.unwrap();
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`, which nobody uses any more.
        let _ = unsafe { munmap(self.start.cast(), self.len) };
    }
}

/// Memory that O_DIRECT can work with.
#[repr(align(4096))]
pub struct Block(pub [u8; 4096]);

impl Block {
    pub fn of(value: u8) -> Box<Self> {
        Box::new(Self([value; 4096]))
    }
}

pub fn next_data(file: &File, from: u64) -> Option<u64> {
    seek(file, SeekFrom::Data(from)).ok()
}

pub fn next_hole(file: &File, from: u64) -> Option<u64> {
    seek(file, SeekFrom::Hole(from)).ok()
}

pub fn punch(file: &File, from: u64, len: u64) {
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, len).unwrap();
}

/// One line of an append log: who, which, and a filler that makes lengths odd.
pub fn line(writer: usize, number: usize) -> Vec<u8> {
    let filler = (writer * 7 + number * 13) % 90;
    format!("{writer}:{number}:{}\n", "x".repeat(filler)).into_bytes()
}

/// The lines of each writer in a log, which has to consist of such lines only (the
/// last may be there in part).
pub fn lines(bytes: &[u8], writers: usize) -> Vec<Vec<usize>> {
    let mut found = vec![Vec::new(); writers];
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    assert!(
        !bytes.contains(&0),
        "zeros within the size, at {:?}",
        bytes.iter().position(|b| *b == 0)
    );
    for one in bytes[..whole].split_inclusive(|b| *b == b'\n') {
        let text = std::str::from_utf8(one).unwrap();
        let mut words = text.split(':');
        let mut number = || words.next().and_then(|w| w.parse::<usize>().ok());
        let (Some(writer), Some(n)) = (number(), number()) else { panic!("torn: {text:?}") };
        assert_eq!(one, line(writer, n), "torn: {text:?}");
        found[writer].push(n);
    }
    found
}
