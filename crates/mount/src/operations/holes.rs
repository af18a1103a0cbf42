//! Data, holes and allocated space of a file that programs have mapped: the kernel asks without
//! writing back their changes.
//!
//! Only changes in holes are written back first: elsewhere they do not change the result.

use crate::kernel::size::Answer;
use crate::translate::context;
use crate::weirfs::WeirFs;
use weir_client::{Context, File};
use weir_fuse::{Reply, RequestContext};
use weir_types::{Attr, FileKind};

impl WeirFs {
    /// First byte of data from `offset` on.
    pub(crate) fn next_data(&self, by: &Context, file: &File, offset: u64) -> Reply<Option<u64>> {
        let found = file.next_data(by, offset)?;
        let end = found.unwrap_or(file.size());
        Ok(match self.cache.writes_back(file.id(), offset..end) {
            true => file.next_data(by, offset)?,
            false => found,
        })
    }

    /// First byte in a hole from `offset` on, or else the end of the file.
    pub(crate) fn next_hole(&self, by: &Context, file: &File, offset: u64) -> Reply<Option<u64>> {
        let mut written = offset;
        loop {
            let found = file.next_hole(by, offset)?;
            let Some(at) = found.filter(|at| *at < file.size()) else { return Ok(found) };
            if !self.cache.may_be_changed(file.id()) {
                return Ok(found);
            }
            let end = file.next_data(by, at)?.unwrap_or(file.size());
            if !self.cache.writes_back(file.id(), at.max(written)..end) {
                return Ok(found);
            }
            written = end;
        }
    }

    /// Attributes for the kernel, with the allocated bytes of disk (see
    /// [`weir_client::Client::allocated`]). Programs take a file without allocated space for all
    /// zeros.
    pub(crate) fn with_room(
        &self,
        ctx: &RequestContext<'_>,
        attr: Attr,
    ) -> Reply<(Attr, Option<u64>)> {
        let (by, file) = (context(ctx), attr.file);
        let allocated = self.client.allocated(&by, &attr);
        let nothing = allocated == Some(0) && attr.kind == FileKind::File;
        if !nothing || !self.cache.writes_back(file, 0..u64::MAX) {
            return Ok((attr, allocated));
        }
        let question = self.cache.asks(ctx.pid, Some(file), Answer::Attributes);
        let attr = self.client.getattr(&by, file)?;
        let attr = self.tell(ctx, question, attr)?;
        let allocated = self.client.allocated(&by, &attr);
        Ok((attr, allocated))
    }
}
