//! An open file.

use crate::session::Session;
use std::sync::Arc;
use weir_client::File;
use weir_layout::RegionList;
use weir_types::Result;

/// An open file, and the session that it belongs to.
pub struct OpenFile {
    // Fields are dropped in order: the file ends before its session.
    file: File,
    session: Arc<Session>,
    appends: bool,
}

impl OpenFile {
    /// `appends`: every write goes to the end of the file, whatever its offset.
    pub fn new(session: Arc<Session>, file: File, appends: bool) -> Self {
        Self { file, session, appends }
    }

    /// Reads until the buffer is full or the file ends.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.file.read_at(&self.session.context, offset, buffer)
    }

    /// Reads ranges within the file into the buffer, one after another.
    pub fn read_ranges(&self, ranges: &RegionList, buffer: &mut [u8]) -> Result<()> {
        self.file.read_regions(&self.session.context, ranges, buffer)
    }

    /// Writes all of the data.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        match self.appends {
            true => self.file.append(&self.session.context, data).map(drop),
            false => self.file.write_at(&self.session.context, offset, data),
        }
    }

    /// Waits until the data servers have all writes, and the metadata server knows the size.
    pub fn flush(&self) -> Result<()> {
        self.file.flush(&self.session.context)
    }

    /// Makes all writes durable.
    pub fn sync(&self) -> Result<()> {
        self.file.sync(&self.session.context)
    }

    /// The present size.
    pub fn size(&self) -> Result<u64> {
        Ok(self.session.client.getattr(&self.session.context, self.file.id())?.size)
    }

    /// Closes the file. If another thread is in a call on it, buffered writes are sent, and the end
    /// of that call closes it.
    pub fn close(this: Arc<Self>) -> Result<()> {
        match Arc::try_unwrap(this) {
            Ok(OpenFile { file, session, .. }) => file.close(&session.context),
            Err(shared) => shared.flush(),
        }
    }
}
