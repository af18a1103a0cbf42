//! The directories that object files lie in, and which of them have entries
//! that are not yet durable.
//!
//! The path of an object derives from its numbers alone
//! (`objects/<hash of the file id>/f<file id>.<segment>.<column>.<copy>`), so no
//! request can name a file elsewhere (PVFS, paper 0: the local file name
//! derives from the manager's inode number).

use crate::site::Site;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, fsync, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_types::{ColumnIndex, CopyIndex, FileId, ObjectId, Result, SegmentIndex};

/// Hash directories under `objects/`, named by three hexadecimal digits.
pub(crate) const HASH_DIRECTORIES: usize = 4096;

/// Changes of one directory, counted: durable up to `synced`.
#[derive(Default)]
struct Changes {
    made: AtomicU64,
    synced: AtomicU64,
}

/// The `objects` directory of a target.
pub(crate) struct Directories {
    pub(crate) site: Site,
    pub(crate) root: OwnedFd,
    /// One for each hash directory, and the last for `objects` itself.
    changes: Box<[Changes]>,
}

/// The hash directory of a file's objects: Fibonacci hashing, so that
/// neighbouring ids spread evenly.
pub(crate) fn hash_directory(file: FileId) -> usize {
    (file.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize
}

/// The path of an object's file relative to `objects`.
fn path(id: ObjectId) -> String {
    format!("{:03x}/f{id}", hash_directory(id.file))
}

/// The object whose file has this name; exactly the inverse of how names are
/// made, so `None` for any other spelling.
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
    /// `root` is the open `objects` directory. Every directory counts as
    /// changed: a predecessor may have died before it synced them.
    pub(crate) fn new(site: Site, root: OwnedFd) -> Self {
        let changes = (0..=HASH_DIRECTORIES)
            .map(|_| Changes { made: AtomicU64::new(1), synced: AtomicU64::new(0) })
            .collect();
        Self { site, root, changes }
    }

    /// Opens the file of an object; makes it, and its directory, if asked to.
    /// `None` when there is none. The flag says that it is open for reading
    /// only, because its disk has become read-only.
    pub(crate) fn open(&self, id: ObjectId, create: bool) -> Result<Option<(OwnedFd, bool)>> {
        let path = path(id);
        let open = |access| {
            let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let open = || openat(&self.root, path.as_str(), flags, Mode::from(0o600));
            rustix::io::retry_on_intr(open)
        };
        let result = if create {
            match open(OFlags::RDWR | OFlags::CREATE) {
                Err(Errno::NOENT) => {
                    self.make_hash_directory(id.file)?;
                    open(OFlags::RDWR | OFlags::CREATE)
                }
                other => other,
            }
            .inspect(|_| self.note_change(hash_directory(id.file)))
        } else {
            open(OFlags::RDWR)
        };
        let result = match result {
            Err(Errno::ROFS) if !create => open(OFlags::RDONLY).map(|file| (file, true)),
            other => other.map(|file| (file, false)),
        };
        match result {
            Err(Errno::NOENT) if !create => Ok(None),
            Err(e) => Err(self.site.os_error(format!("open object {id}"), e)),
            Ok(opened) => Ok(Some(opened)),
        }
    }

    /// Removes the file of an object, if there is one.
    pub(crate) fn unlink(&self, id: ObjectId) -> Result<()> {
        match unlinkat(&self.root, path(id), AtFlags::empty()) {
            Ok(()) => {
                self.note_change(hash_directory(id.file));
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(self.site.os_error(format!("remove object {id}"), e)),
        }
    }

    /// Makes the directory entries that lead to an object durable.
    pub(crate) fn sync(&self, id: ObjectId) -> Result<()> {
        let hash = hash_directory(id.file);
        self.sync_one(hash, &format!("{hash:03x}"))?;
        self.sync_one(HASH_DIRECTORIES, ".")
    }

    fn make_hash_directory(&self, file: FileId) -> Result<()> {
        let name = format!("{:03x}", hash_directory(file));
        match mkdirat(&self.root, name.as_str(), Mode::from(0o700)) {
            Ok(()) => self.note_change(HASH_DIRECTORIES),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(self.site.os_error(format!("make objects/{name}"), e)),
        }
        Ok(())
    }

    fn note_change(&self, directory: usize) {
        self.changes[directory].made.fetch_add(1, Ordering::AcqRel);
    }

    /// Two threads may sync one directory at once; neither returns before a
    /// sync that began after its own change has ended.
    fn sync_one(&self, directory: usize, name: &str) -> Result<()> {
        let changes = &self.changes[directory];
        let made = changes.made.load(Ordering::Acquire);
        if changes.synced.load(Ordering::Acquire) >= made {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match openat(&self.root, name, flags, Mode::empty()).and_then(fsync) {
            Ok(()) => {}
            // Nothing was ever made there (the object was removed meanwhile).
            Err(Errno::NOENT) => {}
            Err(e) => return Err(self.site.os_error(format!("sync objects/{name}"), e)),
        }
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
