//! Locks of files: calls of one client that write a file, and those that cut it, exclude each other
//! (`leases::cut`).

use std::collections::BTreeMap;
use std::sync::Arc;
use weir_host::sync::RwLock;
use weir_types::FileId;

/// The lock of a file. Who writes shares it, who cuts the file has it alone.
pub(crate) type Sizing = Arc<RwLock<()>>;

/// The files that are being cut, open or not, with their locks and the number of those who cut them.
/// Who opens such a file gets the lock, too. Bounded by the calls under way.
#[derive(Default)]
pub(crate) struct Cuts {
    of_files: BTreeMap<FileId, (Sizing, u32)>,
}

impl Cuts {
    /// The lock of a file that is being cut.
    pub(crate) fn lock_of(&self, file: FileId) -> Option<&Sizing> {
        self.of_files.get(&file).map(|(lock, _)| lock)
    }

    /// Begins a cut. `of_open` is the lock of the file if it is open.
    pub(crate) fn begin(&mut self, file: FileId, of_open: Option<Sizing>) -> Sizing {
        let entry = self.of_files.entry(file);
        let (lock, times) = entry.or_insert_with(|| (of_open.unwrap_or_default(), 0));
        *times += 1;
        lock.clone()
    }

    /// Ends a cut.
    pub(crate) fn end(&mut self, file: FileId) {
        if let Some((_, times)) = self.of_files.get_mut(&file) {
            *times -= 1;
            if *times == 0 {
                self.of_files.remove(&file);
            }
        }
    }
}
