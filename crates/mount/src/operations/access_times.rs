//! Records access times.
//!
//! The kernel leaves them to FUSE file systems. It does not report reads from its page cache. So a
//! file that is opened read-only, and of which the kernel already has pages, counts as read when it
//! is closed.

use crate::open::access::{AccessTimes, HandleAccess};
use crate::weirfs::WeirFs;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_types::{Attr, FileId};

impl WeirFs {
    /// For a file that is being opened. `cached` says that the kernel has pages of it.
    pub(crate) fn access_of(&self, attr: &Attr, flags: u32, cached: bool) -> HandleAccess {
        let flags = flags as i32;
        let reads = flags & libc::O_ACCMODE != libc::O_WRONLY && flags & libc::O_NOATIME == 0;
        let due = reads && self.options.access_times.is_due(attr);
        let only_reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
        HandleAccess {
            due: AtomicBool::new(due),
            unseen: AtomicBool::new(due && cached && only_reads && attr.size > 0),
        }
    }

    /// Records a read of an open file.
    pub(crate) fn is_read(&self, file: FileId, by: u32, access: &HandleAccess, flags: u32) {
        let due = access.due.load(Ordering::Relaxed) && flags as i32 & libc::O_NOATIME == 0;
        if due {
            self.accessed(file, &[&access.due, &access.unseen]);
            self.cache.is_read(file, by);
        }
    }

    /// Records the close of an open file.
    pub(crate) fn is_closed(&self, file: FileId, access: &HandleAccess) {
        if access.unseen.load(Ordering::Relaxed) {
            self.accessed(file, &[&access.due, &access.unseen]);
            self.cache.end_lifetime(file);
        }
    }

    fn accessed(&self, file: FileId, said: &[&AtomicBool]) {
        let always = self.options.access_times == AccessTimes::Always;
        if !always {
            said.iter().for_each(|said| said.store(false, Ordering::Relaxed));
        }
        // It has been judged: others may have read the file since, but this is shown here.
        self.client.note_access(file, true);
    }

    /// Drops earlier reads after the access time was set, so that they do not come after it.
    pub(crate) fn access_is_set(&self, file: FileId) {
        for handle in self.handles.of(file) {
            if let Ok(handle) = handle.file() {
                handle.access.unseen.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Records a listing of a directory.
    pub(crate) fn is_listed(&self, dir: FileId) {
        if !self.options.no_directory_access {
            self.is_looked_at(dir);
        }
    }

    /// Records a listing of a directory, or a read of a symbolic link.
    pub(crate) fn is_looked_at(&self, file: FileId) {
        let times = self.options.access_times;
        // If nothing is known of it, the metadata server judges.
        let judged = self.client.known_attr(file).map(|attr| times.is_due(&attr));
        if judged.unwrap_or(times != AccessTimes::Never) {
            self.client.note_access(file, judged.is_some() || times == AccessTimes::Always);
            self.cache.end_lifetime(file);
        }
    }
}
