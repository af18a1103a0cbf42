//! Trees of files in directories, and what may happen to them.
#![allow(dead_code, clippy::unwrap_used)] // Each test program uses its part of it.

use std::collections::BTreeMap;
use std::fs::{File, FileTimes};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weir_reduce::{Done, Encoded, Purpose, Step, Tree, Verified, encode, verify};

/// Directories with the same files.
pub struct Dirs {
    root: tempfile::TempDir,
    /// The directories.
    pub dirs: Vec<PathBuf>,
    /// What is in the files.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Dirs {
    /// `count` directories, and files of some length, each in `copies` of them.
    pub fn new(count: usize, files: usize, copies: usize, len: impl Fn(usize) -> usize) -> Self {
        let root = in_memory();
        let dirs: Vec<PathBuf> = (0..count).map(|i| root.path().join(format!("d{i}"))).collect();
        dirs.iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let mut made = Self { root, dirs, files: BTreeMap::new() };
        for file in 0..files {
            let byte = |at: usize| (at * (2 * file + 1) + (at >> 7) + file * 31) as u8;
            let bytes: Vec<u8> = (0..len(file)).map(byte).collect();
            let path = format!("a{}/b/file-{file}", file % 3);
            // Pairs of directories differ from file to file.
            let step = 1 + file / count % (count - 1).max(1);
            for copy in 0..copies {
                made.put((file + copy * step) % count, &path, &bytes);
            }
            made.files.insert(path, bytes);
        }
        made
    }

    /// Writes a file in a directory.
    pub fn put(&self, dir: usize, path: &str, bytes: &[u8]) {
        let path = self.dirs[dir].join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Copies everything elsewhere.
    pub fn duplicate(&self) -> Self {
        let root = in_memory();
        copy(self.root.path(), root.path());
        let dirs = self.dirs.iter().map(|dir| root.path().join(dir.file_name().unwrap()));
        Self { dirs: dirs.collect(), files: self.files.clone(), root }
    }

    /// Makes a directory empty, as a new disk is.
    pub fn lose(&self, dir: usize) {
        std::fs::remove_dir_all(&self.dirs[dir]).unwrap();
        std::fs::create_dir(&self.dirs[dir]).unwrap();
    }

    /// Where the copies of a file are.
    pub fn copies(&self, path: &str) -> Vec<PathBuf> {
        self.dirs.iter().map(|dir| dir.join(path)).filter(|path| path.exists()).collect()
    }

    /// Every file is there, and every copy is what was written.
    pub fn check(&self) -> Result<(), String> {
        for (path, bytes) in &self.files {
            let copies = self.copies(path);
            if copies.is_empty() {
                return Err(format!("{path} is gone"));
            }
            if let Some(copy) = copies.iter().find(|copy| std::fs::read(copy).unwrap() != *bytes) {
                return Err(format!("{} has other bytes", copy.display()));
            }
        }
        Ok(())
    }

    /// Bytes of all files outside of the state, and of parities.
    pub fn stored_bytes(&self) -> u64 {
        fn bytes(dir: &Path) -> u64 {
            let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
            let sizes = entries.map(|path| match path.is_dir() {
                true => bytes(&path),
                false if path.extension().is_some_and(|e| e == "set") => 0,
                false if ["target", "target-copy", "lock"].iter().any(|n| path.ends_with(n)) => 0,
                false => path.metadata().unwrap().len(),
            });
            sizes.sum()
        }
        self.dirs.iter().map(|dir| bytes(dir)).sum()
    }

    /// Opens the tree.
    pub fn open(&self, purpose: Purpose) -> Tree {
        Tree::open(&self.dirs, purpose).unwrap()
    }

    /// Encodes with a code, and goes on.
    pub fn encode(&self, code: &str) -> Encoded {
        let mut tree = self.open(Purpose::Encode);
        encode(&mut tree, code.parse().unwrap(), &Default::default(), &mut quiet).unwrap()
    }

    /// Verifies.
    pub fn verify(&self) -> Verified {
        verify(&self.open(Purpose::Look), &mut quiet).unwrap()
    }

    /// Repairs, and returns what came of it.
    pub fn repair(&self) -> weir_reduce::Repaired {
        weir_reduce::repair(&mut self.open(Purpose::Repair), &mut quiet).unwrap()
    }
}

/// A directory whose disk is memory, if there is one: much is synced.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Copies all in a directory, with the times of files. No other process is started for it: it
/// would hold locks of tests that run beside.
fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let new = to.join(path.file_name().unwrap());
        if path.is_dir() {
            std::fs::create_dir(&new).unwrap();
            copy(&path, &new);
            continue;
        }
        std::fs::copy(&path, &new).unwrap();
        let modified = path.metadata().unwrap().modified().unwrap();
        let file = File::options().write(true).open(&new).unwrap();
        file.set_times(FileTimes::new().set_modified(modified)).unwrap();
    }
}

/// Watches nothing.
pub fn quiet(_: Step) -> Done {
    Ok(())
}

/// Changes a byte, as a disk does: the file's time stays.
pub fn rot(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
}
