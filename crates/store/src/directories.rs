//! The directories that hold object files, and a record of which of them have entries that are not
//! durable yet.
//!
//! The path of an object derives from its ids alone (`objects/<hash of the file id>/f<file
//! id>.<segment>.<column>.<copy>`), so no request can name a file elsewhere (PVFS, paper 0: the
//! local file name derives from the manager's inode number).

use crate::site::Site;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_host::fs::{Directory, Entries, File, OpenHow};
use weir_types::{
    ColumnIndex, CopyIndex, Error, ErrorKind, FileId, ObjectId, Result, SegmentIndex,
};

/// Number of hash directories under `objects/`. Their names are three hexadecimal digits.
pub const HASH_DIRECTORIES: usize = 4096;

/// Counts the changes of one directory. Changes up to `synced` are durable.
#[derive(Default)]
struct Changes {
    made: AtomicU64,
    synced: AtomicU64,
}

/// Up to this many directories are synced one by one; for more, the whole file system is synced.
const MAX_SINGLE_SYNCS: usize = 16;

/// The `objects` directory of a target.
pub(crate) struct Directories {
    site: Arc<Site>,
    /// The target directory. Its superblock shows that the disk is still mounted.
    target: Directory,
    root: Directory,
    /// One counter for each hash directory, and a last one for `objects` itself.
    changes: Box<[Changes]>,
}

/// The hash directory of a file's objects. Fibonacci hashing spreads neighbouring ids evenly.
pub(crate) fn hash_directory(file: FileId) -> usize {
    (file.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize
}

/// The path of an object's file relative to `objects`.
pub(crate) fn path(id: ObjectId) -> String {
    format!("{:03x}/f{id}", hash_directory(id.file))
}

/// Parses the name of an object's file, the exact inverse of how names are formatted. Returns
/// `None` for any other spelling.
pub(crate) fn parse_name(name: &str) -> Option<ObjectId> {
    let mut parts = name.strip_prefix('f')?.split('.');
    let id = ObjectId {
        file: FileId(u64::from_str_radix(parts.next()?, 16).ok()?),
        segment: SegmentIndex(parts.next()?.parse().ok()?),
        column: ColumnIndex(parts.next()?.parse().ok()?),
        copy: CopyIndex(parts.next()?.parse().ok()?),
    };
    (format!("f{id}") == name).then_some(id)
}

impl Directories {
    /// Takes the open `objects` directory of `target` as `root`. All its entries must be durable.
    pub(crate) fn new(site: Arc<Site>, target: Directory, root: Directory) -> Self {
        let changes = (0..=HASH_DIRECTORIES).map(|_| Changes::default()).collect();
        Self { site, target, root, changes }
    }

    /// Opens the file of an object. With `create`, makes the file and its directory if they are
    /// missing; the caller then calls [`Directories::note_made`]. Returns `None` if there is no
    /// file. The flag is set if the file is open for reading only because its disk has become
    /// read-only.
    pub(crate) fn open(&self, id: ObjectId, create: bool) -> Result<Option<(File, bool)>> {
        let path = path(id);
        let result = if create {
            match self.root.open_file(&path, OpenHow::CREATE) {
                Err(Errno::NOENT) => {
                    self.check_presence()?;
                    self.make_hash_directory(id.file)?;
                    self.root.open_file(&path, OpenHow::CREATE)
                }
                other => other,
            }
        } else {
            self.root.open_file(&path, OpenHow::WRITE)
        };
        let result = match result {
            Err(Errno::ROFS) if !create => {
                self.root.open_file(&path, OpenHow::READ).map(|file| (file, true))
            }
            other => other.map(|file| (file, false)),
        };
        match result {
            Err(Errno::NOENT) if !create => self.check_presence().map(|()| None),
            Err(Errno::ROFS) => {
                Err(self.site.failed_change(format!("make object {id}"), Errno::ROFS))
            }
            Err(e) => Err(self.site.os_error(format!("open object {id}"), e)),
            Ok(opened) => Ok(Some(opened)),
        }
    }

    /// Records that the file of an object may be new, so that its directory entry has to be synced
    /// with it.
    pub(crate) fn note_made(&self, id: ObjectId) {
        self.note_change(hash_directory(id.file));
    }

    /// Removes the file of an object, if there is one.
    pub(crate) fn unlink(&self, id: ObjectId) -> Result<()> {
        match self.root.unlink(&path(id)) {
            Ok(()) => {
                self.note_change(hash_directory(id.file));
                Ok(())
            }
            Err(Errno::NOENT) => self.check_presence(),
            Err(e) => Err(self.site.failed_change(format!("remove object {id}"), e)),
        }
    }

    /// The names in a hash directory; `None` if there is no such directory.
    pub(crate) fn entries(&self, hash: usize) -> Result<Option<Entries>> {
        let name = format!("{hash:03x}");
        match self.root.open_directory(&name).and_then(|dir| dir.entries()) {
            Ok(entries) => Ok(Some(entries)),
            Err(Errno::NOENT) => self.check_presence().map(|()| None),
            Err(e) => Err(self.failed_listing(&name, e)),
        }
    }

    /// The existing hash directories in ascending order, and the names of all other entries of
    /// `objects`.
    pub(crate) fn hashes(&self) -> Result<(Vec<usize>, Vec<String>)> {
        let failed = |e| self.failed_listing("", e);
        let (mut hashes, mut strangers) = (Vec::new(), Vec::new());
        for name in self.root.entries().map_err(failed)? {
            let name = String::from_utf8_lossy(&name.map_err(failed)?).into_owned();
            match usize::from_str_radix(&name, 16) {
                Ok(hash) if format!("{hash:03x}") == name && hash < HASH_DIRECTORIES => {
                    hashes.push(hash);
                }
                _ => strangers.push(name),
            }
        }
        self.check_presence()?;
        hashes.sort_unstable();
        strangers.sort_unstable();
        Ok((hashes, strangers))
    }

    /// The objects of a hash directory in ascending order. Other files are left out.
    pub(crate) fn objects(&self, hash: usize) -> Result<Vec<ObjectId>> {
        let mut ids = Vec::new();
        for name in self.entries(hash)?.into_iter().flatten() {
            let name = name.map_err(|e| self.failed_listing(&format!("{hash:03x}"), e))?;
            let id = std::str::from_utf8(&name).ok().and_then(parse_name);
            ids.extend(id.filter(|id| hash_directory(id.file) == hash));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// The length of a file in a hash directory; `None` if there is none.
    pub(crate) fn file_bytes(&self, path: &str) -> Result<Option<u64>> {
        match self.root.stat(path) {
            Ok(stat) => Ok(Some(stat.size)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.failed_listing(path, e)),
        }
    }

    pub(crate) fn failed_listing(&self, name: &str, errno: Errno) -> Error {
        self.site.os_error(format!("list objects/{name}"), errno)
    }

    /// The target directory.
    pub(crate) fn target(&self) -> &Directory {
        &self.target
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// Makes the directory entries on the path of an object durable.
    pub(crate) fn sync(&self, id: ObjectId) -> Result<()> {
        self.sync_hash_directory(hash_directory(id.file))?;
        self.sync_one(HASH_DIRECTORIES, "", "objects-directory")
    }

    /// Makes every name in these hash directories durable, and the names of the directories too. An
    /// earlier process may have made or removed any of them.
    pub(crate) fn sync_names(&self, hashes: &[usize]) -> Result<()> {
        for &hash in hashes {
            self.note_change(hash);
            self.sync_hash_directory(hash)?;
        }
        self.note_change(HASH_DIRECTORIES);
        self.sync_one(HASH_DIRECTORIES, "", "objects-directory")
    }

    /// Makes every name that was made or removed durable. `ended` is called after each sync.
    pub(crate) fn sync_changed(&self, ended: &dyn Fn()) -> Result<()> {
        let changed: Vec<usize> = (0..HASH_DIRECTORIES).filter(|&i| self.is_changed(i)).collect();
        if changed.len() > MAX_SINGLE_SYNCS {
            let mark = self.mark();
            self.target
                .sync_file_system("removals")
                .map_err(|e| self.site.failed_sync("sync the file system", e))?;
            self.synced(&mark);
            return Ok(());
        }
        changed.into_iter().try_for_each(|hash| self.sync_hash_directory(hash).map(|()| ended()))
    }

    /// The present counts of changes.
    pub(crate) fn mark(&self) -> Vec<u64> {
        self.changes.iter().map(|c| c.made.load(Ordering::Acquire)).collect()
    }

    /// Records that all changes up to the mark are durable.
    pub(crate) fn synced(&self, mark: &[u64]) {
        for (changes, &made) in self.changes.iter().zip(mark) {
            changes.synced.fetch_max(made, Ordering::AcqRel);
        }
    }

    /// Checks that the directory still belongs to the target. Without this check an unmounted disk
    /// would make every object look removed.
    pub(crate) fn check_presence(&self) -> Result<()> {
        match self.target.stat(crate::superblock::SUPERBLOCK) {
            Ok(_) => Ok(()),
            Err(Errno::NOENT) => {
                let what = "its directory has vanished: it holds no superblock any more";
                let error = self.site.error(ErrorKind::Io, what);
                self.site.take_out_of_service(&error);
                Err(error)
            }
            Err(e) => Err(self.site.os_error("look for the superblock", e)),
        }
    }

    fn make_hash_directory(&self, file: FileId) -> Result<()> {
        let name = format!("{:03x}", hash_directory(file));
        match self.root.make_directory(&name) {
            Ok(()) => self.note_change(HASH_DIRECTORIES),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(self.site.failed_change(format!("make objects/{name}"), e)),
        }
        Ok(())
    }

    fn note_change(&self, directory: usize) {
        self.changes[directory].made.fetch_add(1, Ordering::AcqRel);
    }

    fn is_changed(&self, directory: usize) -> bool {
        let changes = &self.changes[directory];
        changes.synced.load(Ordering::Acquire) < changes.made.load(Ordering::Acquire)
    }

    fn sync_hash_directory(&self, hash: usize) -> Result<()> {
        self.sync_one(hash, &format!("{hash:03x}"), "hash-directory")
    }

    /// Syncs one directory. Two threads may do so at once; neither returns before a sync has ended
    /// that began after its own change.
    fn sync_one(&self, directory: usize, name: &str, site: &'static str) -> Result<()> {
        let changes = &self.changes[directory];
        let made = changes.made.load(Ordering::Acquire);
        if changes.synced.load(Ordering::Acquire) >= made {
            return Ok(());
        }
        let doing = format!("sync objects/{name}");
        let result = match name {
            "" => self.root.sync(site),
            // Without a descriptor nothing is lost.
            _ => self
                .root
                .open_directory(name)
                .map_err(|e| self.site.os_error(&doing, e))?
                .sync(site),
        };
        result.map_err(|e| self.site.failed_sync(&doing, e))?;
        changes.synced.fetch_max(made, Ordering::AcqRel);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_go_both_ways_and_never_leave_the_directory(
            file: u64, segment: u32, column: u16, copy: u8,
        ) {
            let id = ObjectId {
                file: file.into(), segment: segment.into(), column: column.into(), copy: copy.into(),
            };
            let path = path(id);
            let (dir, name) = path.split_once('/').unwrap();
            prop_assert!(dir.len() == 3 && dir.bytes().all(|b| b.is_ascii_hexdigit()));
            prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.'));
            prop_assert!(name.starts_with('f') && name.len() < 64);
            prop_assert_eq!(parse_name(name), Some(id));
        }

        #[test]
        fn only_the_one_spelling_is_a_name(name in "f?[0-9a-fA-F.+ /]{0,20}") {
            if let Some(id) = parse_name(&name) {
                prop_assert_eq!(format!("f{id}"), name);
            }
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        for name in ["f01.0.0.0", "fA.0.0.0", "f1.+0.0.0", "f1.0.0.0.0", "f1.0.0.256", "..", "f"] {
            assert_eq!(parse_name(name), None, "{name}");
        }
        assert!(parse_name("fa.0.0.0").is_some());
    }
}
