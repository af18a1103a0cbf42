//! What a user says of how the files below a directory are read: the default hint of each that this
//! user opens afterwards. It is kept by the mount alone, until the user takes it back or the mount
//! ends, and is bounded.

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

/// What users say of directories.
#[derive(Debug, Default)]
pub(crate) struct Below {
    said: Mutex<HashMap<At, Said>>,
}

impl Below {
    /// Puts this in the place of what the user has said of the directory. `ENOSPC` if it would be
    /// one too many.
    pub(crate) fn say(&self, at: At, said: Said) -> Reply<()> {
        let mut all = self.lock();
        let of_user = || all.keys().filter(|(_, uid)| *uid == at.1).count();
        if !all.contains_key(&at) && (all.len() >= MAX_OF_ALL || of_user() >= MAX_OF_USER) {
            return Err(Errno(libc::ENOSPC));
        }
        all.insert(at, said);
        Ok(())
    }

    /// Takes back what the user has said under this name. `ENODATA` if that is nothing.
    pub(crate) fn take_back(&self, at: At, name: &str) -> Reply<()> {
        let mut all = self.lock();
        all.get(&at).filter(|said| said.name == name).ok_or(Errno::ENODATA)?;
        all.remove(&at);
        Ok(())
    }

    /// The value of what the user has said under this name. `ENODATA` if that is nothing.
    pub(crate) fn value(&self, at: At, name: &str) -> Reply<Vec<u8>> {
        let all = self.lock();
        let said = all.get(&at).filter(|said| said.name == name).ok_or(Errno::ENODATA)?;
        Ok(said.value.clone())
    }

    /// Whether nothing is said of any directory.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// What the user says of the first of these directories of which there is something.
    pub(crate) fn nearest(&self, dirs: &[FileId], uid: u32) -> Option<Hint> {
        let all = self.lock();
        dirs.iter().find_map(|dir| all.get(&(*dir, uid))).map(|said| said.hint)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<At, Said>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn a_user_says_something_of_so_many_directories_and_no_more() {
        let below = Below::default();
        let say =
            |dir: usize, uid| below.say((FileId(dir as u64), uid), said("random", Hint::Random));
        assert!((0..MAX_OF_USER).all(|dir| say(dir, 1).is_ok()));
        assert_eq!(say(MAX_OF_USER, 1), Err(Errno(libc::ENOSPC)));
        assert_eq!(say(0, 1), Ok(()), "again");
        let users = (MAX_OF_ALL / MAX_OF_USER) as u32;
        assert!((2..=users).all(|uid| (0..MAX_OF_USER).all(|dir| say(dir, uid).is_ok())));
        assert_eq!(say(0, users + 1), Err(Errno(libc::ENOSPC)));
        below.take_back((FileId(0), 1), "random").unwrap();
        assert_eq!(say(0, users + 1), Ok(()));
    }
}
