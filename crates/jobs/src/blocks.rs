//! Files cut into blocks that are each on one disk. All processes of a job that read the files
//! together use the same blocks, whatever happens to the layouts meanwhile: one process cuts, and
//! the others read what it has recorded.
//!
//! A block is a fixed number of bytes of one column. In a file with small stripe units these bytes
//! do not lie together.

use std::collections::BTreeMap;
use std::ops::Range;
use weir_layout::{covered_bytes, object_len, segment_ranges};
use weir_policy::taking::Lane;
use weir_types::codec::{Decode, DecodeError, Encode, Reader};
use weir_types::limits::{MAX_LIST_LEN, MIN_STRIPE_UNIT_BYTES};
use weir_types::{
    ColumnIndex, CopyIndex, Error, ErrorKind, FileId, FileLayout, Result, Segment, StripeMap,
    TargetId,
};

/// The most files that are read together.
pub const MAX_FILES: usize = 16_384;
/// The most blocks of all files.
const MAX_BLOCKS: u64 = 1 << 30;

/// One column of a segment of a file, up to the file's end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    file: u32,
    lane: u32,
    /// First byte of the segment in the file; `bytes` is its length.
    start: u64,
    len: u64,
    stripe: StripeMap,
    column: ColumnIndex,
}
weir_types::codec_struct!(Part { file, lane, start, len, stripe, column });

/// All files and their division into blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cut {
    files: Vec<(FileId, u64)>,
    block_bytes: u64,
    /// The targets of copies, beginning with that of the first copy. No targets: nothing is written
    /// there.
    lanes: Vec<Vec<TargetId>>,
    parts: Vec<Part>,
}
weir_types::codec_struct!(Cut { files, block_bytes, lanes, parts });

/// The blocks of all files, grouped in lanes: blocks with copies on the same targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    cut: Cut,
    /// For each lane: its parts, each with the number of its first block.
    of_lanes: Vec<Vec<(u32, usize)>>,
    lanes: Vec<Lane>,
}

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// Index of the file.
    pub file: usize,
    /// The block's bytes in the file, ascending.
    pub ranges: Vec<Range<u64>>,
}

impl Blocks {
    /// Cuts files of these sizes and layouts into blocks of `block_bytes`.
    ///
    /// # Errors
    /// `InvalidArgument`: too many files or blocks.
    pub fn cut(files: &[(FileId, u64)], layouts: &[FileLayout], block_bytes: u64) -> Result<Self> {
        let mut cut =
            Cut { files: files.to_vec(), block_bytes, lanes: Vec::new(), parts: Vec::new() };
        let mut known = BTreeMap::new();
        for (file, ((_, size), layout)) in (0..).zip(files.iter().zip(layouts)) {
            for segment in &layout.segments {
                let stripe = segment.stripe();
                let within = segment.start..segment.end().min(*size);
                for column in (0..stripe.columns).map(ColumnIndex) {
                    let lane = targets(segment, column);
                    cut.add(file, within.clone(), (stripe, column), lane, &mut known)?;
                }
            }
            let whole = StripeMap { unit_bytes: MIN_STRIPE_UNIT_BYTES, columns: 1 };
            let hole = covered_bytes(layout)..*size;
            cut.add(file, hole, (whole, ColumnIndex(0)), Vec::new(), &mut known)?;
        }
        Self::of(cut).map_err(|_| too_many())
    }

    fn of(cut: Cut) -> Result<Self, DecodeError> {
        let mut of_lanes = vec![Vec::new(); cut.lanes.len()];
        let mut blocks = vec![0u64; cut.lanes.len()];
        let mut all = 0;
        for (number, part) in cut.parts.iter().enumerate() {
            let lane = part.lane as usize;
            let (of_lane, of_file) = (blocks.get(lane), cut.files.get(part.file as usize));
            let (Some(first), Some((_, size))) = (of_lane, of_file) else {
                return Err(DecodeError::BadValue);
            };
            let ends = part.start.checked_add(part.len).is_some_and(|end| end <= *size);
            let within = part.column.0 < part.stripe.columns;
            let count = part.object_bytes().div_ceil(cut.block_bytes.max(1));
            all += count;
            if !ends || !within || cut.block_bytes == 0 || all > MAX_BLOCKS {
                return Err(DecodeError::BadValue);
            }
            of_lanes[lane].push((*first as u32, number));
            blocks[lane] += count;
        }
        let lane = |(targets, blocks): (&Vec<TargetId>, u64)| Lane {
            disks: targets.iter().map(|target| target.0).collect(),
            blocks: blocks as u32,
        };
        let lanes = cut.lanes.iter().zip(blocks).map(lane).collect();
        Ok(Self { cut, of_lanes, lanes })
    }

    /// The files with their sizes, in the original order.
    pub fn files(&self) -> &[(FileId, u64)] {
        &self.cut.files
    }

    /// Bytes of each block, except the last of a column.
    pub fn block_bytes(&self) -> u64 {
        self.cut.block_bytes
    }

    /// The lanes.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// A block of a lane; `None` if it does not exist.
    pub fn place(&self, lane: usize, block: u32) -> Option<BlockPlace> {
        let parts = self.of_lanes.get(lane)?;
        let at = parts.partition_point(|(first, _)| *first <= block).checked_sub(1)?;
        let (first, number) = parts[at];
        let (part, each) = (self.cut.parts.get(number)?, self.cut.block_bytes);
        let from = u64::from(block - first) * each;
        let len = part.object_bytes().checked_sub(from).filter(|len| *len > 0)?.min(each);
        let within = segment_ranges(part.stripe, part.column, from, len);
        let ranges = within.map(|(at, len)| part.start + at..part.start + at + len).collect();
        Some(BlockPlace { file: part.file as usize, ranges })
    }
}

impl Part {
    fn object_bytes(&self) -> u64 {
        object_len(self.stripe, self.column, self.len)
    }
}

impl Cut {
    fn add(
        &mut self,
        file: u32,
        within: Range<u64>,
        (stripe, column): (StripeMap, ColumnIndex),
        targets: Vec<TargetId>,
        known: &mut BTreeMap<Vec<TargetId>, u32>,
    ) -> Result<()> {
        let len = within.end.saturating_sub(within.start);
        let lane = known.get(&targets).copied().unwrap_or(self.lanes.len() as u32);
        let part = Part { file, lane, start: within.start, len, stripe, column };
        if part.object_bytes() == 0 {
            return Ok(());
        }
        if lane as usize == self.lanes.len() {
            known.insert(targets.clone(), lane);
            self.lanes.push(targets);
        }
        if self.parts.len() >= MAX_LIST_LEN {
            return Err(too_many());
        }
        self.parts.push(part);
        Ok(())
    }
}

fn too_many() -> Error {
    let what = format!("more than {MAX_LIST_LEN} columns of files, or too many blocks");
    Error::new(ErrorKind::InvalidArgument, what).context("take fewer at a time, or larger blocks")
}

/// The targets of the readable copies.
fn targets(segment: &Segment, column: ColumnIndex) -> Vec<TargetId> {
    let copies = segment.columns.get(usize::from(column.0)).into_iter().flat_map(|of| of.copies());
    let whole = |copy: CopyIndex| !segment.is_filling(column, copy);
    copies.filter(|(copy, _)| whole(*copy)).map(|(_, target)| target).collect()
}

impl Encode for Blocks {
    fn encode(&self, out: &mut Vec<u8>) {
        self.cut.encode(out);
    }
}

impl Decode for Blocks {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::of(Decode::decode(r)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_types::{
        Column, Duplication, Epoch, LayoutKind, Placement, Scheme, SegmentIndex, SegmentState,
    };

    /// Segments of these lengths, each with so many columns of this unit; the last is open.
    fn layout(segments: &[(u64, u16, u32)]) -> FileLayout {
        let (mut start, mut all) = (0, Vec::new());
        for (n, (len, columns, unit)) in (0u32..).zip(segments) {
            let is_last = n as usize + 1 == segments.len();
            let copies = |c: u32| vec![TargetId(1 + (n + c) % 4), TargetId(1 + (n + c + 1) % 4)];
            all.push(Segment {
                index: SegmentIndex(n),
                start,
                len: (!is_last).then_some(*len),
                stripe_unit_bytes: unit * 4096,
                columns: (0..*columns).map(|c| Column { targets: copies(c.into()) }).collect(),
                scheme: Scheme::Copies,
                state: SegmentState::Open,
                epoch: Epoch(1),
                filling: Vec::new(),
                parities: Vec::new(),
            });
            start += len;
        }
        FileLayout {
            kind: LayoutKind::Striped,
            base: 0,
            epoch: Epoch(1),
            duplication: Duplication::ServerSync,
            acting: Duplication::ServerSync,
            placement: Placement::Chained,
            segments: all,
        }
    }

    proptest! {
        #[test]
        fn each_byte_is_in_one_block_and_that_on_one_disk(
            files in prop::collection::vec((
                0u64..400_000, prop::collection::vec((1u64..100_000, 1u16..5, 1u32..4), 1..4),
            ), 1..4),
            block_bytes in 1_000u64..100_000,
        ) {
            let layouts: Vec<_> = files.iter().map(|(_, segments)| layout(segments)).collect();
            let sizes: Vec<_> =
                (1..).zip(&files).map(|(id, (size, _))| (FileId(id), *size)).collect();
            let blocks = Blocks::cut(&sizes, &layouts, block_bytes).unwrap();
            let again = Blocks::from_bytes(&blocks.to_bytes()).unwrap();
            prop_assert_eq!(&again, &blocks);
            let mut seen = vec![Vec::new(); files.len()];
            for (number, lane) in blocks.lanes().iter().enumerate() {
                prop_assert_eq!(blocks.place(number, lane.blocks), None);
                for block in 0..lane.blocks {
                    let place = blocks.place(number, block).unwrap();
                    let bytes: u64 = place.ranges.iter().map(|r| r.end - r.start).sum();
                    prop_assert!((1..=block_bytes).contains(&bytes));
                    for range in place.ranges {
                        for at in [range.start, range.end - 1] {
                            let of = &layouts[place.file];
                            let segment = &of.segments[weir_layout::segment_at(of, at).unwrap()];
                            let at = weir_layout::locate(segment.stripe(), at - segment.start);
                            let disks: Vec<_> =
                                targets(segment, at.column).iter().map(|target| target.0).collect();
                            prop_assert_eq!(&disks, &lane.disks);
                        }
                        seen[place.file].push(range);
                    }
                }
            }
            for (ranges, (_, size)) in seen.iter_mut().zip(&sizes) {
                ranges.sort_by_key(|range| range.start);
                let end = ranges.iter().fold(0, |end, range| {
                    assert_eq!(range.start, end);
                    range.end
                });
                prop_assert_eq!(end, *size);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(
            noise in prop::collection::vec(any::<u8>(), 0..300), at in any::<prop::sample::Index>(),
            byte: u8,
        ) {
            let _ = Blocks::from_bytes(&noise);
            let good = Blocks::cut(&[(FileId(1), 300_000)], &[layout(&[(50_000, 3, 1), (1, 2, 2)])], 9_000);
            let mut bytes = good.unwrap().to_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(blocks) = Blocks::from_bytes(&bytes) {
                for (number, lane) in blocks.lanes().iter().enumerate() {
                    let _ = (blocks.place(number, 0), blocks.place(number, lane.blocks));
                }
            }
        }
    }
}
