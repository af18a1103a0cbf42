//! What a session tells a server that does not know it: open files, leases and locks.

use weir_types::FileId;
use weir_wire::lease::HeldLease;
use weir_wire::lock::Lock;

/// The most files, leases or locks in one message.
pub(crate) const REASSERT_BATCH: usize = 4096;

/// What a run of the metadata server is told.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    /// Files that are open, once for each open.
    pub(crate) files: Vec<FileId>,
    /// Files that are not, and stay: once for each hold.
    pub(crate) held: Vec<FileId>,
    /// Leases.
    pub(crate) leases: Vec<HeldLease>,
}

/// Who knows what this client holds. A session asks it when it, or the run of the server, is new.
pub(crate) trait Claims: Send + Sync {
    /// Session or server are new: what is open, held and leased. Nothing is believed any more.
    /// `forgets`: the last that the server was told it may have forgotten.
    fn begin(&self, epoch: u64, forgets: bool) -> Claimed;
    /// All held locks.
    fn locks(&self) -> Vec<Lock>;
    /// The metadata server has granted these locks to other owners.
    fn lost_locks(&self, locks: &[Lock]);
    /// The leases on these files are lost.
    fn lost(&self, files: &[FileId]);
}
