//! Which columns hold a range of a file, as pieces that each lie on one column.

use weir_layout::{locate, split};
use weir_types::{ColumnIndex, FileLayout};

/// Bytes of a file that follow each other on one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Position in [`FileLayout::segments`].
    pub segment: usize,
    /// The column of that segment.
    pub column: ColumnIndex,
    /// First byte, in the file.
    pub offset: u64,
    /// Bytes; never 0.
    pub len: u64,
    /// Where the first byte is in the column's object.
    pub object_offset: u64,
}

/// The pieces of `len` bytes from `offset` on, in order, `limit` at the most. They end early where
/// the layout ends.
pub fn pieces(layout: &FileLayout, offset: u64, len: u64, limit: usize) -> Vec<Piece> {
    let mut found: Vec<Piece> = Vec::new();
    for span in split(layout, offset, len) {
        let segment = &layout.segments[span.segment];
        let stripe = segment.stripe();
        let unit = match stripe.columns {
            // All of it is in one object.
            1 => u64::MAX,
            _ => u64::from(stripe.unit_bytes),
        };
        let (mut at, end) = (span.offset, span.offset + span.len);
        while at < end {
            if found.len() == limit {
                return found;
            }
            let len = (unit - at % unit).min(end - at);
            let place = locate(stripe, at);
            found.push(Piece {
                segment: span.segment,
                column: place.column,
                offset: segment.start + at,
                len,
                object_offset: place.object_offset,
            });
            at += len;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{
        Column, Duplication, Epoch, LayoutKind, Placement, Scheme, Segment, SegmentIndex,
        SegmentState, TargetId,
    };

    fn segment(number: u32, (start, len): (u64, Option<u64>), columns: u32) -> Segment {
        let column = |target| Column { targets: vec![TargetId(target)] };
        Segment {
            index: SegmentIndex(number),
            start,
            len,
            state: SegmentState::Open,
            stripe_unit_bytes: 4096,
            scheme: Scheme::Copies,
            columns: (1..=columns).map(column).collect(),
            filling: Vec::new(),
            parities: Vec::new(),
            epoch: Epoch(1),
        }
    }

    #[test]
    fn a_range_is_cut_where_its_column_ends_and_no_byte_is_left_out() {
        let layout = FileLayout {
            kind: LayoutKind::Chunked,
            segments: vec![segment(0, (0, Some(16_384)), 3), segment(1, (16_384, None), 1)],
            base: 0,
            epoch: Epoch(1),
            duplication: Duplication::default(),
            acting: Duplication::default(),
            placement: Placement::Chained,
        };
        let all = pieces(&layout, 100, 1 << 20, usize::MAX);
        let cut: Vec<_> = all.iter().map(|p| (p.offset, p.len, p.segment, p.column.0)).collect();
        let second = (16_384, (1 << 20) + 100 - 16_384, 1, 0);
        let first =
            [(100, 3996, 0, 0), (4096, 4096, 0, 1), (8192, 4096, 0, 2), (12_288, 4096, 0, 0)];
        assert_eq!(cut, [&first[..], &[second]].concat());
        assert_eq!(all[3].object_offset, 4096);
        assert_eq!(pieces(&layout, 100, 1 << 20, 2), all[..2]);
        assert!(pieces(&layout, 0, 0, 5).is_empty());
    }
}
