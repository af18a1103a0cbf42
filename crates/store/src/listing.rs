//! Every object of a target, for checking and for rebuilding a namespace.

use crate::directories::{Directories, HASH_DIRECTORIES, hash_directory, parse_name};
use crate::geometry::object_bytes;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use std::sync::Arc;
use weir_types::{Error, ErrorKind, ObjectId, Result};

/// An iterator over the objects of a target with their lengths, bytes, in no
/// particular order. Objects made or removed meanwhile may or may not appear.
/// A file that no object is named by is reported as an error of kind
/// `Corrupt`; the iteration goes on after it.
pub struct Objects {
    directories: Arc<Directories>,
    /// The next hash directory.
    next: usize,
    current: Option<(usize, Dir)>,
}

impl Objects {
    pub(crate) fn new(directories: Arc<Directories>) -> Self {
        Self { directories, next: 0, current: None }
    }

    /// Opens the next hash directory that exists; `false` after the last.
    fn advance(&mut self) -> Result<bool> {
        self.current = None;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        while self.next < HASH_DIRECTORIES {
            let hash = self.next;
            self.next += 1;
            let name = format!("{hash:03x}");
            match openat(&self.directories.root, name.as_str(), flags, Mode::empty())
                .and_then(Dir::new)
            {
                Ok(dir) => {
                    self.current = Some((hash, dir));
                    return Ok(true);
                }
                Err(Errno::NOENT) => {}
                Err(e) => return Err(self.failed(&name, e)),
            }
        }
        Ok(false)
    }

    fn failed(&self, name: &str, errno: Errno) -> Error {
        self.directories.site.os_error(format!("list objects/{name}"), errno)
    }

    /// The object of one directory entry; `None` for `.`, `..` and a file that
    /// has just been removed.
    fn examine(&self, hash: usize, name: &[u8]) -> Result<Option<(ObjectId, u64)>> {
        if matches!(name, b"." | b"..") {
            return Ok(None);
        }
        let name = String::from_utf8_lossy(name);
        let path = format!("{hash:03x}/{name}");
        let id = parse_name(&name).filter(|id| hash_directory(id.file) == hash);
        let Some(id) = id else {
            let what = format!("objects/{path} is not the file of an object");
            return Err(self.directories.site.error(ErrorKind::Corrupt, what));
        };
        match statat(&self.directories.root, path.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some((id, object_bytes(stat.st_size as u64)))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.failed(&path, e)),
        }
    }
}

impl Iterator for Objects {
    type Item = Result<(ObjectId, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((hash, dir)) = &mut self.current else {
                match self.advance() {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(e) => return Some(Err(e)),
                }
            };
            let hash = *hash;
            match dir.read() {
                Some(Ok(entry)) => {
                    if let Some(item) = self.examine(hash, entry.file_name().to_bytes()).transpose()
                    {
                        return Some(item);
                    }
                }
                Some(Err(e)) => {
                    self.current = None;
                    return Some(Err(self.failed(&format!("{hash:03x}"), e)));
                }
                None => self.current = None,
            }
        }
    }
}
