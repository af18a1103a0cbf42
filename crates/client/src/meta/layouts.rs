//! Layouts and capabilities of open files: fetched page by page, renewed, and extended.

use crate::context::Context;
use crate::state::{Call, Inner, OpenState};
use std::collections::BTreeMap;
use std::ops::Range;
use weir_layout::covered_bytes;
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{Error, ErrorKind, Generation, Placement, Result, Segment, TargetId};
use weir_wire::capability::Rights;
use weir_wire::meta::{ExtendRequest, GetLayoutRequest, LayoutPage};

/// The most replies of one call that others may overtake.
const MAX_OVERTAKEN: usize = 100;

impl OpenState {
    /// Renews layout, generation and capabilities, and the cluster map. Attributes are not renewed:
    /// a request for them waits for clients that give up a lease, and this client may have to write
    /// before it gives up its own.
    pub(crate) fn refresh(&self, inner: &Inner, ctx: &Context) -> Result<()> {
        inner.servers.refresh_map(&inner.session, false, inner.config.request_timeout_ms)?;
        let mut oldest = None;
        for rights in self.rights() {
            let generation = self.fetch_layout(inner, ctx, 0, rights)?;
            oldest.get_or_insert(generation);
        }
        if let Some(generation) = oldest {
            self.set_generation(generation);
        }
        Ok(())
    }

    /// Fetches the layout page by page from `offset` on. Returns the previous generation of the
    /// file.
    pub(crate) fn fetch_layout(
        &self,
        inner: &Inner,
        ctx: &Context,
        mut offset: u64,
        rights: Rights,
    ) -> Result<Generation> {
        let mut first = None;
        loop {
            let request = GetLayoutRequest { file: self.id, offset, rights };
            let page = inner.session.call(ctx, &request)?;
            let end = covered_bytes(&page.layout);
            self.take_page(&page, offset);
            let before = *first.get_or_insert(page.generation);
            if !page.more_segments || end <= offset {
                return Ok(before);
            }
            offset = end;
        }
    }

    /// Extends the layout to cover a range that is about to be written. For files whose chunks are
    /// placed by speed, `waits` says when each target could take another chunk.
    pub(crate) fn cover(
        &self,
        call: Call<'_>,
        range: Range<u64>,
        waits: impl Fn(u64, &BTreeMap<TargetId, u64>) -> Vec<(TargetId, u64)>,
    ) -> Result<()> {
        if range.end > MAX_FILE_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let (mut covered, mut overtaken) = (self.covered(), 0);
        let mut given = BTreeMap::new();
        while covered < range.end {
            let (chunk_bytes, is_graduated) = self.with_layout(|layout| {
                let last = layout.segments.last().and_then(|last| last.len);
                (last.unwrap_or_default(), layout.placement == Placement::Graduated)
            });
            let waits = if is_graduated { waits(chunk_bytes, &given) } else { Vec::new() };
            // The first byte that is missing, not the last: the reply begins
            // with the segment that holds it, and no gap may be left.
            let (file, offset, from) = (self.id, covered, range.start);
            let request = ExtendRequest { file, offset, from, waits };
            let page: LayoutPage = call.inner.session.change(call.ctx, &request)?;
            // Others may have written there meanwhile: these are not all ours.
            let ours =
                |segment: &&Segment| segment.start < range.end && segment.end() > range.start;
            for segment in page.layout.segments.iter().filter(|_| is_graduated).filter(ours) {
                if let Some((_, target)) = segment.columns.first().and_then(|c| c.copies().next()) {
                    *given.entry(target).or_default() += segment.len.unwrap_or_default();
                }
            }
            if !self.take_page(&page, covered) {
                overtaken += 1;
                if overtaken > MAX_OVERTAKEN {
                    let text = "the layout of the file changes all the time";
                    return Err(Error::new(ErrorKind::TimedOut, text));
                }
                self.refresh(call.inner, call.ctx)?;
                covered = self.covered();
                continue;
            }
            let now = self.covered();
            if now <= covered {
                return Err(Error::new(ErrorKind::Internal, "the layout was not extended"));
            }
            covered = now;
        }
        Ok(())
    }
}
