//! Calls of one client that write a file, and those that cut it, exclude each other. The metadata
//! server knows a new size before the client has its answer: what another thread writes in between
//! would be taken for older than the cut.

use super::inner::Inner;
use super::open::OpenState;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_host::sync::{ReadGuard, RwLock, WriteGuard};
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
}

/// A call that cuts a file, or gives it other objects, until it is dropped.
pub(crate) struct Cut<'a> {
    inner: &'a Inner,
    file: FileId,
    lock: Sizing,
}

impl Cut<'_> {
    /// Waits until no call of this client writes the file. None does until the result is dropped.
    /// `None`: the layer above sees to that.
    pub(crate) fn alone(&self) -> Option<WriteGuard<'_, ()>> {
        (!self.inner.is_excluded_above()).then(|| self.lock.write())
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        let cuts = &mut self.inner.holdings.opened.lock().cuts.of_files;
        if let Some((_, times)) = cuts.get_mut(&self.file) {
            *times -= 1;
            if *times == 0 {
                cuts.remove(&self.file);
            }
        }
    }
}

impl Inner {
    /// Begins a call that cuts a file, whether it is open or not.
    pub(crate) fn begin_cut(&self, file: FileId) -> Cut<'_> {
        let mut opened = self.holdings.opened.lock();
        let of_open = opened.files.get(&file).map(|(state, _)| state.sizing.clone());
        let entry = opened.cuts.of_files.entry(file);
        let (lock, times) = entry.or_insert_with(|| (of_open.unwrap_or_default(), 0));
        *times += 1;
        Cut { inner: self, file, lock: lock.clone() }
    }

    /// Whether the layer above lets nobody write a file while it cuts it.
    fn is_excluded_above(&self) -> bool {
        self.upper.as_ref().is_some_and(|upper| upper.excludes_writes_from_cuts())
    }
}

impl OpenState {
    /// Waits until nobody of this client cuts the file, and keeps that so until the result is
    /// dropped. `None`: the layer above sees to that.
    pub(crate) fn share_size(&self, inner: &Inner) -> Option<ReadGuard<'_, ()>> {
        (!inner.is_excluded_above()).then(|| self.sizing.read())
    }

    /// As [`OpenState::share_size`], but nobody of this client writes the file either.
    pub(crate) fn size_alone(&self, inner: &Inner) -> Option<WriteGuard<'_, ()>> {
        (!inner.is_excluded_above()).then(|| self.sizing.write())
    }
}
