//! Where a file has data and where holes, and how much room it takes, when programs have it
//! mapped: the kernel asks without writing back what they have changed.
//!
//! Only what lies in holes is made to be written back: elsewhere it changes no answer.

use crate::fuse::{Reply, RequestContext};
use crate::kernel_size::Answer;
use crate::translate::context;
use crate::weirfs::WeirFs;
use weir_client::{Context, File};
use weir_types::{Attr, FileKind};

impl WeirFs {
    /// The first byte of data from `offset` on.
    pub(crate) fn next_data(&self, by: &Context, file: &File, offset: u64) -> Reply<Option<u64>> {
        let found = file.next_data(by, offset)?;
        let end = found.unwrap_or(file.size());
        Ok(match self.cache.writes_back(file.id(), offset..end) {
            true => file.next_data(by, offset)?,
            false => found,
        })
    }

    /// The first byte in a hole from `offset` on, or else the end of the file.
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

    /// Attributes that may be told, and the bytes of disk that the file takes (see
    /// [`weir_client::Client::allocated`]). Of one that takes nothing programs believe that it is all zeros.
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
