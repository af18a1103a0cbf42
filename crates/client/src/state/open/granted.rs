//! What the metadata server has granted for a file: layout, generation and capabilities.

use crate::core::copies::is_mirrored;
use crate::core::plan::Place;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_types::{
    CopyIndex, Epoch, Error, ErrorKind, FileLayout, Generation, ObjectId, Result, Segment,
    SegmentIndex, TargetId,
};
use weir_wire::capability::{Rights, SignedCapability};
use weir_wire::data::{Access, CopyAccess};
use weir_wire::key::Mac;

/// Layout, generation and capabilities.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) layout: FileLayout,
    /// Epoch of the newest layout that was seen.
    pub(super) newest: Epoch,
    pub(super) generation: Generation,
    /// Whether the next generation counts though it be older.
    pub(super) begins_anew: bool,
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
    pub(super) fn take(&mut self, signed: &Arc<SignedCapability>, segments: &[Segment]) {
        self.of_targets.extend(signed.macs.iter().map(|(t, mac)| (*t, (signed.clone(), *mac))));
        let mirrored = segments.iter().filter(|segment| may_be_mirrored(segment));
        self.of_segments.extend(mirrored.map(|segment| (segment.index, signed.clone())));
    }

    /// Removes segments that are no longer in the layout.
    pub(super) fn keep_only(&mut self, layout: &FileLayout) {
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
pub(super) fn segment_of(layout: &FileLayout, index: SegmentIndex) -> Option<&Segment> {
    let at = layout.segments.binary_search_by_key(&index, |segment| segment.index).ok()?;
    Some(&layout.segments[at])
}

impl Granted {
    /// Takes over a generation, unless a later reply had a newer one.
    pub(super) fn set_generation(&mut self, generation: Generation) {
        if std::mem::take(&mut self.begins_anew) {
            self.generation = generation;
        } else {
            self.generation = self.generation.max(generation);
        }
    }

    /// Adds a capability that came with these segments.
    pub(super) fn take(&mut self, capability: &SignedCapability, segments: &[Segment]) {
        let rights = capability.capability.rights;
        let signed = Arc::new(capability.clone());
        let Self { layout, read, write, .. } = self;
        for (held, right) in [(read, Rights::READ), (write, Rights::WRITE)] {
            if rights.allow(right) {
                held.take(&signed, segments);
                held.keep_only(layout);
            }
        }
    }

    /// The proof for a request to an object. With `Rights::NONE` any capability suffices.
    pub(super) fn access(&self, place: &Place, needed: Rights) -> Result<Access> {
        let held = match needed {
            Rights::READ => &self.read,
            Rights::WRITE => &self.write,
            _ if self.write.is_empty() => &self.read,
            _ => &self.write,
        };
        if held.is_empty() {
            let what = "the file is not open for this kind of access";
            return Err(Error::new(ErrorKind::BadHandle, what));
        }
        // Known for other targets only: a page of the layout is missing.
        let missing = || Error::from(ErrorKind::BadCapability);
        let segment = segment_of(&self.layout, place.object.segment);
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
            generation: self.generation,
            capability: signed.capability.clone(),
            mac,
            copies,
            relay: None,
        })
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
            user: 0,
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
