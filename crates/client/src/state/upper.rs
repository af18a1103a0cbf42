//! The layer above the client, which may have a cache of its own.

use weir_types::FileId;

/// The cache of the layer above, which has to drop data when another client changes it.
pub trait UpperCache: Send + Sync {
    /// Drops cached pages with these bytes of the file. Returns when they are gone. Called without
    /// locks of the client.
    fn drop_pages(&self, file: FileId, start: u64, end: u64);
    /// Called when this client's own write has made a lease to read one to write: as
    /// [`UpperCache::drop_pages`], but nobody wants the lease back.
    fn drop_before_own_write(&self, file: FileId, start: u64, end: u64) {
        self.drop_pages(file, start, end);
    }
    /// Whether the layer above lets no program write a file while it has the file cut, and lets none
    /// know the new size before.
    fn excludes_writes_from_cuts(&self) -> bool {
        false
    }
    /// Drops all pages of all files, because leases were lost.
    fn drop_everything(&self);
    /// Called when another client changes attributes of a file, possibly its access control list.
    /// Returns when the layer above uses none of them any more. Must wait for processors alone.
    fn forget_attributes(&self, _file: FileId) {}
    /// Called when attributes of a file or directory have changed, possibly because of a name in it
    /// or by this client. Otherwise as [`UpperCache::forget_attributes`].
    fn attributes_change(&self, _file: FileId) {}
    /// Called when another client changes a name in a directory, and so its attributes. Otherwise as
    /// [`UpperCache::forget_attributes`].
    fn names_change(&self, dir: FileId) {
        self.attributes_change(dir);
    }
    /// Called when the metadata server does not know any more what this client caches. Otherwise as
    /// [`UpperCache::forget_attributes`], for all files.
    fn forget_all_attributes(&self) {}
    /// Whether the layer knows a file, and so may hold it ([`UpperCache::holds`]). Must not block.
    fn knows(&self, _file: FileId) -> bool {
        false
    }
    /// Called when another client removes a name of a file, possibly the last one. Returns `true`
    /// if the file is in use here and has to stay until [`crate::Client::let_go`]. Must not block.
    fn holds(&self, _file: FileId) -> bool {
        false
    }
}
