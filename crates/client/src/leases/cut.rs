//! Calls of one client that write a file, and those that cut it, exclude each other. The metadata
//! server knows a new size before the client has its answer: what another thread writes in between
//! would be taken for older than the cut.

use crate::state::{Inner, OpenState, Sizing};
use weir_host::sync::{ReadGuard, WriteGuard};
use weir_types::FileId;

/// A call that cuts a file, or gives it other objects, until it is dropped.
pub(crate) struct Cut<'a> {
    inner: &'a Inner,
    file: FileId,
    lock: Sizing,
}

impl<'a> Cut<'a> {
    /// Begins such a call, whether the file is open or not.
    pub(crate) fn begin(inner: &'a Inner, file: FileId) -> Self {
        let mut opened = inner.holdings.opened.lock();
        let of_open = opened.files.get(&file).map(|(state, _)| state.sizing.clone());
        Self { inner, file, lock: opened.cuts.begin(file, of_open) }
    }

    /// Waits until no call of this client writes the file. None does until the result is dropped.
    /// `None`: the layer above sees to that.
    pub(crate) fn alone(&self) -> Option<WriteGuard<'_, ()>> {
        (!is_excluded_above(self.inner)).then(|| self.lock.write())
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.inner.holdings.opened.lock().cuts.end(self.file);
    }
}

/// Whether the layer above lets nobody write a file while it cuts it.
fn is_excluded_above(inner: &Inner) -> bool {
    inner.upper.as_ref().is_some_and(|upper| upper.excludes_writes_from_cuts())
}

/// Waits until nobody of this client cuts the file, and keeps that so until the result is dropped.
/// `None`: the layer above sees to that.
pub(crate) fn share_size<'a>(inner: &Inner, file: &'a OpenState) -> Option<ReadGuard<'a, ()>> {
    (!is_excluded_above(inner)).then(|| file.sizing.read())
}

/// As [`share_size`], but nobody of this client writes the file either.
pub(super) fn size_alone<'a>(inner: &Inner, file: &'a OpenState) -> Option<WriteGuard<'a, ()>> {
    (!is_excluded_above(inner)).then(|| file.sizing.write())
}
