//! One column's share of a request: on the server the pieces of its object, on the client the runs
//! of the caller's buffer that hold their bytes.
//!
//! Both sides compute it from the same descriptor and never exchange the result. Concatenated, the
//! runs of a column are the same bytes as its pieces.
//!
//! Invariant: a piece never joins bytes inside a block that are apart in the caller's buffer. So
//! each checksum cut of a column's pieces lies in exactly one of its runs, and the client verifies
//! (or computes) run by run.

use crate::region::RegionList;
use crate::stripe::{object_len, stripe_bytes};
use weir_types::limits::{
    BLOCK_BYTES, MAX_COLUMNS, MAX_PAYLOAD_BYTES, MAX_PIECES, MAX_REGIONS, MIN_STRIPE_UNIT_BYTES,
};
use weir_types::{ColumnIndex, Error, ErrorKind, Result, StripeMap};

/// Maximum number of runs from [`scatter`]: enough for every share that [`share`] accepts and one
/// frame carries. A piece breaks at stripe units, at its first and last partial unit, and where
/// regions that are not adjacent happen to meet in the object.
pub const MAX_RUNS: usize =
    MAX_PAYLOAD_BYTES / MIN_STRIPE_UNIT_BYTES as usize + 2 * MAX_PIECES + MAX_REGIONS;

/// A contiguous piece of one column's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Its first byte in the object.
    pub object_offset: u64,
    /// Its bytes; never 0.
    pub len: u64,
}

impl Piece {
    /// The first byte of the object after it.
    pub fn end(&self) -> u64 {
        self.object_offset + self.len
    }

    /// Number of its bytes that exist if the object is `object_len` bytes long.
    pub fn len_within(&self, object_len: u64) -> u64 {
        object_len.saturating_sub(self.object_offset).min(self.len)
    }
}

/// A contiguous piece of one column's object that is also contiguous in the
/// caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// Its first byte in the object.
    pub object_offset: u64,
    /// Its bytes; never 0.
    pub len: u64,
    /// Its first byte in the buffer, which is the concatenation of all regions.
    pub buffer_offset: u64,
}

impl Run {
    /// The run as a piece of the object.
    pub fn piece(&self) -> Piece {
        Piece { object_offset: self.object_offset, len: self.len }
    }
}

/// Replaces the contents of `pieces` by the bytes of one column's object that the regions contain,
/// in the order of the regions; returns the number of bytes.
///
/// Pieces that meet in the object are joined: a contiguous region is one piece, however many
/// stripes it spans, and is found without walking them. Two pieces stay apart only if they meet
/// inside a block and are not adjacent in the buffer (see the invariant of this module).
///
/// # Errors
/// `InvalidArgument` if the stripe map or the column is invalid, or if there would be more than
/// [`MAX_PIECES`] pieces.
pub fn share(
    regions: &RegionList,
    stripe: StripeMap,
    column: ColumnIndex,
    pieces: &mut Vec<Piece>,
) -> Result<u64> {
    pieces.clear();
    check(stripe, column)?;
    let mut total = 0;
    for (offset, len) in regions.ranges() {
        // The position of an offset in this column is the number of the column's bytes below it.
        let start = object_len(stripe, column, offset);
        let len = object_len(stripe, column, offset + len) - start;
        if len == 0 {
            continue;
        }
        total += len;
        if let Some(last) = pieces.last_mut()
            && last.end() == start
            && start.is_multiple_of(BLOCK_BYTES as u64)
        {
            last.len += len;
            continue;
        }
        if pieces.len() == MAX_PIECES {
            return Err(invalid(format!(
                "the request touches more than {MAX_PIECES} pieces of one object: split it"
            )));
        }
        pieces.push(Piece { object_offset: start, len });
    }
    Ok(total)
}

/// Replaces the contents of `runs` by the places of one column's pieces in the caller's buffer, in
/// the order of the payload; returns the number of bytes. Reuse `runs`: nothing else is allocated.
///
/// # Errors
/// `InvalidArgument` if the stripe map or the column is invalid, or if there would be more than
/// [`MAX_RUNS`] runs.
pub fn scatter(
    regions: &RegionList,
    stripe: StripeMap,
    column: ColumnIndex,
    runs: &mut Vec<Run>,
) -> Result<u64> {
    runs.clear();
    check(stripe, column)?;
    let mut buffer_offset = 0;
    let mut total = 0;
    for (offset, len) in regions.ranges() {
        if stripe.columns == 1 {
            push_run(runs, Run { object_offset: offset, len, buffer_offset })?;
            total += len;
        } else {
            total += scatter_range(offset, len, buffer_offset, stripe, column, runs)?;
        }
        buffer_offset += len;
    }
    Ok(total)
}

/// The runs of one contiguous range: one for each unit of the column in it.
fn scatter_range(
    offset: u64,
    len: u64,
    buffer_offset: u64,
    stripe: StripeMap,
    column: ColumnIndex,
    runs: &mut Vec<Run>,
) -> Result<u64> {
    let unit = u64::from(stripe.unit_bytes);
    let width = stripe_bytes(stripe);
    let end = offset + len;
    let stripe_number = offset / width;
    let mut unit_start = stripe_number * width + u64::from(column.0) * unit;
    let mut object_start = stripe_number * unit;
    let mut total = 0;
    while unit_start < end {
        let from = unit_start.max(offset);
        let to = (unit_start + unit).min(end);
        if from < to {
            let run = Run {
                object_offset: object_start + (from - unit_start),
                len: to - from,
                buffer_offset: buffer_offset + (from - offset),
            };
            push_run(runs, run)?;
            total += run.len;
        }
        unit_start += width;
        object_start += unit;
    }
    Ok(total)
}

fn push_run(runs: &mut Vec<Run>, run: Run) -> Result<()> {
    if runs.len() == MAX_RUNS {
        return Err(invalid(format!(
            "the request scatters one column over more than {MAX_RUNS} runs: split it"
        )));
    }
    runs.push(run);
    Ok(())
}

const WORDS: usize = MAX_COLUMNS.div_ceil(64);

/// A set of columns of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnSet {
    words: [u64; WORDS],
}

impl ColumnSet {
    /// Adds a column. A column number that no segment can have is ignored.
    pub fn insert(&mut self, column: ColumnIndex) {
        if let Some(word) = self.words.get_mut(usize::from(column.0) / 64) {
            *word |= 1 << (column.0 % 64);
        }
    }

    /// Whether the column is in the set.
    pub fn contains(&self, column: ColumnIndex) -> bool {
        self.words.get(usize::from(column.0) / 64).is_some_and(|w| w >> (column.0 % 64) & 1 == 1)
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    /// The columns, ascending.
    pub fn iter(&self) -> impl Iterator<Item = ColumnIndex> + use<> {
        let set = *self;
        (0..MAX_COLUMNS as u16).map(ColumnIndex).filter(move |&column| set.contains(column))
    }
}

/// The columns that hold any byte of the regions: one request goes to each.
///
/// # Errors
/// `InvalidArgument` if the stripe map is impossible.
pub fn columns_touched(regions: &RegionList, stripe: StripeMap) -> Result<ColumnSet> {
    check(stripe, ColumnIndex(0))?;
    let unit = u64::from(stripe.unit_bytes);
    let columns = u64::from(stripe.columns);
    let mut set = ColumnSet::default();
    let mut missing = columns;
    for (offset, len) in regions.ranges() {
        let first = offset / unit;
        let last = (offset + len - 1) / unit;
        for unit_number in first..=last.min(first + columns - 1) {
            let column = ColumnIndex((unit_number % columns) as u16);
            if !set.contains(column) {
                set.insert(column);
                missing -= 1;
            }
        }
        if missing == 0 {
            break;
        }
    }
    Ok(set)
}

fn check(stripe: StripeMap, column: ColumnIndex) -> Result<()> {
    if stripe.check().is_err() {
        return Err(invalid(format!(
            "no segment has {} columns and stripe units of {} bytes",
            stripe.columns, stripe.unit_bytes
        )));
    }
    if column.0 >= stripe.columns {
        return Err(invalid(format!(
            "column {column} of a segment that has {} columns",
            stripe.columns
        )));
    }
    Ok(())
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{cut_count, cuts};
    use crate::region::Region;
    use crate::stripe::locate;
    use proptest::prelude::*;

    fn any_stripe() -> impl Strategy<Value = StripeMap> {
        (1u32..=3, 1u16..=5).prop_map(|(b, columns)| StripeMap { unit_bytes: b * 4096, columns })
    }

    /// Lists in which some regions meet, overlap, or go backwards.
    fn any_list() -> impl Strategy<Value = RegionList> {
        let size = prop_oneof![1u64..20_000, Just(4096), Just(8192)];
        let stride = prop_oneof![0u64..40_000, Just(4096), Just(16_384)];
        let region = (0u64..12, 0u64..4096, size, stride, 1u32..6, any::<bool>()).prop_map(
            |(block, inside, size, stride, count, aligned)| {
                let offset = block * 4096 + if aligned { 0 } else { inside };
                Region { offset, size, stride, count }
            },
        );
        proptest::collection::vec((region, any::<bool>()), 1..5).prop_map(|raw| {
            let mut regions: Vec<Region> = Vec::new();
            for (mut region, follows) in raw {
                if let (true, Some(last)) = (follows, regions.last()) {
                    region.offset = last.end();
                }
                regions.push(region);
            }
            RegionList::new(regions).unwrap()
        })
    }

    /// The segment offsets of the list byte by byte, in its order.
    fn offsets(list: &RegionList) -> Vec<u64> {
        let element = |r: &Region, i: u32| r.offset + u64::from(i) * r.stride;
        list.regions()
            .iter()
            .flat_map(|r| (0..r.count).flat_map(move |i| element(r, i)..element(r, i) + r.size))
            .collect()
    }

    proptest! {
        #[test]
        fn every_byte_is_in_exactly_one_share_and_goes_where_the_naive_model_puts_it(
            list in any_list(), stripe in any_stripe(),
        ) {
            let mut expected = vec![Vec::new(); usize::from(stripe.columns)];
            for (buffer_offset, &offset) in offsets(&list).iter().enumerate() {
                let place = locate(stripe, offset);
                expected[usize::from(place.column.0)]
                    .push((place.object_offset, buffer_offset as u64));
            }
            let touched = columns_touched(&list, stripe).unwrap();
            let (mut pieces, mut runs) = (Vec::new(), Vec::new());
            for (column, expected) in expected.iter().enumerate() {
                let column = ColumnIndex(column as u16);
                let total = share(&list, stripe, column, &mut pieces).unwrap();
                prop_assert_eq!(scatter(&list, stripe, column, &mut runs).unwrap(), total);
                prop_assert_eq!(total, expected.len() as u64);
                prop_assert_eq!(touched.contains(column), total > 0);

                let from_pieces = pieces.iter().flat_map(|p| p.object_offset..p.end());
                prop_assert!(from_pieces.eq(expected.iter().map(|e| e.0)));
                let from_runs = runs.iter().flat_map(|r| {
                    let buffer = r.buffer_offset..r.buffer_offset + r.len;
                    (r.object_offset..r.object_offset + r.len).zip(buffer)
                });
                prop_assert!(from_runs.eq(expected.iter().copied()));
            }
        }

        #[test]
        fn checksums_are_verified_run_by_run(
            list in any_list(), stripe in any_stripe(), column in 0u16..5,
        ) {
            let column = ColumnIndex(column % stripe.columns);
            let (mut pieces, mut runs) = (Vec::new(), Vec::new());
            share(&list, stripe, column, &mut pieces).unwrap();
            scatter(&list, stripe, column, &mut runs).unwrap();
            let as_pieces: Vec<Piece> = runs.iter().map(Run::piece).collect();
            prop_assert!(cuts(&pieces).eq(cuts(&as_pieces)));
            prop_assert_eq!(cut_count(&pieces), cut_count(&as_pieces));
        }

        #[test]
        fn a_contiguous_region_is_one_piece_of_each_column(
            stripe in any_stripe(), offset in 0u64..1 << 61, size in 1u64..1 << 61,
        ) {
            let list = RegionList::contiguous(offset, size).unwrap();
            let touched = columns_touched(&list, stripe).unwrap();
            let (mut pieces, mut total) = (Vec::new(), 0);
            for column in (0..stripe.columns).map(ColumnIndex) {
                total += share(&list, stripe, column, &mut pieces).unwrap();
                prop_assert_eq!(pieces.len(), usize::from(touched.contains(column)));
            }
            prop_assert_eq!(total, size);
        }
    }

    const K64: u64 = 65_536;

    fn four_columns() -> StripeMap {
        StripeMap { unit_bytes: K64 as u32, columns: 4 }
    }

    #[test]
    fn a_megabyte_over_four_columns_is_four_runs_of_each() {
        let list = RegionList::contiguous(0, 1 << 20).unwrap();
        let mut runs = Vec::new();
        scatter(&list, four_columns(), ColumnIndex(1), &mut runs).unwrap();
        let expected: Vec<Run> = (0..4)
            .map(|i| Run { object_offset: i * K64, len: K64, buffer_offset: K64 + i * 4 * K64 })
            .collect();
        assert_eq!(runs, expected);
    }

    #[test]
    fn elements_that_meet_in_the_object_are_one_piece() {
        // One unit of each stripe: apart in the file, adjacent in the object.
        let column_of_a_matrix = Region { offset: K64, size: K64, stride: 4 * K64, count: 1000 };
        let list = RegionList::new(vec![column_of_a_matrix]).unwrap();
        let mut pieces = Vec::new();
        share(&list, four_columns(), ColumnIndex(1), &mut pieces).unwrap();
        assert_eq!(pieces, [Piece { object_offset: 0, len: 1000 * K64 }]);
        assert_eq!(share(&list, four_columns(), ColumnIndex(0), &mut pieces), Ok(0));
        assert!(pieces.is_empty());
        assert_eq!(columns_touched(&list, four_columns()).unwrap().len(), 1);
    }

    #[test]
    fn a_block_that_two_places_of_the_buffer_share_is_two_pieces() {
        let list = RegionList::new(vec![
            Region::contiguous(0, 100),
            Region::contiguous(K64, 50),
            Region::contiguous(100, 100),
        ])
        .unwrap();
        let mut pieces = Vec::new();
        share(&list, four_columns(), ColumnIndex(0), &mut pieces).unwrap();
        let piece = |object_offset| Piece { object_offset, len: 100 };
        assert_eq!(pieces, [piece(0), piece(100)]);
    }

    #[test]
    fn too_many_pieces_are_refused() {
        let every_other_byte =
            |count| RegionList::new(vec![Region { offset: 0, size: 1, stride: 2, count }]).unwrap();
        let mut pieces = Vec::new();
        let most = MAX_PIECES as u32;
        assert!(
            share(&every_other_byte(most), four_columns(), ColumnIndex(0), &mut pieces).is_ok()
        );
        let error = share(&every_other_byte(most + 1), four_columns(), ColumnIndex(0), &mut pieces)
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument);
        assert!(error.message.contains("split"), "{error}");
    }

    #[test]
    fn whatever_one_frame_shares_can_be_scattered() {
        // Pieces of two halves of neighbouring units: the largest number of runs for the permitted
        // pieces, and as many whole units as a frame holds.
        let stripe = StripeMap { unit_bytes: 4096, columns: 2 };
        let straddling =
            Region { offset: 4095, size: 4098, stride: 4 * 4096, count: MAX_PIECES as u32 };
        let list = RegionList::new(vec![straddling]).unwrap();
        let (mut pieces, mut runs) = (Vec::new(), Vec::new());
        share(&list, stripe, ColumnIndex(0), &mut pieces).unwrap();
        scatter(&list, stripe, ColumnIndex(0), &mut runs).unwrap();
        assert_eq!(pieces.len(), MAX_PIECES);
        assert_eq!(runs.len(), 2 * MAX_PIECES);

        let endless = RegionList::contiguous(0, 1 << 40).unwrap();
        assert!(scatter(&endless, stripe, ColumnIndex(0), &mut runs).is_err());
        assert!(runs.len() <= MAX_RUNS);
    }

    #[test]
    fn impossible_columns_and_stripes_are_refused() {
        let list = RegionList::contiguous(0, 1).unwrap();
        let zero = StripeMap { unit_bytes: 0, columns: 0 };
        assert!(share(&list, zero, ColumnIndex(0), &mut Vec::new()).is_err());
        assert!(scatter(&list, four_columns(), ColumnIndex(4), &mut Vec::new()).is_err());
        assert!(columns_touched(&list, zero).is_err());
    }

    #[test]
    fn column_sets_hold_every_column_there_can_be() {
        let mut set = ColumnSet::default();
        assert!(set.is_empty());
        for column in [0, 63, 64, 1023, 1024] {
            set.insert(ColumnIndex(column));
        }
        assert_eq!(set.iter().map(|c| c.0).collect::<Vec<_>>(), [0, 63, 64, 1023]);
        assert_eq!(set.len(), 4);
    }
}
