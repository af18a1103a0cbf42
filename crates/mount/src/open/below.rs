//! What a user says of how the files below a directory are read: the default hint of each that this
//! user opens afterwards. It is kept by the mount alone, until the user takes it back, this mount
//! removes the directory, or the mount ends. It is bounded: what a user says too much drops what the
//! same user said first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_client::Hint;
use weir_fuse::{Errno, Reply};
use weir_types::FileId;

/// The most directories of which one user says something.
const MAX_OF_USER: usize = 64;
/// The most of all users.
const MAX_OF_ALL: usize = 4096;

const _: () = assert!(MAX_OF_USER < MAX_OF_ALL);

/// What is said of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// Name of the hint.
    pub(crate) name: &'static str,
    /// Its value, as it was given.
    pub(crate) value: Vec<u8>,
    /// What it is for each file.
    pub(crate) hint: Hint,
}

/// A directory, and the user who says something of it.
type At = (FileId, u32);

#[derive(Debug, Default)]
struct All {
    /// Each with its number: a greater one was said later.
    said: HashMap<At, (u64, Said)>,
    /// The last number.
    last: u64,
}

impl All {
    /// What a user says, each with its number.
    fn of_user(&self, uid: u32) -> impl Iterator<Item = (u64, At)> {
        let all = self.said.iter().map(|(at, (number, _))| (*number, *at));
        all.filter(move |(_, at)| at.1 == uid)
    }
}

/// What users say of directories.
#[derive(Debug, Default)]
pub(crate) struct Below {
    all: Mutex<All>,
}

impl Below {
    /// Puts this in the place of what the user has said of the directory. If it is one too many,
    /// what the user said first goes; `ENOSPC` if the user has said nothing, and others too much.
    pub(crate) fn say(&self, at: At, said: Said) -> Reply<()> {
        let mut all = self.lock();
        let is_full = all.said.len() >= MAX_OF_ALL || all.of_user(at.1).count() >= MAX_OF_USER;
        if is_full && !all.said.contains_key(&at) {
            let (_, oldest) = all.of_user(at.1).min().ok_or(Errno(libc::ENOSPC))?;
            all.said.remove(&oldest);
        }
        all.last += 1;
        let number = all.last;
        all.said.insert(at, (number, said));
        Ok(())
    }

    /// Takes back what the user has said under this name. `ENODATA` if that is nothing.
    pub(crate) fn take_back(&self, at: At, name: &str) -> Reply<()> {
        let mut all = self.lock();
        all.said.get(&at).filter(|(_, said)| said.name == name).ok_or(Errno::ENODATA)?;
        all.said.remove(&at);
        Ok(())
    }

    /// Drops what anybody has said of a directory that was removed.
    pub(crate) fn forget(&self, dir: FileId) {
        self.lock().said.retain(|at, _| at.0 != dir);
    }

    /// The value of what the user has said under this name. `ENODATA` if that is nothing.
    pub(crate) fn value(&self, at: At, name: &str) -> Reply<Vec<u8>> {
        let all = self.lock();
        let said = all.said.get(&at).filter(|(_, said)| said.name == name);
        said.map(|(_, said)| said.value.clone()).ok_or(Errno::ENODATA)
    }

    /// Whether nothing is said of any directory.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().said.is_empty()
    }

    /// What the user says of the first of these directories of which there is something.
    pub(crate) fn nearest(&self, dirs: &[FileId], uid: u32) -> Option<Hint> {
        let all = self.lock();
        dirs.iter().find_map(|dir| all.said.get(&(*dir, uid))).map(|(_, said)| said.hint)
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &'static str, hint: Hint) -> Said {
        Said { name, value: Vec::new(), hint }
    }

    #[test]
    fn the_nearest_directory_counts_and_only_for_who_said_it() {
        let below = Below::default();
        assert!(below.is_empty());
        below.say((FileId(1), 7), said("reverse", Hint::Reverse)).unwrap();
        below.say((FileId(2), 7), said("normal", Hint::Normal)).unwrap();
        let up = [FileId(3), FileId(2), FileId(1)];
        assert_eq!(below.nearest(&up, 7), Some(Hint::Normal));
        assert_eq!(below.nearest(&up[2..], 7), Some(Hint::Reverse));
        assert_eq!(below.nearest(&up, 8), None, "another user");
        assert_eq!(below.take_back((FileId(2), 7), "reverse"), Err(Errno::ENODATA));
        below.take_back((FileId(2), 7), "normal").unwrap();
        assert_eq!(below.nearest(&up, 7), Some(Hint::Reverse));
        assert_eq!(below.value((FileId(1), 7), "reverse"), Ok(Vec::new()));
        assert_eq!(below.value((FileId(1), 7), "random"), Err(Errno::ENODATA));
    }

    #[test]
    fn a_user_says_something_of_so_many_directories_and_the_oldest_goes() {
        let below = Below::default();
        let say =
            |dir: usize, uid| below.say((FileId(dir as u64), uid), said("random", Hint::Random));
        let has = |dir: usize, uid| below.value((FileId(dir as u64), uid), "random").is_ok();
        assert!((0..MAX_OF_USER).all(|dir| say(dir, 1).is_ok()));
        assert_eq!(say(0, 1), Ok(()), "again: it is the newest now");
        assert_eq!(say(MAX_OF_USER, 1), Ok(()));
        assert!(has(0, 1) && !has(1, 1) && has(2, 1) && has(MAX_OF_USER, 1));
        let users = (MAX_OF_ALL / MAX_OF_USER) as u32;
        assert!((2..=users).all(|uid| (0..MAX_OF_USER).all(|dir| say(dir, uid).is_ok())));
        assert_eq!(say(0, users + 1), Err(Errno(libc::ENOSPC)), "it drops nothing of others");
        below.take_back((FileId(0), 1), "random").unwrap();
        assert_eq!(say(0, users + 1), Ok(()));
        assert_eq!(say(1, users + 1), Ok(()), "its own goes");
        assert!(!has(0, users + 1) && has(1, users + 1));
    }

    #[test]
    fn what_is_said_of_a_directory_goes_with_it() {
        let below = Below::default();
        for (dir, uid) in [(1, 7), (1, 8), (2, 7)] {
            below.say((FileId(dir), uid), said("random", Hint::Random)).unwrap();
        }
        below.forget(FileId(1));
        assert_eq!(below.nearest(&[FileId(1)], 7), None);
        assert_eq!(below.nearest(&[FileId(1)], 8), None);
        assert_eq!(below.nearest(&[FileId(2)], 7), Some(Hint::Random));
    }
}
