//! Directories that are closed because a name in them changes ([`crate::kernel::names`]).

use crate::kernel::cache::{GIVE_UP, KernelCache};
use crate::kernel::names::Asker;
use crate::kernel::threads::doing;
use std::time::Instant;
use weir_types::FileId;

impl KernelCache {
    /// Records that the kernel is about to be told a name of a file in a directory that it may use
    /// without asking. Returns `false` if it must not.
    pub(crate) fn begins_to_name(
        &self,
        asker: Asker,
        (dir, file): (FileId, FileId),
        listing: bool,
    ) -> bool {
        self.dropper.is_attached()
            && self.get(file).is_none()
            && self.names.begins(asker, (dir, file), listing, Instant::now())
    }

    /// Closes what another client's change of a file or directory concerns.
    pub(super) fn close_for(&self, file: FileId) {
        self.names.close(file, Instant::now());
        self.close_names_of_open(file);
    }

    /// Closes the directories with names of a file, if it is open, because its mode or its list
    /// changes, and the kernel is to ask for its name before it asks for those.
    pub(crate) fn close_names_of_open(&self, file: FileId) {
        if self.get(file).is_some() {
            let dirs = self.names.close_names_of(file, Instant::now());
            dirs.into_iter().for_each(|dir| self.end_lifetime(dir));
        }
    }

    /// Waits until the kernel may be told the attributes of a file. If it is a directory that is
    /// closed, no name in it is valid then. Waits for time alone.
    pub(crate) fn waits_until_open(&self, dir: FileId) {
        let begin = Instant::now();
        while let Some(threads) = self.names.waits_for(dir, Instant::now()) {
            let is_settled = |of: &(u32, u64)| self.names.is_seen(*of, doing(of.0), Instant::now());
            if threads.iter().filter(|of| is_settled(of)).count() == 0 {
                self.names.wait();
            }
            if begin.elapsed() > GIVE_UP {
                tracing::error!(
                    "directory {dir}: names in it did not end within {GIVE_UP:?}; programs may \
                     see old ones"
                );
                return;
            }
        }
    }
}
