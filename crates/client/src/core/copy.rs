//! Plans a copy between files as requests to the servers of its destination. Bytes within one unit
//! on both sides go from one object to another, and all bytes between the same two objects go in
//! one request.

use super::plan::Place;
use std::collections::BTreeMap;
use std::ops::Range;
use weir_layout::{locate, segment_at};
use weir_types::limits::{BLOCK_BYTES, MAX_COPY_BYTES, MAX_COPY_PIECES};
use weir_types::{Error, ErrorKind, FileId, FileLayout, Result};
use weir_wire::data::CopyPiece;

/// The most bytes of one call, so that it ends in time and holds its leases no longer.
pub const MAX_COPY_CALL_BYTES: u64 = 128 << 20;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyPart {
    /// The source.
    pub from: Place,
    /// The destination.
    pub to: Place,
    /// First byte of the destination segment in its file.
    pub segment_start: u64,
    /// The pieces, within the limits of a request.
    pub pieces: Vec<CopyPiece>,
}

/// Consecutive bytes of a file in one object.
struct Stretch {
    place: Place,
    segment_start: u64,
    /// Offset in the object.
    offset: u64,
    len: u64,
}

/// The place of the bytes from `offset` on, as far as they are in one object.
fn place(file: FileId, layout: &FileLayout, offset: u64) -> Result<Stretch> {
    let lacks = || {
        let what = format!("file {file}: the layout does not cover byte {offset}");
        Error::new(ErrorKind::Stale, what)
    };
    let segment = &layout.segments[segment_at(layout, offset).ok_or_else(lacks)?];
    let stripe = segment.stripe();
    let found = locate(stripe, offset - segment.start);
    let place = Place::of(file, segment, found.column).ok_or_else(lacks)?;
    let unit = u64::from(stripe.unit_bytes);
    let in_unit = if stripe.columns == 1 { u64::MAX } else { unit - found.object_offset % unit };
    Ok(Stretch {
        place,
        segment_start: segment.start,
        offset: found.object_offset,
        len: in_unit.min(segment.end() - offset),
    })
}

/// The requests of a copy of `range` of one file to `to_offset` of another (or the same). Requests
/// to different objects alternate, so that all servers work at once.
///
/// # Errors
/// `Stale` if one of the layouts does not cover the bytes.
pub fn plan_copy(
    (from, from_layout): (FileId, &FileLayout),
    range: Range<u64>,
    (to, to_layout): (FileId, &FileLayout),
    to_offset: u64,
) -> Result<Vec<CopyPart>> {
    let mut pairs: BTreeMap<_, Vec<CopyPart>> = BTreeMap::new();
    let mut at = range.start;
    while at < range.end {
        let source = place(from, from_layout, at)?;
        let dest = place(to, to_layout, to_offset + (at - range.start))?;
        let len = source.len.min(dest.len).min(range.end - at);
        let (source_of, dest_of) = (source.place, dest.place);
        let parts = pairs.entry((source_of.object, dest_of.object)).or_default();
        let fresh = || CopyPart {
            from: source_of,
            to: dest_of,
            segment_start: dest.segment_start,
            pieces: Vec::new(),
        };
        add(parts, fresh, CopyPiece { from: source.offset, to: dest.offset, len });
        at += len;
    }
    let mut parts: Vec<(usize, CopyPart)> =
        pairs.into_values().flat_map(|parts| parts.into_iter().enumerate()).collect();
    parts.sort_by_key(|(turn, _)| *turn);
    Ok(parts.into_iter().map(|(_, part)| part).collect())
}

/// Adds a piece to the last of the requests, as far as that has space.
fn add(parts: &mut Vec<CopyPart>, fresh: impl Fn() -> CopyPart, piece: CopyPiece) {
    let mut left = piece;
    while left.len > 0 {
        let used = |part: &CopyPart| part.pieces.iter().map(|piece| piece.len).sum::<u64>();
        let room = parts.last().map_or(0, |last| {
            let full = last.pieces.len() >= MAX_COPY_PIECES;
            if full { 0 } else { MAX_COPY_BYTES - used(last) }
        });
        let room = whole_blocks(left.to, room, left.len);
        let Some(last) = parts.last_mut().filter(|_| room > 0) else {
            parts.push(fresh());
            continue;
        };
        match last.pieces.last_mut() {
            Some(before)
                if before.from + before.len == left.from && before.to + before.len == left.to =>
            {
                before.len += room;
            }
            _ => last.pieces.push(CopyPiece { len: room, ..left }),
        }
        left = CopyPiece { from: left.from + room, to: left.to + room, len: left.len - room };
    }
}

/// How many bytes of a piece go into a request with this much space: all, or up to the end of a
/// block, so that no two requests write to the same block.
fn whole_blocks(to: u64, room: u64, len: u64) -> u64 {
    if len <= room {
        return len;
    }
    let end = (to + room) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    end.saturating_sub(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_types::{
        Column, Epoch, LayoutKind, Scheme, Segment, SegmentIndex, SegmentState, TargetId,
    };

    fn layout(units: &[(u64, u32, u16)]) -> FileLayout {
        let mut start = 0;
        let segments = units.iter().enumerate().map(|(index, &(len, unit, columns))| {
            let column = |c| Column { targets: vec![TargetId(u32::from(c) + 1)] };
            let segment = Segment {
                index: SegmentIndex(index as u32),
                start,
                len: Some(len),
                stripe_unit_bytes: unit,
                columns: (0..columns).map(column).collect(),
                filling: Vec::new(),
                parities: Vec::new(),
                scheme: Scheme::Copies,
                state: SegmentState::Open,
                epoch: Epoch(1),
            };
            start += len;
            segment
        });
        let segments = segments.collect();
        FileLayout {
            kind: LayoutKind::Chunked,
            base: 0,
            epoch: Epoch(1),
            duplication: weir_types::Duplication::default(),
            acting: weir_types::Duplication::default(),
            placement: weir_types::Placement::Chained,
            segments,
        }
    }

    #[test]
    fn equal_layouts_need_one_piece_for_each_object() {
        let one = layout(&[(1 << 30, 65_536, 4)]);
        let parts = plan_copy((FileId(1), &one), 0..8 << 20, (FileId(2), &one), 0).unwrap();
        assert_eq!(parts.len(), 4);
        for part in parts {
            assert_eq!(part.pieces, [CopyPiece { from: 0, to: 0, len: 2 << 20 }]);
            assert_eq!(part.from.object.column, part.to.object.column);
        }
    }

    #[test]
    fn requests_are_no_longer_than_they_may_be_and_take_turns() {
        let (one, two) = (layout(&[(1 << 40, 65_536, 1)]), layout(&[(1 << 40, 65_536, 2)]));
        let parts =
            plan_copy((FileId(1), &one), 100..(32 << 20) + 100, (FileId(2), &two), 7).unwrap();
        let order: Vec<_> = parts.iter().map(|part| part.to.target.0).collect();
        assert_eq!(order[..6], [1, 2, 1, 2, 1, 2]);
        let beyond =
            plan_copy((FileId(1), &one), (1 << 40) - 1..(1 << 40) + 1, (FileId(2), &two), 0);
        assert_eq!(beyond.unwrap_err().kind, ErrorKind::Stale);
    }

    proptest! {
        #[test]
        fn every_byte_goes_where_it_belongs_once(
            from_units in proptest::collection::vec((1u64..300_000, 1u32..4, 1u16..4), 1..4),
            to_units in proptest::collection::vec((1u64..300_000, 1u32..4, 1u16..4), 1..4),
            start in 0u64..100_000, to in 0u64..100_000, len in 1u64..400_000
        ) {
            let scale = |units: &[(u64, u32, u16)]| -> Vec<_> {
                let mut all: Vec<_> = units.iter().map(|&(l, u, c)| (l, u * 4096, c)).collect();
                all.push((1 << 30, 8192, 3));
                all
            };
            let (one, two) = (layout(&scale(&from_units)), layout(&scale(&to_units)));
            let range = start..start + len;
            let parts = plan_copy((FileId(1), &one), range, (FileId(2), &two), to).unwrap();
            let mut seen = BTreeMap::new();
            for part in &parts {
                prop_assert!(part.pieces.len() <= MAX_COPY_PIECES && !part.pieces.is_empty());
                prop_assert!(part.pieces.iter().map(|p| p.len).sum::<u64>() <= MAX_COPY_BYTES);
                for piece in &part.pieces {
                    seen.insert((part.to.object, piece.to), (part.from.object, piece.from, piece.len));
                }
            }
            for n in (0..len).step_by(997).chain([len - 1]) {
                let source = place(FileId(1), &one, start + n).unwrap();
                let dest = place(FileId(2), &two, to + n).unwrap();
                let found = seen.range(..=(dest.place.object, dest.offset)).next_back();
                let ((object, at), (from, from_at, piece_len)) = found.unwrap();
                prop_assert!(*object == dest.place.object && dest.offset < at + piece_len);
                prop_assert_eq!((*from, from_at + (dest.offset - at)), (source.place.object, source.offset));
            }
            let total: u64 = seen.values().map(|(.., len)| len).sum();
            prop_assert_eq!(total, len);
        }
    }
}
