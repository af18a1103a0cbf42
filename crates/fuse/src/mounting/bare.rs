//! The directory below a mountpoint, while nothing is mounted on it: what is made in it then is
//! hidden by the next mount, and named by it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Result;
use rustix::time::{ClockId, clock_gettime};

/// The most entries that are looked at.
const MAX_ENTRIES: usize = 65_536;

/// Seconds and nanoseconds since 1970, by the clock of local file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Change(i64, i64);

impl Change {
    /// The present. What is changed from now on has this time or a later one; so may what was
    /// changed a few milliseconds before.
    pub(crate) fn now() -> Self {
        // File systems take the time of the last tick, or a more exact one.
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self(now.tv_sec, now.tv_nsec)
    }
}

/// A directory on which nothing is mounted.
pub(crate) struct Bare {
    dir: OwnedFd,
    /// What was there from the beginning, and its last change then.
    known: BTreeMap<OsString, Change>,
}

impl Bare {
    /// Opens it; to be called as soon as it is bare, `since` that time.
    pub(crate) fn open(mountpoint: &Path, since: Change) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(mountpoint, flags, Mode::empty())?;
        let mut known = BTreeMap::new();
        for_each_entry(&dir, |name, changed| {
            if let Some(changed) = changed.filter(|changed| *changed < since) {
                known.insert(name.to_owned(), changed);
            }
        })?;
        Ok(Self { dir, known })
    }

    /// What was made since, or has changed; whatever is mounted on it by now.
    pub(crate) fn new_names(&self) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        for_each_entry(&self.dir, |name, changed| {
            if changed.is_none() || self.known.get(name).copied() != changed {
                names.push(name.to_owned());
            }
        })?;
        names.sort();
        Ok(names)
    }
}

/// Calls this with the name of each entry and the time of its last change, if that can be found.
fn for_each_entry(dir: &OwnedFd, mut each: impl FnMut(&OsStr, Option<Change>)) -> Result<()> {
    // By its descriptor: the path may be a mount's by now.
    let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut entries = Dir::new(rustix::fs::open(path, flags, Mode::empty())?)?;
    for _ in 0..MAX_ENTRIES {
        let Some(entry) = entries.read() else { break };
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let changed = stat.map(|stat| Change(stat.st_ctime, stat.st_ctime_nsec as i64));
        each(OsStr::from_bytes(name.to_bytes()), changed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_made_in_a_bare_directory_is_named_and_what_was_there_is_not() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path();
        fs::write(path.join("was there"), "").unwrap();
        fs::create_dir(path.join("so was this")).unwrap();
        fs::create_dir(path.join("and this")).unwrap();
        // A file system may be ahead of that clock by some ticks, of at most 10 ms.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let since = Change::now();
        // Before it could be opened.
        fs::write(path.join("early"), "").unwrap();
        let bare = Bare::open(path, since).unwrap();
        assert_eq!(bare.new_names().unwrap(), ["early"]);
        fs::write(path.join("late"), "").unwrap();
        assert_eq!(bare.new_names().unwrap(), ["early", "late"]);
        fs::write(path.join("so was this/deeper"), "").unwrap();
        assert_eq!(bare.new_names().unwrap(), ["early", "late", "so was this"]);
    }
}
