//! Lists every object of a target, for checking and for rebuilding a namespace.

use crate::backing::Backing;
use crate::directories::{HASH_DIRECTORIES, hash_directory, parse_name, path};
use crate::geometry::object_bytes;
use std::sync::Arc;
use weir_host::fs::Entries;
use weir_types::{ErrorKind, ObjectId, Result};

/// The most unknown files of one directory that a listing names one by one.
const MAX_STRAYS: usize = 64;

/// One page of the objects of a target, ordered by hash directory and [`ObjectId`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Objects, each with its length, bytes.
    pub objects: Vec<(ObjectId, u64)>,
    /// Files that are not object files, in the directories that begin on this page.
    pub strays: Vec<String>,
    /// The object after which the next page begins; `None` at the end.
    pub next: Option<ObjectId>,
}

/// Lists at most `max` (at least one) objects after `after`. An object that is made or removed
/// meanwhile may appear; every other object appears exactly once.
pub(crate) fn list(backing: &Backing, after: Option<ObjectId>, max: usize) -> Result<Listing> {
    let mut listing = Listing::default();
    let first = after.map_or(0, |object| hash_directory(object.file));
    for hash in first..HASH_DIRECTORIES {
        let after = after.filter(|_| hash == first);
        if after.is_none() {
            strays(backing, hash, &mut listing.strays)?;
        }
        let ids = backing.directories.objects(hash)?;
        for id in ids.into_iter().filter(|id| after.is_none_or(|after| *id > after)) {
            if listing.objects.len() >= max.max(1) {
                listing.next = listing.objects.last().map(|(id, _)| *id);
                return Ok(listing);
            }
            // The object may just have been removed.
            if let Some(size) = backing.directories.file_bytes(&path(id))? {
                listing.objects.push((id, object_bytes(size)));
            }
        }
    }
    Ok(listing)
}

fn strays(backing: &Backing, hash: usize, strays: &mut Vec<String>) -> Result<()> {
    let directories = &backing.directories;
    let mut found = 0;
    for name in directories.entries(hash)?.into_iter().flatten() {
        let name = name.map_err(|e| directories.failed_listing(&format!("{hash:03x}"), e))?;
        let name = String::from_utf8_lossy(&name);
        if parse_name(&name).is_none_or(|id| hash_directory(id.file) != hash) {
            found += 1;
            if found <= MAX_STRAYS {
                strays.push(format!("objects/{hash:03x}/{name}"));
            }
        }
    }
    if found > MAX_STRAYS {
        strays.push(format!("{} more in objects/{hash:03x}", found - MAX_STRAYS));
    }
    Ok(())
}

/// An iterator over the objects of a target with their lengths, bytes, in no particular order.
/// Objects made or removed meanwhile may or may not appear. A file that is not an object file is
/// returned as an error of kind `Corrupt`; the iteration goes on after it.
pub struct Objects {
    backing: Arc<Backing>,
    /// The hash directories not read yet; `None` before the first call.
    hashes: Option<std::vec::IntoIter<usize>>,
    /// Names of entries of `objects` that are not hash directories.
    strangers: Vec<String>,
    current: Option<(usize, Entries)>,
}

impl Objects {
    pub(crate) fn new(backing: Arc<Backing>) -> Self {
        Self { backing, hashes: None, strangers: Vec::new(), current: None }
    }

    /// Opens the next hash directory. Returns `false` after the last.
    fn advance(&mut self) -> Result<bool> {
        self.current = None;
        let hashes = match &mut self.hashes {
            Some(hashes) => hashes,
            None => {
                let (hashes, strangers) = self.backing.directories.hashes()?;
                self.strangers = strangers;
                self.hashes.insert(hashes.into_iter())
            }
        };
        for hash in hashes {
            if let Some(entries) = self.backing.directories.entries(hash)? {
                self.current = Some((hash, entries));
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn stranger(&self, path: &str) -> weir_types::Error {
        let what = format!("objects/{path} is not the file of an object");
        self.backing.site.error(ErrorKind::Corrupt, what)
    }

    /// The object of one directory entry. Returns `None` if its file was removed just now.
    fn examine(&self, hash: usize, name: &[u8]) -> Result<Option<(ObjectId, u64)>> {
        let name = String::from_utf8_lossy(name);
        let path = format!("{hash:03x}/{name}");
        let id = parse_name(&name).filter(|id| hash_directory(id.file) == hash);
        let Some(id) = id else {
            return Err(self.stranger(&path));
        };
        let size = self.backing.directories.file_bytes(&path)?;
        Ok(size.map(|size| (id, object_bytes(size))))
    }
}

impl Iterator for Objects {
    type Item = Result<(ObjectId, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((hash, entries)) = &mut self.current else {
                if let Some(name) = self.strangers.pop() {
                    return Some(Err(self.stranger(&name)));
                }
                match self.advance() {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(e) => {
                        // Without the list of directories the iteration ends.
                        self.hashes.get_or_insert_with(|| Vec::new().into_iter());
                        return Some(Err(e));
                    }
                }
            };
            let hash = *hash;
            match entries.next() {
                Some(Ok(name)) => {
                    if let Some(item) = self.examine(hash, &name).transpose() {
                        return Some(item);
                    }
                }
                Some(Err(e)) => {
                    self.current = None;
                    let name = format!("{hash:03x}");
                    return Some(Err(self.backing.directories.failed_listing(&name, e)));
                }
                None => self.current = None,
            }
        }
    }
}
