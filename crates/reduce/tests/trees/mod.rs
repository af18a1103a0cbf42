//! Test trees of files in directories, and changes to them.
#![allow(dead_code, clippy::unwrap_used)] // Each test program uses its part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, FileTimes};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use weir_reduce::{
    Done, Encoded, Failure, Purpose, Removed, Step, Tree, Verified, Wishes, encode, remove_files,
    verify,
};

/// Directories that hold copies of the same files.
pub struct Dirs {
    root: tempfile::TempDir,
    /// The directories.
    pub dirs: Vec<PathBuf>,
    /// The contents of the files, by path.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Dirs {
    /// Makes `count` directories, and files of the given lengths, each in `copies` of them.
    pub fn new(count: usize, files: usize, copies: usize, len: impl Fn(usize) -> usize) -> Self {
        let root = in_memory();
        let dirs: Vec<PathBuf> = (0..count).map(|i| root.path().join(format!("d{i}"))).collect();
        dirs.iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let mut made = Self { root, dirs, files: BTreeMap::new() };
        for file in 0..files {
            let byte = |at: usize| (at * (2 * file + 1) + (at >> 7) + file * 31) as u8;
            let bytes: Vec<u8> = (0..len(file)).map(byte).collect();
            let path = format!("a{}/b/file-{file}", file % 3);
            // The pair of directories differs from file to file.
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

    /// Copies the whole tree to new directories.
    pub fn duplicate(&self) -> Self {
        let root = in_memory();
        copy(self.root.path(), root.path());
        let dirs = self.dirs.iter().map(|dir| root.path().join(dir.file_name().unwrap()));
        Self { dirs: dirs.collect(), files: self.files.clone(), root }
    }

    /// Empties a directory, as if its disk had been replaced.
    pub fn lose(&self, dir: usize) {
        std::fs::remove_dir_all(&self.dirs[dir]).unwrap();
        std::fs::create_dir(&self.dirs[dir]).unwrap();
    }

    /// Where the copies of a file are.
    pub fn copies(&self, path: &str) -> Vec<PathBuf> {
        self.dirs.iter().map(|dir| dir.join(path)).filter(|path| path.exists()).collect()
    }

    /// The directories that have copies of a file, and the times of these.
    pub fn places(&self, path: &str) -> Vec<(usize, SystemTime)> {
        let at = |i: usize| Some((i, self.dirs[i].join(path).metadata().ok()?.modified().unwrap()));
        (0..self.dirs.len()).filter_map(at).collect()
    }

    /// Puts copies of a file back, with their times, as `rsync -a` does.
    pub fn restore(&self, path: &str, places: &[(usize, SystemTime)]) {
        for (dir, modified) in places {
            self.put(*dir, path, &self.files[path]);
            set_time(&self.dirs[*dir].join(path), *modified);
        }
    }

    /// Checks that every file exists and every copy has its bytes.
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

    /// Bytes of all copies and parities.
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

    /// Encodes with a code; other settings do not delay it.
    pub fn encode(&self, code: &str) -> Encoded {
        let mut tree = self.open(Purpose::Encode);
        encode(&mut tree, code.parse().unwrap(), &Default::default(), &mut quiet).unwrap()
    }

    /// Verifies.
    pub fn verify(&self) -> Verified {
        verify(&self.open(Purpose::Look), &mut quiet).unwrap()
    }

    /// Repairs the tree.
    pub fn repair(&self) -> weir_reduce::Repaired {
        weir_reduce::repair(&mut self.open(Purpose::Repair), &mut quiet).unwrap()
    }
}

/// A directory in memory, if possible, because the tests sync often.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Copies a directory with the times of its files. No other process is started for this: a child
/// would inherit the locks of tests that run in parallel.
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
        set_time(&new, path.metadata().unwrap().modified().unwrap());
    }
}

/// Sets the modification time of a file.
pub fn set_time(path: &Path, modified: SystemTime) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
}

/// A callback that ignores all steps.
pub fn quiet(_: Step) -> Done {
    Ok(())
}

/// Changes a byte without changing the file's time, as a failing disk does.
pub fn rot(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
}

/// Encodes, and cleans sets of which this percentage is removed.
pub fn clean(tree: &Dirs, code: &str, percent: u8) -> Encoded {
    let wishes = Wishes { clean_percent: percent, ..Wishes::default() };
    encode(&mut tree.open(Purpose::Encode), code.parse().unwrap(), &wishes, &mut quiet).unwrap()
}

/// Removes files.
pub fn remove(tree: &mut Dirs, paths: &[String]) -> Removed {
    let files: BTreeSet<String> = paths.iter().cloned().collect();
    let done = remove_files(&mut tree.open(Purpose::Remove), &files, &mut quiet).unwrap();
    paths.iter().for_each(|path| _ = tree.files.remove(path));
    done
}

/// Paths of the files that should exist.
pub fn paths(tree: &Dirs) -> Vec<String> {
    tree.files.keys().cloned().collect()
}

/// Files in the state of all directories whose extensions begin with `part`.
pub fn state(tree: &Dirs, part: &str) -> Vec<PathBuf> {
    let all = tree.dirs.iter().flat_map(|dir| std::fs::read_dir(dir.join(".weir-reduce")).unwrap());
    let all = all.map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|e| e.to_string_lossy().starts_with(part)))
        .collect()
}

/// Checks, for any two lost directories, that all files are restored and no removed file comes
/// back.
pub fn check_any_two(tree: &Dirs) {
    let count = tree.dirs.len();
    for (one, other) in (0..count).flat_map(|i| (0..i).map(move |j| (j, i))) {
        check_two(tree, one, other);
    }
}

/// As [`check_any_two`], for these two directories.
pub fn check_two(tree: &Dirs, one: usize, other: usize) {
    let damaged = tree.duplicate();
    damaged.lose(one);
    damaged.lose(other);
    let repaired = damaged.repair();
    assert_eq!(repaired.left, [], "{one} and {other}");
    damaged.check().unwrap();
    assert_eq!(damaged.verify().findings, [], "{one} and {other}");
    if tree.open(Purpose::Look).usage().other_files == 0 {
        assert_eq!(damaged.stored_bytes(), tree.stored_bytes(), "{one} and {other}");
    }
    let there = |dirs: &Dirs| {
        let open = dirs.open(Purpose::Look);
        (open.usage().files, open.usage().other_files, open.usage().dead_files)
    };
    assert_eq!(there(&damaged), there(tree), "{one} and {other}");
}

/// What happens to one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The work is stopped before it, as by `kill -9`.
    Stopped,
    /// The system refuses this change; later ones succeed.
    Refused,
}

/// Lets `at` changes succeed, then applies `fate` to the next one.
pub fn but(fate: Fate, at: usize) -> impl FnMut(Step) -> Done {
    let mut changes = 0;
    move |step| {
        changes += usize::from(step == Step::Change);
        match fate {
            Fate::Stopped if changes > at => Err(Failure::other("stopped")),
            Fate::Refused if changes == at + 1 && step == Step::Change => {
                Err(Failure::file(Path::new("disk"), std::io::Error::from_raw_os_error(5)))
            }
            _ => Ok(()),
        }
    }
}

/// Pseudorandom numbers from a seed.
pub struct Random(pub u64);

impl Random {
    /// A number below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}
