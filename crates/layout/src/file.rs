//! Maps ranges of a file to its segments.

use crate::stripe::{segment_len, stripe_bytes};
use std::collections::HashSet;
use weir_types::limits::{BLOCK, MAX_FILE_BYTES, MAX_PAYLOAD_BYTES, MAX_SEGMENTS};
use weir_types::{
    ColumnIndex, Error, ErrorKind, FileLayout, LayoutKind, Result, Segment, TargetId,
};

/// The part of a file range that lies in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The segment's position in `FileLayout::segments` (not its number).
    pub segment: usize,
    /// First byte, relative to the segment.
    pub offset: u64,
    /// Bytes; never 0.
    pub len: u64,
}

/// The position in `layout.segments` of the segment that holds the byte at
/// `offset` of the file; `None` if no segment has been granted there yet.
pub fn segment_at(layout: &FileLayout, offset: u64) -> Option<usize> {
    let position = layout.segments.partition_point(|segment| segment.end() <= offset);
    layout.segments.get(position).filter(|segment| segment.start <= offset).map(|_| position)
}

/// Whether the byte at `offset` of the file is the first one of an object's block. Fragments may
/// begin anywhere. `false` for fragments that are not in the layout.
pub fn begins_block(layout: &FileLayout, offset: u64) -> bool {
    match segment_at(layout, offset) {
        Some(at) => (offset - layout.segments[at].start).is_multiple_of(BLOCK),
        None => layout.kind != LayoutKind::Fragments && offset.is_multiple_of(BLOCK),
    }
}

/// The bytes of the file, from the first on, that the segments cover:
/// `MAX_FILE_BYTES` with an open-ended segment.
pub fn covered_bytes(layout: &FileLayout) -> u64 {
    layout.segments.last().map_or(0, Segment::end)
}

/// The range of `len` bytes at `offset` of the file, segment by segment.
/// Ends early where the segments end: the sum of the spans tells.
pub fn split(layout: &FileLayout, offset: u64, len: u64) -> impl Iterator<Item = Span> + '_ {
    let end = offset.saturating_add(len);
    let mut at = offset;
    let mut position = segment_at(layout, offset).unwrap_or(layout.segments.len());
    std::iter::from_fn(move || {
        loop {
            let segment = layout.segments.get(position).filter(|_| at < end)?;
            let to = segment.end().min(end);
            let span = Span {
                segment: position,
                offset: at.checked_sub(segment.start)?,
                len: to.saturating_sub(at),
            };
            position += 1;
            // A segment that was sealed while it was empty holds no bytes.
            if span.len > 0 {
                at = to;
                return Some(span);
            }
        }
    })
}

/// The size of a file whose objects have these lengths. Used to recover the size when its writer
/// died without reporting it. `object_len` returns the object length for a column of the segment at
/// a position in `layout.segments`; 0 for an object that was never made. Bytes of an object beyond
/// the end of its segment do not count.
///
/// `None` if a byte would lie beyond the largest file.
pub fn file_len(
    layout: &FileLayout,
    mut object_len: impl FnMut(usize, ColumnIndex) -> u64,
) -> Option<u64> {
    let mut size = 0;
    for (position, segment) in layout.segments.iter().enumerate() {
        let columns = 0..segment.stripe().columns;
        let lens = columns.map(|column| object_len(position, ColumnIndex(column)));
        let within = segment_len(segment.stripe(), lens)?;
        if within > 0 {
            let end = segment.start.checked_add(within)?.min(segment.end());
            size = size.max(end);
        }
    }
    (size <= MAX_FILE_BYTES).then_some(size)
}

/// The recommended size of reads and writes (`st_blksize`), bytes: whole stripes, about 1 MiB, and
/// at most one frame.
pub fn preferred_io_bytes(layout: &FileLayout) -> u32 {
    const WANTED_BYTES: u64 = 1 << 20;
    let width = layout.segments.first().map_or(WANTED_BYTES, |s| stripe_bytes(s.stripe()).max(1));
    WANTED_BYTES.next_multiple_of(width).min(MAX_PAYLOAD_BYTES as u64) as u32
}

/// Refuses a layout that no metadata server makes. Segments must begin at byte 0, follow one
/// another without gap or overlap, have distinct numbers, and put the copies of a column on
/// distinct targets. Only the last one may be open-ended. A chunked file may have no segment yet.
///
/// # Errors
/// `Protocol`, naming the segment.
pub fn check_layout(layout: &FileLayout) -> Result<()> {
    let segments = &layout.segments;
    if segments.len() > MAX_SEGMENTS {
        return Err(malformed(format!("{} segments, more than {MAX_SEGMENTS}", segments.len())));
    }
    if segments.is_empty() && layout.kind != LayoutKind::Chunked {
        return Err(malformed("it has no segment".into()));
    }
    let mut numbers = HashSet::with_capacity(segments.len());
    let mut expected_start = 0;
    for (position, segment) in segments.iter().enumerate() {
        let number = segment.index;
        if !numbers.insert(number) {
            return Err(malformed(format!("two segments have number {number}")));
        }
        if segment.start != expected_start {
            return Err(malformed(format!(
                "segment {number} begins at byte {}, not at {expected_start}",
                segment.start
            )));
        }
        check_segment(segment)?;
        if segment.len.is_none() && position + 1 < segments.len() {
            return Err(malformed(format!("segment {number} is open-ended but not the last")));
        }
        expected_start = segment.end();
    }
    Ok(())
}

fn check_segment(segment: &Segment) -> Result<()> {
    let number = segment.index;
    let end = segment.start.checked_add(segment.len.unwrap_or(0));
    if end.is_none_or(|end| end > MAX_FILE_BYTES) {
        return Err(malformed(format!("segment {number} reaches beyond the largest file")));
    }
    // A stripe map has only 16 bits for the number of columns, so the vector itself is checked.
    if segment.stripe().check().is_err() || segment.columns.len() > usize::from(u16::MAX) {
        return Err(malformed(format!(
            "segment {number} has {} columns and stripe units of {} bytes",
            segment.columns.len(),
            segment.stripe_unit_bytes
        )));
    }
    for (position, column) in segment.columns.iter().enumerate() {
        let targets: Vec<TargetId> = column.copies().map(|(_, target)| target).collect();
        let repeated = (1..targets.len()).any(|i| targets[..i].contains(&targets[i]));
        if targets.is_empty() || repeated {
            return Err(malformed(format!(
                "column {position} of segment {number} has no copy, or two on one target"
            )));
        }
    }
    Ok(())
}

fn malformed(what: String) -> Error {
    Error::new(ErrorKind::Protocol, format!("malformed layout: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_types::{Column, Epoch, Scheme, SegmentIndex, SegmentState};

    fn layout_of(lens: &[Option<u64>]) -> FileLayout {
        let mut start = 0;
        let segments = lens
            .iter()
            .enumerate()
            .map(|(i, &len)| {
                let segment = Segment {
                    index: SegmentIndex(i as u32),
                    start,
                    len,
                    stripe_unit_bytes: 65_536,
                    columns: vec![Column { targets: vec![TargetId(i as u32)] }],
                    filling: Vec::new(),
                    parities: Vec::new(),
                    scheme: Scheme::Copies,
                    state: SegmentState::Open,
                    epoch: Epoch(1),
                };
                start = segment.end();
                segment
            })
            .collect();
        FileLayout {
            kind: LayoutKind::Fragments,
            base: 0,
            epoch: Epoch(1),
            duplication: weir_types::Duplication::default(),
            acting: weir_types::Duplication::default(),
            placement: weir_types::Placement::Chained,
            segments,
        }
    }

    proptest! {
        #[test]
        fn a_range_is_split_into_every_byte_that_is_covered(
            lens in proptest::collection::vec(0u64..50, 1..8), open in any::<bool>(),
            offset in 0u64..300, len in 0u64..300,
        ) {
            let mut lens: Vec<Option<u64>> = lens.into_iter().map(Some).collect();
            if open {
                lens.push(None);
            }
            let layout = layout_of(&lens);
            check_layout(&layout).unwrap();
            let mut at = offset;
            for span in split(&layout, offset, len) {
                let segment = &layout.segments[span.segment];
                prop_assert!(span.len > 0);
                prop_assert_eq!(segment.start + span.offset, at);
                prop_assert_eq!(segment_at(&layout, at), Some(span.segment));
                at += span.len;
                prop_assert!(at <= segment.end());
                prop_assert_eq!(segment_at(&layout, at - 1), Some(span.segment));
            }
            let covered = (offset + len).min(covered_bytes(&layout));
            prop_assert_eq!(at, covered.max(offset));
            prop_assert_eq!(segment_at(&layout, offset).is_some(), offset < covered_bytes(&layout));
        }
    }

    proptest! {
        /// A file of one striped segment, of fragments, or of chunks with gaps ends after the last
        /// byte that was written.
        #[test]
        fn a_size_is_found_again_from_the_objects(
            kinds in proptest::collection::vec((1u64..400_000, 1usize..5, 1u32..4), 1..6),
            open in any::<bool>(),
            writes in proptest::collection::vec((0.0f64..1.0, 1u64..5000), 0..12),
        ) {
            let mut lens: Vec<_> = kinds.iter().map(|(len, ..)| Some(*len)).collect();
            if open {
                *lens.last_mut().unwrap() = None;
            }
            let mut layout = layout_of(&lens);
            for (segment, (_, columns, blocks)) in layout.segments.iter_mut().zip(&kinds) {
                segment.stripe_unit_bytes = blocks * 4096;
                segment.columns =
                    (0..*columns).map(|t| Column { targets: vec![TargetId(t as u32)] }).collect();
            }
            check_layout(&layout).unwrap();
            let reach = covered_bytes(&layout).min(2_500_000);
            let mut objects = std::collections::BTreeMap::new();
            let mut size = 0;
            for (at, len) in writes {
                let offset = (at * reach as f64) as u64;
                for span in split(&layout, offset, len) {
                    let segment = &layout.segments[span.segment];
                    for byte in span.offset..span.offset + span.len {
                        let place = crate::locate(segment.stripe(), byte);
                        let held = objects.entry((span.segment, place.column)).or_insert(0u64);
                        *held = (place.object_offset + 1).max(*held);
                        size = size.max(segment.start + byte + 1);
                    }
                }
            }
            let of = |s, c| objects.get(&(s, c)).copied().unwrap_or(0);
            prop_assert_eq!(file_len(&layout, of), Some(size));
        }
    }

    #[test]
    fn an_object_longer_than_its_segment_makes_no_file_longer_than_that() {
        let layout = layout_of(&[Some(10), Some(20), None]);
        assert_eq!(file_len(&layout, |s, _| if s == 1 { 99_999 } else { 0 }), Some(30));
        assert_eq!(file_len(&layout, |s, _| if s == 2 { 7 } else { 0 }), Some(37));
        assert_eq!(file_len(&layout, |_, _| 0), Some(0));
        assert_eq!(file_len(&layout, |_, _| u64::MAX), None);
    }

    #[test]
    fn malformed_layouts_are_refused() {
        let good = layout_of(&[Some(10), Some(0), Some(5), None]);
        check_layout(&good).unwrap();
        type Damage = fn(&mut FileLayout);
        let damages: [(&str, Damage); 11] = [
            ("gap", |l| l.segments[2].start += 1),
            ("overlap", |l| l.segments[2].start -= 1),
            ("does not begin at 0", |l| drop(l.segments.remove(0))),
            ("open-ended in the middle", |l| l.segments[0].len = None),
            ("repeated number", |l| l.segments[1].index = SegmentIndex(0)),
            ("no column", |l| l.segments[1].columns.clear()),
            ("wrapped column count", |l| {
                l.segments[1].columns = vec![Column { targets: vec![TargetId(1)] }; 65_537]
            }),
            ("no copy", |l| l.segments[1].columns[0].targets.clear()),
            ("copies on one target", |l| l.segments[1].columns[0].targets.push(TargetId(1))),
            ("bad unit", |l| l.segments[1].stripe_unit_bytes = 100),
            ("too far", |l| l.segments[2].len = Some(u64::MAX)),
        ];
        for (what, damage) in damages {
            let mut bad = good.clone();
            damage(&mut bad);
            assert!(check_layout(&bad).is_err(), "{what}");
        }
        assert!(check_layout(&layout_of(&[])).is_err());
        assert!(check_layout(&FileLayout { kind: LayoutKind::Chunked, ..layout_of(&[]) }).is_ok());
    }

    #[test]
    fn the_end_of_the_largest_file_is_within_reach() {
        let layout = layout_of(&[Some(10), None]);
        assert_eq!(segment_at(&layout, MAX_FILE_BYTES - 1), Some(1));
        assert_eq!(segment_at(&layout, MAX_FILE_BYTES), None);
        assert_eq!(split(&layout, 5, u64::MAX).map(|s| s.len).sum::<u64>(), MAX_FILE_BYTES - 5);
    }

    #[test]
    fn programs_are_told_to_use_whole_stripes() {
        let with = |unit: u32, columns: usize| {
            let mut layout = layout_of(&[None]);
            layout.segments[0].stripe_unit_bytes = unit;
            layout.segments[0].columns = vec![Column { targets: vec![TargetId(1)] }; columns];
            preferred_io_bytes(&layout)
        };
        assert_eq!(with(65_536, 4), 1 << 20);
        assert_eq!(with(65_536, 3), 6 * 3 * 65_536);
        assert_eq!(with(1 << 30, 1024), 4 << 20);
    }

    #[test]
    fn blocks_begin_where_those_of_objects_do() {
        let layout = layout_of(&[Some(10_000), Some(4096), None]);
        let begins = [0, 4096, 8192, 10_000, 14_096, 14_096 + 4096];
        begins.iter().for_each(|at| assert!(begins_block(&layout, *at), "{at}"));
        for at in [9_999, 10_000 + 2288, 1 << 20] {
            assert!(!begins_block(&layout, at), "{at}");
        }
        let known = layout_of(&[Some(10_000)]);
        assert!(!begins_block(&known, 12_288), "who knows where the next one begins");
        let chunks = FileLayout { kind: LayoutKind::Chunked, ..layout_of(&[Some(1 << 20)]) };
        assert!(begins_block(&chunks, 1 << 22) && !begins_block(&chunks, 100));
    }
}
