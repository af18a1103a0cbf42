//! What the metadata server has granted for a file: layout, generation and capabilities. They are
//! fetched page by page and renewed.

use super::OpenState;
use crate::client::Inner;
use crate::context::Context;
use crate::core::copies::is_mirrored;
use crate::core::plan::{Place, Plan, plan_range, plan_range_cut};
use crate::drive::Call;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use weir_layout::covered_bytes;
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{
    CopyIndex, Duplication, Error, ErrorKind, FileLayout, Generation, ObjectId, Placement, Result,
    Segment, SegmentIndex, TargetId,
};
use weir_wire::capability::{Rights, SignedCapability};
use weir_wire::data::{Access, CopyAccess};
use weir_wire::key::Mac;
use weir_wire::meta::{ExtendRequest, GetLayoutRequest, LayoutPage, OpenFile};

/// Bytes of a column in one request where the copy is chosen late. Readers of disks that are far
/// slower than others wait for at most one such request in the end.
pub(crate) const CUT_BYTES: u64 = 256 << 10;

/// Layout, generation and capabilities.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) layout: FileLayout,
    pub(super) generation: Generation,
    pub(super) read: Capabilities,
    pub(super) write: Capabilities,
}

/// The capabilities for each target. Each page of a layout brings its own capability for its
/// targets.
#[derive(Clone, Debug, Default)]
pub(super) struct Capabilities {
    /// For each target, the last capability that names it, with its signature.
    of_targets: BTreeMap<TargetId, (Arc<SignedCapability>, Mac)>,
    /// For segments with several copies, the capability that came with them. A request needs
    /// signatures of one capability for all copies, and the last capabilities of two targets may be
    /// different ones, neither of which names both.
    of_segments: BTreeMap<SegmentIndex, Arc<SignedCapability>>,
}

impl Capabilities {
    pub(super) fn is_empty(&self) -> bool {
        self.of_targets.is_empty()
    }

    /// Adds a capability that came with these segments.
    fn take(&mut self, signed: &Arc<SignedCapability>, segments: &[Segment]) {
        self.of_targets.extend(signed.macs.iter().map(|(t, mac)| (*t, (signed.clone(), *mac))));
        let mirrored = segments.iter().filter(|segment| may_be_mirrored(segment));
        self.of_segments.extend(mirrored.map(|segment| (segment.index, signed.clone())));
    }

    /// Removes segments that are no longer in the layout.
    fn keep_only(&mut self, layout: &FileLayout) {
        if self.of_segments.len() > layout.segments.len() {
            self.of_segments.retain(|index, _| segment_of(layout, *index).is_some());
        }
    }
}

/// Whether the segment's columns may have several copies.
fn may_be_mirrored(segment: &Segment) -> bool {
    segment.columns.first().is_some_and(|column| column.targets.len() > 1)
}

/// The segment with this index. Indexes ascend with the offset.
fn segment_of(layout: &FileLayout, index: SegmentIndex) -> Option<&Segment> {
    let at = layout.segments.binary_search_by_key(&index, |segment| segment.index).ok()?;
    Some(&layout.segments[at])
}

impl OpenState {
    /// Takes over the reply to a later open, create or setattr of the file.
    pub(crate) fn update(&self, open: &OpenFile) {
        self.change(|granted| {
            let end = covered_bytes(&open.layout);
            let old = std::mem::replace(&mut granted.layout, open.layout.clone());
            // The reply has the first page only: what is known of the others
            // stays, if it is of the same layout.
            if open.more_segments && old.epoch == open.layout.epoch {
                granted.layout.segments.extend(old.segments.into_iter().filter(|s| s.start >= end));
            }
            granted.generation = open.attr.generation;
        });
        self.take_capability(&open.capability, &open.layout.segments);
        self.saw_attr(&open.attr);
        self.reader().clear();
    }

    /// Adds a capability that came with these segments.
    pub(super) fn take_capability(&self, capability: &SignedCapability, segments: &[Segment]) {
        let rights = capability.capability.rights;
        let signed = Arc::new(capability.clone());
        self.change(|granted| {
            let Granted { layout, read, write, .. } = granted;
            for (held, right) in [(read, Rights::READ), (write, Rights::WRITE)] {
                if rights.allow(right) {
                    held.take(&signed, segments);
                    held.keep_only(layout);
                }
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Granted)) {
        let mut slot = self.granted.write();
        change(Arc::make_mut(&mut slot));
    }

    pub(super) fn granted(&self) -> Arc<Granted> {
        self.granted.read().clone()
    }

    /// The layout as last seen.
    pub(crate) fn layout(&self) -> FileLayout {
        self.granted().layout.clone()
    }

    /// Plans a call: which servers it needs.
    pub(crate) fn plan(&self, offset: u64, len: u64) -> Result<Plan> {
        plan_range(self.id, &self.granted().layout, offset, len)
    }

    /// Plans a read of any copies, cut into requests so small that each disk has the next one soon.
    pub(crate) fn plan_cut(&self, offset: u64, len: u64) -> Result<Plan> {
        plan_range_cut(self.id, &self.granted().layout, (offset, len), CUT_BYTES)
    }

    pub(crate) fn generation(&self) -> Generation {
        self.granted().generation
    }

    /// Runs `f` on the segment of an object, as last seen.
    pub(crate) fn with_segment<T>(
        &self,
        object: ObjectId,
        look: impl FnOnce(&Segment) -> T,
    ) -> Option<T> {
        segment_of(&self.granted().layout, object.segment).map(look)
    }

    /// The present protocol for writing its copies.
    pub(crate) fn protocol(&self) -> Duplication {
        self.granted().layout.acting
    }

    /// The proof for a request to an object. With `Rights::NONE` any capability suffices.
    pub(crate) fn access(&self, place: &Place, needed: Rights) -> Result<Access> {
        let granted = self.granted();
        let held = match needed {
            Rights::READ => &granted.read,
            Rights::WRITE => &granted.write,
            _ if granted.write.is_empty() => &granted.read,
            _ => &granted.write,
        };
        if held.is_empty() {
            let what = "the file is not open for this kind of access";
            return Err(Error::new(ErrorKind::BadHandle, what));
        }
        // Known for other targets only: a page of the layout is missing.
        let missing = || Error::from(ErrorKind::BadCapability);
        let segment = segment_of(&granted.layout, place.object.segment);
        let mirrored =
            segment.filter(|s| may_be_mirrored(s) && is_mirrored(s, place.object.column));
        let (signed, mac, copies) = match mirrored {
            None => {
                let (signed, mac) = held.of_targets.get(&place.target).ok_or_else(missing)?;
                (signed, *mac, Vec::new())
            }
            Some(segment) => {
                let signed = held.of_segments.get(&segment.index).ok_or_else(missing)?;
                let copies = copies_of(segment, place, signed)?;
                (signed, signed.mac_for(place.target).ok_or_else(missing)?, copies)
            }
        };
        Ok(Access {
            target: place.target,
            object: place.object,
            generation: granted.generation,
            capability: signed.capability.clone(),
            mac,
            copies,
            relay: None,
        })
    }

    /// Whether this client may write to the file.
    pub(crate) fn is_writable(&self) -> bool {
        !self.granted().write.is_empty()
    }

    /// Renews layout, generation and capabilities, and the cluster map. Attributes are not renewed:
    /// a request for them waits for clients that give up a lease, and this client may have to write
    /// before it gives up its own.
    pub(crate) fn refresh(&self, inner: &Inner, ctx: &Context) -> Result<()> {
        inner.servers.refresh_map(&inner.session, false, inner.config.request_timeout_ms)?;
        let granted = self.granted();
        let mut oldest = None;
        for rights in [Rights::READ, Rights::WRITE] {
            let had = if rights == Rights::READ { &granted.read } else { &granted.write };
            if !had.is_empty() {
                let generation = self.fetch_layout(inner, ctx, 0, rights)?;
                oldest.get_or_insert(generation);
            }
        }
        if let Some(generation) = oldest {
            self.change(|granted| granted.generation = generation);
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

    fn take_page(&self, page: &LayoutPage, asked: u64) {
        self.change(|granted| {
            let from = page.layout.segments.first().map_or(asked, |s| s.start);
            granted.layout.kind = page.layout.kind;
            granted.layout.base = page.layout.base;
            granted.layout.epoch = page.layout.epoch;
            granted.layout.duplication = page.layout.duplication;
            granted.layout.acting = page.layout.acting;
            granted.layout.placement = page.layout.placement;
            granted.layout.segments.retain(|s| s.start < from);
            granted.layout.segments.extend(page.layout.segments.iter().cloned());
        });
        self.take_capability(&page.capability, &page.layout.segments);
    }

    /// Whether the layout covers all bytes before this one.
    pub(crate) fn covers(&self, end: u64) -> bool {
        end <= covered_bytes(&self.granted().layout)
    }

    /// Whether the chunks of the file may go to any target.
    pub(crate) fn is_graduated(&self) -> bool {
        self.granted().layout.placement == Placement::Graduated
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
        let mut covered = covered_bytes(&self.granted().layout);
        let mut given = BTreeMap::new();
        while covered < range.end {
            let (chunk_bytes, is_graduated) = {
                let layout = &self.granted().layout;
                let last = layout.segments.last().and_then(|last| last.len);
                (last.unwrap_or_default(), layout.placement == Placement::Graduated)
            };
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
            self.take_page(&page, covered);
            let now = covered_bytes(&self.granted().layout);
            if now <= covered {
                return Err(Error::new(ErrorKind::Internal, "the layout was not extended"));
            }
            covered = now;
        }
        Ok(())
    }
}

/// All copies of the column of a request, with the signatures of one capability.
fn copies_of(
    segment: &Segment,
    place: &Place,
    signed: &SignedCapability,
) -> Result<Vec<CopyAccess>> {
    let ObjectId { column, copy: asked, .. } = place.object;
    if segment.target(usize::from(column.0), asked) != Some(place.target) {
        // Moved since the copy was chosen.
        return Err(ErrorKind::Stale.into());
    }
    let targets = segment.member(usize::from(column.0)).map_or(&[][..], |c| &c.targets);
    let copy = |(copy, target): (usize, &TargetId)| {
        let mac = match *target {
            // In the place of a copy that has gone.
            TargetId::NONE => Mac::default(),
            target => signed.mac_for(target).ok_or(ErrorKind::BadCapability)?,
        };
        let filling = segment.is_filling(column, CopyIndex(copy as u8));
        Ok(CopyAccess { target: *target, mac, filling })
    };
    targets.iter().enumerate().map(copy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{
        Column, ColumnIndex, Epoch, FileId, Filling, Scheme, SegmentState, SessionId,
    };
    use weir_wire::Key;
    use weir_wire::capability::Capability;

    fn segment(index: u32, targets: &[u32]) -> Segment {
        Segment {
            index: SegmentIndex(index),
            start: u64::from(index) << 20,
            len: Some(1 << 20),
            stripe_unit_bytes: 65536,
            columns: vec![Column { targets: targets.iter().map(|t| TargetId(*t)).collect() }],
            filling: Vec::new(),
            parities: Vec::new(),
            scheme: Scheme::Copies,
            state: SegmentState::Open,
            epoch: Epoch(1),
        }
    }

    /// A capability of its own for a page of these segments.
    fn signed(expires_unix_ms: u64, segments: &[Segment]) -> Arc<SignedCapability> {
        let capability = Capability {
            file: FileId(5),
            session: SessionId(1),
            rights: Rights::READ,
            version: 1,
            key_generation: weir_types::KeyGeneration(1),
            expires_unix_ms,
        };
        let columns = segments.iter().flat_map(|segment| &segment.columns);
        let targets: std::collections::BTreeSet<_> = columns.flat_map(|c| &c.targets).collect();
        let key = Key::from_bytes([1; 32]);
        let macs = targets.into_iter().map(|t| (*t, capability.sign(*t, &key))).collect();
        Arc::new(SignedCapability { capability, macs })
    }

    fn shown(held: &Capabilities, segment: &Segment, copy: u8) -> Result<Vec<CopyAccess>> {
        let mut place = Place::of(FileId(5), segment, ColumnIndex(0)).unwrap();
        place.object.copy = CopyIndex(copy);
        place.target = segment.columns[0].targets[usize::from(copy)];
        copies_of(segment, &place, &held.of_segments[&segment.index])
    }

    /// Pages overlap in their targets, and neither capability is good for all of the other.
    #[test]
    fn all_copies_of_a_request_are_shown_with_the_codes_of_one_capability() {
        let pages = [vec![segment(1, &[1, 2])], vec![segment(2, &[2, 3]), segment(3, &[3, 2])]];
        let mut held = Capabilities::default();
        for (n, page) in pages.iter().enumerate() {
            held.take(&signed(n as u64 + 1, page), page);
        }
        for segment in pages.iter().flatten() {
            let capability = &held.of_segments[&segment.index].capability;
            for copy in shown(&held, segment, 1).unwrap() {
                assert_eq!(copy.mac, capability.sign(copy.target, &Key::from_bytes([1; 32])));
            }
        }
    }

    #[test]
    fn a_copy_that_has_moved_or_is_not_covered_is_not_asked_for() {
        let old = segment(1, &[1, 2]);
        let mut held = Capabilities::default();
        let page = std::slice::from_ref(&old);
        held.take(&signed(1, page), page);
        let new = Segment {
            filling: vec![Filling { column: ColumnIndex(0), copy: CopyIndex(2) }],
            ..segment(1, &[3, 2, 4])
        };
        let mut place = Place::of(FileId(5), &old, ColumnIndex(0)).unwrap();
        let error = copies_of(&new, &place, &held.of_segments[&new.index]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Stale);
        place.target = TargetId(3);
        let error = copies_of(&new, &place, &held.of_segments[&new.index]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadCapability);
        let page = std::slice::from_ref(&new);
        held.take(&signed(2, page), page);
        let filling: Vec<_> =
            shown(&held, &new, 0).unwrap().iter().map(|copy| copy.filling).collect();
        assert_eq!(filling, [false, false, true]);
    }

    #[test]
    fn segments_with_one_copy_cost_nothing_more() {
        let mut held = Capabilities::default();
        let one = [segment(1, &[1])];
        held.take(&signed(1, &one), &one);
        assert!(held.of_segments.is_empty() && held.of_targets.contains_key(&TargetId(1)));
    }
}
