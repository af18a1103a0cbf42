//! Layout and capabilities of an open file, as last seen.

use super::OpenState;
use super::granted::{Granted, segment_of};
use crate::core::plan::{Place, Plan, plan_range, plan_range_cut, plan_regions};
use std::sync::Arc;
use weir_layout::{RegionList, covered_bytes, segment_at};
use weir_types::{
    Duplication, Epoch, FileLayout, Generation, ObjectId, Placement, Result, Segment,
};
use weir_wire::capability::{Rights, SignedCapability};
use weir_wire::data::Access;
use weir_wire::meta::{LayoutPage, OpenFile};

/// Bytes of a column in one request where the copy is chosen late. Readers of disks that are far
/// slower than others wait for at most one such request in the end.
pub(crate) const CUT_BYTES: u64 = 256 << 10;

impl OpenState {
    /// Takes over the reply to a later open, create or setattr of the file.
    pub(crate) fn update(&self, open: &OpenFile) {
        let overtaken = self.change(|granted| {
            granted.set_generation(open.attr.generation);
            if open.layout.epoch < granted.newest {
                return true;
            }
            let end = covered_bytes(&open.layout);
            let old = std::mem::replace(&mut granted.layout, open.layout.clone());
            // The reply has the first page only: what is known of the others
            // stays, if it is of the same layout.
            if open.more_segments && old.epoch == open.layout.epoch {
                granted.layout.segments.extend(old.segments.into_iter().filter(|s| s.start >= end));
            }
            granted.newest = granted.layout.epoch;
            false
        });
        self.saw_attr(&open.attr);
        if overtaken {
            return;
        }
        self.take_capability(&open.capability, &open.layout.segments);
        self.reader().clear();
    }

    /// Adds a capability that came with these segments.
    fn take_capability(&self, capability: &SignedCapability, segments: &[Segment]) {
        self.change(|granted| granted.take(capability, segments));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Granted) -> T) -> T {
        let mut slot = self.granted.write();
        change(Arc::make_mut(&mut slot))
    }

    fn granted(&self) -> Arc<Granted> {
        self.granted.read().clone()
    }

    /// The layout as last seen.
    pub(crate) fn layout(&self) -> FileLayout {
        self.granted().layout.clone()
    }

    /// Whether a newer layout was seen than the last one: replies may overtake one another.
    pub(crate) fn is_behind(&self) -> bool {
        let granted = self.granted();
        granted.layout.epoch < granted.newest
    }

    /// Runs `look` on the layout as last seen.
    pub(crate) fn with_layout<T>(&self, look: impl FnOnce(&FileLayout) -> T) -> T {
        look(&self.granted().layout)
    }

    /// The first byte that the layout does not cover.
    pub(crate) fn covered(&self) -> u64 {
        covered_bytes(&self.granted().layout)
    }

    /// The end of the segment that has this byte; if none has it, the byte itself.
    pub(crate) fn segment_end(&self, offset: u64) -> u64 {
        let granted = self.granted();
        let at = segment_at(&granted.layout, offset);
        at.and_then(|at| granted.layout.segments.get(at)).map_or(offset, Segment::end)
    }

    /// Plans a call: which servers it needs.
    pub(crate) fn plan(&self, offset: u64, len: u64) -> Result<Plan> {
        plan_range(self.id, &self.granted().layout, offset, len)
    }

    /// Plans a call on strided regions.
    pub(crate) fn plan_regions(&self, regions: &RegionList) -> Result<Plan> {
        plan_regions(self.id, &self.granted().layout, regions)
    }

    /// Plans a read of any copies, cut into requests so small that each disk has the next one soon.
    pub(crate) fn plan_cut(&self, offset: u64, len: u64) -> Result<Plan> {
        plan_range_cut(self.id, &self.granted().layout, (offset, len), CUT_BYTES)
    }

    pub(crate) fn generation(&self) -> Generation {
        self.granted().generation
    }

    /// Runs `look` on the segment of an object, as last seen.
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
        self.granted().access(place, needed)
    }

    /// Whether this client may write to the file.
    pub(crate) fn is_writable(&self) -> bool {
        !self.granted().write.is_empty()
    }

    /// Takes over a page of the layout that was asked for from an offset on. Returns `false` if
    /// another reply has overtaken it.
    pub(crate) fn take_page(&self, page: &LayoutPage, asked: u64) -> bool {
        let taken = self.change(|granted| {
            if page.layout.epoch < granted.newest {
                return false;
            }
            let from = page.layout.segments.first().map_or(asked, |s| s.start);
            let end = covered_bytes(&page.layout);
            // Others read by what is known of the pages behind, while these are asked for.
            let goes_on = page.more_segments && granted.layout.epoch == page.layout.epoch;
            granted.layout.kind = page.layout.kind;
            granted.layout.base = page.layout.base;
            granted.layout.epoch = page.layout.epoch;
            granted.layout.duplication = page.layout.duplication;
            granted.layout.acting = page.layout.acting;
            granted.layout.placement = page.layout.placement;
            let segments = &mut granted.layout.segments;
            let behind: Vec<Segment> =
                segments.iter().filter(|s| goes_on && s.start >= end).cloned().collect();
            segments.retain(|s| s.start < from);
            segments.extend(page.layout.segments.iter().cloned().chain(behind));
            granted.newest = granted.layout.epoch;
            true
        });
        if taken {
            self.take_capability(&page.capability, &page.layout.segments);
        }
        taken
    }

    /// Which capabilities this client has.
    pub(crate) fn rights(&self) -> impl Iterator<Item = Rights> {
        let granted = self.granted();
        let has = [!granted.read.is_empty(), !granted.write.is_empty()];
        let all = [Rights::READ, Rights::WRITE].into_iter().zip(has);
        all.filter(|(_, has)| *has).map(|(rights, _)| rights)
    }

    /// Sets the generation under which requests are made, unless a later reply had a newer one.
    pub(crate) fn set_generation(&self, generation: Generation) {
        self.change(|granted| granted.set_generation(generation));
    }

    /// The next layout and generation count, whatever was seen: the metadata server was started anew,
    /// and may not know any more what it said last.
    pub(super) fn any_layout_counts(&self) {
        self.change(|granted| (granted.newest, granted.begins_anew) = (Epoch(0), true));
    }

    /// Whether the layout covers all bytes before this one.
    pub(crate) fn covers(&self, end: u64) -> bool {
        end <= self.covered()
    }

    /// Whether the chunks of the file may go to any target.
    pub(crate) fn is_graduated(&self) -> bool {
        self.granted().layout.placement == Placement::Graduated
    }
}
