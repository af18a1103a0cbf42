//! Which servers a call needs. There is one part, and so one request, for each column that the call
//! touches, or several if the call is cut.

use std::ops::Range;
use weir_layout::{
    Region, RegionList, columns_touched, object_len, segment_at, segment_offset, segment_ranges,
    split,
};
use weir_types::limits::{BLOCK_BYTES, MAX_PAYLOAD_BYTES};
use weir_types::{
    ColumnIndex, CopyIndex, Error, ErrorKind, FileId, FileLayout, ObjectId, Result, Segment,
    StripeMap, TargetId,
};

/// The most bytes of one call. Longer calls are split.
pub const MAX_CALL_BYTES: usize = MAX_PAYLOAD_BYTES;

/// A part of a call within one segment: all of the segment's bytes, unless the call is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Regions that it touches, relative to the segment.
    pub regions: RegionList,
    /// Striping of the segment.
    pub stripe: StripeMap,
    /// First byte of the segment in the file.
    pub segment_start: u64,
    /// First byte in the caller's buffer.
    pub buffer_offset: u64,
}

/// The destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The object. Its file, segment and column stay; its copy is chosen each time the request is
    /// sent.
    pub object: ObjectId,
    /// The target of that copy.
    pub target: TargetId,
    /// Whether the column had several copies at the last look-up.
    pub mirrored: bool,
}

impl Place {
    /// The first copy of a column or a parity; `None` if the segment has none of that number.
    pub fn of(file: FileId, segment: &Segment, column: ColumnIndex) -> Option<Self> {
        let mut copies = segment.member(usize::from(column.0))?.copies();
        let (copy, target) = copies.next()?;
        let object = ObjectId { file, segment: segment.index, column, copy };
        Some(Self { object, target, mirrored: copies.next().is_some() })
    }

    /// The key of its column: the id of copy 0, whether that exists or not.
    pub fn column(&self) -> ObjectId {
        ObjectId { copy: CopyIndex(0), ..self.object }
    }
}

/// One request: the share of one column in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index in [`Plan::chunks`].
    pub chunk: usize,
    /// The destination.
    pub place: Place,
}

/// The requests of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Chunks, in the order of the caller's buffer.
    pub chunks: Vec<Chunk>,
    /// Parts, one for each column of each chunk.
    pub parts: Vec<Part>,
    /// Whether chunks are smaller than they could be, so that copies are chosen late.
    pub is_cut: bool,
}

impl Plan {
    /// The chunk of a part.
    pub fn chunk(&self, part: usize) -> &Chunk {
        &self.chunks[self.parts[part].chunk]
    }

    /// Where the last byte of a part ends in the file, of a contiguous call with this range of it.
    pub fn end_of(&self, part: usize, range: &Range<u64>) -> Option<u64> {
        let (chunk, column) = (self.chunk(part), self.parts[part].place.object.column);
        // What lies behind it is another chunk's.
        let next = self.chunks.get(self.parts[part].chunk + 1);
        let end = next.map_or(range.end, |next| range.start + next.buffer_offset);
        let within = end.saturating_sub(chunk.segment_start);
        let last = object_len(chunk.stripe, column, within).checked_sub(1)?;
        Some(chunk.segment_start + segment_offset(chunk.stripe, column, last)? + 1)
    }

    /// Says of damage to a part's object which bytes of the file it concerns.
    /// Other errors stay as they are.
    pub fn locate_damage(&self, part: usize, error: Error) -> Error {
        if !matches!(error.kind, ErrorKind::Corrupt | ErrorKind::ChecksumMismatch) {
            return error;
        }
        let (chunk, object) = (self.chunk(part), self.parts[part].place.object);
        let block = error.at.map(|at| at - at % BLOCK_BYTES as u64);
        let mut found = block.into_iter().flat_map(|block| {
            segment_ranges(chunk.stripe, object.column, block, BLOCK_BYTES as u64)
        });
        let file = object.file;
        let place = match found.next() {
            Some((start, len)) => {
                let start = chunk.segment_start + start;
                format!("file {file}, bytes {start}-{}", start + len - 1)
            }
            // The whole object, it seems: what was asked of it is lost.
            None => {
                let first = chunk.regions.ranges().map(|(start, _)| start).min().unwrap_or(0);
                let (start, end) =
                    (chunk.segment_start + first, chunk.segment_start + chunk.regions.end());
                format!("file {file}, within bytes {start}-{}", end - 1)
            }
        };
        error.context(place)
    }
}

/// Plans a contiguous call.
///
/// # Errors
/// `Stale` if the layout does not cover the range (it has to be extended or fetched again);
/// `InvalidArgument` if the range is empty or too long.
pub fn plan_range(file: FileId, layout: &FileLayout, offset: u64, len: u64) -> Result<Plan> {
    plan_range_cut(file, layout, (offset, len), u64::MAX)
}

/// As [`plan_range`], with requests for about `column_bytes` of a column (whole stripe units at
/// least).
///
/// # Errors
/// As [`plan_range`].
pub fn plan_range_cut(
    file: FileId,
    layout: &FileLayout,
    (offset, len): (u64, u64),
    column_bytes: u64,
) -> Result<Plan> {
    if len == 0 || len > MAX_CALL_BYTES as u64 {
        return Err(Error::new(ErrorKind::InvalidArgument, "a call has 1 byte to 4 MiB"));
    }
    let mut plan = Plan { is_cut: column_bytes < len, ..Plan::default() };
    let mut covered = 0;
    for span in split(layout, offset, len) {
        let segment = &layout.segments[span.segment];
        // Whole ones, so that each begins where one of another call ends.
        let cut_bytes = cut_bytes(segment, column_bytes);
        let (mut at, end) = (span.offset, span.offset + span.len);
        while at < end {
            let len = (cut_bytes - at % cut_bytes).min(end - at);
            let regions = RegionList::contiguous(at, len)?;
            add_chunk(&mut plan, file, layout, span.segment, regions, covered)?;
            (at, covered) = (at + len, covered + len);
        }
    }
    if covered < len { Err(not_covered(file, offset + covered)) } else { Ok(plan) }
}

/// Length of a cut: this many bytes of each column, in whole stripe units.
fn cut_bytes(segment: &Segment, column_bytes: u64) -> u64 {
    let unit = u64::from(segment.stripe_unit_bytes).max(1);
    let of_column = column_bytes.checked_next_multiple_of(unit).unwrap_or(column_bytes);
    of_column.saturating_mul(segment.columns.len() as u64).max(1)
}

/// Plans a strided call. Regions are relative to the file; the caller's buffer holds their bytes
/// one after another.
///
/// # Errors
/// As [`plan_range`].
pub fn plan_regions(file: FileId, layout: &FileLayout, regions: &RegionList) -> Result<Plan> {
    regions.check_total_bytes(MAX_CALL_BYTES as u64)?;
    let mut plan = Plan::default();
    let position =
        segment_at(layout, regions.regions().iter().map(|r| r.offset).min().unwrap_or(0))
            .ok_or_else(|| not_covered(file, regions.end()))?;
    let segment = &layout.segments[position];
    if regions.end() <= segment.end() {
        let start = segment.start;
        let shifted = regions.regions().iter().map(|r| Region { offset: r.offset - start, ..*r });
        let shifted = RegionList::new(shifted.collect())?;
        add_chunk(&mut plan, file, layout, position, shifted, 0)?;
        return Ok(plan);
    }
    // Over several segments, each piece goes by itself.
    let mut done = 0;
    for (offset, len) in regions.ranges() {
        let mut covered = 0;
        for span in split(layout, offset, len) {
            let piece = RegionList::contiguous(span.offset, span.len)?;
            add_chunk(&mut plan, file, layout, span.segment, piece, done + covered)?;
            covered += span.len;
        }
        if covered < len {
            return Err(not_covered(file, offset + covered));
        }
        done += len;
    }
    Ok(plan)
}

fn add_chunk(
    plan: &mut Plan,
    file: FileId,
    layout: &FileLayout,
    position: usize,
    regions: RegionList,
    buffer_offset: u64,
) -> Result<()> {
    let segment = &layout.segments[position];
    let stripe = segment.stripe();
    let chunk = plan.chunks.len();
    for column in columns_touched(&regions, stripe)?.iter() {
        let place = Place::of(file, segment, column)
            .ok_or_else(|| Error::new(ErrorKind::Stale, "the layout lacks a column"))?;
        plan.parts.push(Part { chunk, place });
    }
    plan.chunks.push(Chunk { regions, stripe, segment_start: segment.start, buffer_offset });
    Ok(())
}

/// Every column of a file, with the length of its objects when the file has `size` bytes. For
/// truncation.
pub fn columns(file: FileId, layout: &FileLayout, size: u64) -> Vec<(Place, u64)> {
    let mut columns = Vec::new();
    for segment in &layout.segments {
        let within = size.clamp(segment.start, segment.end()) - segment.start;
        let all = (0..segment.columns.len()).map(|number| ColumnIndex(number as u16));
        let of = |column| {
            let len = weir_layout::object_len(segment.stripe(), column, within);
            Place::of(file, segment, column).map(|place| (place, len))
        };
        columns.extend(all.filter_map(of));
    }
    columns
}

/// Every object of a file, of all copies and parities, with its target and its length when the file
/// has `size` bytes.
pub fn objects(file: FileId, layout: &FileLayout, size: u64) -> Vec<(ObjectId, TargetId, u64)> {
    let mut objects = Vec::new();
    for segment in &layout.segments {
        let within = size.clamp(segment.start, segment.end()) - segment.start;
        for (index, column) in segment.members() {
            // A parity is as long as the longest column.
            let is_parity = usize::from(index.0) >= segment.columns.len();
            let of = if is_parity { ColumnIndex(0) } else { index };
            let len = weir_layout::object_len(segment.stripe(), of, within);
            let id = |copy| ObjectId { file, segment: segment.index, column: index, copy };
            objects.extend(column.copies().map(|(copy, target)| (id(copy), target, len)));
        }
    }
    objects
}

fn not_covered(file: FileId, offset: u64) -> Error {
    Error::new(ErrorKind::Stale, format!("file {file}: the layout does not cover byte {offset}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{Column, Epoch, LayoutKind, Scheme, SegmentIndex, SegmentState};

    fn segment(index: u32, start: u64, len: Option<u64>, targets: &[u32]) -> Segment {
        let column = |t: &u32| Column { targets: vec![TargetId(*t)] };
        Segment {
            index: SegmentIndex(index),
            start,
            len,
            stripe_unit_bytes: 65536,
            columns: targets.iter().map(column).collect(),
            filling: Vec::new(),
            parities: Vec::new(),
            scheme: Scheme::Copies,
            state: SegmentState::Open,
            epoch: Epoch(1),
        }
    }

    fn layout(segments: Vec<Segment>) -> FileLayout {
        FileLayout {
            kind: LayoutKind::Striped,
            base: 0,
            epoch: Epoch(1),
            duplication: weir_types::Duplication::default(),
            acting: weir_types::Duplication::default(),
            placement: weir_types::Placement::Chained,
            segments,
        }
    }

    #[test]
    fn a_call_that_is_cut_asks_each_column_for_so_much_at_a_time_and_for_each_byte_once() {
        let segments =
            vec![segment(0, 0, Some(10 * 65_536), &[1]), segment(1, 10 * 65_536, None, &[2, 3])];
        let (file, layout) = (FileId::ROOT, layout(segments));
        let plan = plan_range_cut(file, &layout, (65_536 * 3 + 10, 65_536 * 12), 262_144).unwrap();
        let chunk = |c: &Chunk| (c.segment_start + c.regions.regions()[0].offset, c.buffer_offset);
        let of = plan.chunks.iter().map(chunk).collect::<Vec<_>>();
        let unit = 65_536;
        let (begin, rest) = (3 * unit + 10, unit - 10);
        // At whole pieces of the segment, whatever the call begins with.
        assert_eq!(
            of,
            [
                (begin, 0),
                (4 * unit, rest),
                (8 * unit, rest + 4 * unit),
                (10 * unit, rest + 6 * unit)
            ]
        );
        assert_eq!(plan.parts.len(), 5, "two of the last one");
        let bytes: u64 = plan.chunks.iter().map(|c| c.regions.total_bytes()).sum();
        assert_eq!(bytes, 12 * unit);
        let whole = plan_range_cut(file, &layout, (0, 65_536 * 12), u64::MAX).unwrap();
        assert_eq!(whole, plan_range(file, &layout, 0, 65_536 * 12).unwrap());
    }

    #[test]
    fn a_part_ends_within_its_own_segment() {
        let unit = 65_536;
        // The first segment is shorter than what the call has behind its beginning.
        let segments =
            vec![segment(0, 0, Some(2 * unit), &[1, 2]), segment(1, 2 * unit, None, &[3, 4])];
        let (file, layout) = (FileId::ROOT, layout(segments));
        let range = unit / 2..7 * unit + 10;
        for cut in [u64::MAX, unit] {
            let plan =
                plan_range_cut(file, &layout, (range.start, range.end - range.start), cut).unwrap();
            let ends = |target| {
                let of = |(at, part): (usize, &Part)| {
                    (part.place.target == TargetId(target)).then(|| plan.end_of(at, &range))
                };
                plan.parts.iter().enumerate().filter_map(of).flatten().max()
            };
            assert_eq!([1, 2, 3, 4].map(ends), [unit, 2 * unit, 7 * unit, 7 * unit + 10].map(Some));
        }
    }

    #[test]
    fn one_request_for_each_server_however_many_stripes() {
        let layout = layout(vec![segment(1, 0, None, &[10, 11, 12, 13])]);
        let plan = plan_range(FileId(5), &layout, 0, 1 << 20).unwrap();
        assert_eq!(plan.parts.len(), 4);
        let plan = plan_range(FileId(5), &layout, 65536, 65536).unwrap();
        assert_eq!(plan.parts.iter().map(|p| p.place.target.0).collect::<Vec<_>>(), [11]);
    }

    #[test]
    fn a_range_over_two_segments_asks_each() {
        let layout =
            layout(vec![segment(1, 0, Some(100_000), &[7]), segment(2, 100_000, None, &[8])]);
        let plan = plan_range(FileId(5), &layout, 99_000, 2_000).unwrap();
        let chunks: Vec<_> =
            plan.chunks.iter().map(|c| (c.buffer_offset, c.regions.total_bytes())).collect();
        assert_eq!(chunks, [(0, 1000), (1000, 1000)]);
        assert_eq!(plan.parts[1].place.object.segment, SegmentIndex(2));
    }

    #[test]
    fn damage_names_the_bytes_of_the_file() {
        let layout =
            layout(vec![segment(1, 0, Some(100_000), &[7]), segment(2, 100_000, None, &[8, 9])]);
        let plan = plan_range(FileId(5), &layout, 100_000, 400_000).unwrap();
        let part = plan.parts.iter().position(|p| p.place.target.0 == 9).unwrap();
        let damage = Error::new(ErrorKind::Corrupt, "rot").at(65_536 + 5000);
        // The second unit of column 1 begins at byte 3 * 65,536 of the segment.
        let start = 100_000 + 3 * 65_536 + 4096;
        let text = plan.locate_damage(part, damage).message;
        assert_eq!(text, format!("file 5, bytes {start}-{}: rot", start + 4095));
        let header = Error::new(ErrorKind::Corrupt, "bad header");
        let text = plan.locate_damage(part, header).message;
        assert_eq!(text, "file 5, within bytes 100000-499999: bad header");
        let other = Error::new(ErrorKind::NoSpace, "full");
        assert_eq!(plan.locate_damage(part, other.clone()), other);
    }

    #[test]
    fn a_strided_list_in_one_segment_stays_one_descriptor() {
        let layout = layout(vec![segment(1, 0, None, &[1, 2])]);
        let strided = Region { offset: 0, size: 100, stride: 65536, count: 10 };
        let list = RegionList::new(vec![strided]).unwrap();
        let plan = plan_regions(FileId(5), &layout, &list).unwrap();
        assert_eq!((plan.chunks.len(), plan.parts.len()), (1, 2));
        assert_eq!(plan.chunks[0].regions, list);
    }

    #[test]
    fn beyond_the_layout_is_stale() {
        let layout = layout(vec![segment(1, 0, Some(4096), &[7])]);
        let error = plan_range(FileId(5), &layout, 0, 4097).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Stale);
    }
}
