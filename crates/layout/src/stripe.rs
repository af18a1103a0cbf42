//! Striping: a segment's bytes are dealt to its columns in units, round robin
//! (PVFS, paper 0 section 2: iod of an offset = (offset / unit) mod count).
//!
//! Offsets are relative to the segment. Every function takes a stripe map
//! that passed [`StripeMap::check`] (a decoded one always has).

use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{ColumnIndex, StripeMap};

/// The place of a segment's byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The column whose object holds it.
    pub column: ColumnIndex,
    /// Its offset in that object, in bytes.
    pub object_offset: u64,
}

/// Bytes of one stripe: one unit from each column.
pub fn stripe_bytes(stripe: StripeMap) -> u64 {
    u64::from(stripe.unit_bytes) * u64::from(stripe.columns)
}

/// The column and object offset of the byte at `offset` of the segment.
pub fn locate(stripe: StripeMap, offset: u64) -> Location {
    let unit = u64::from(stripe.unit_bytes);
    let columns = u64::from(stripe.columns);
    let unit_number = offset / unit;
    Location {
        column: ColumnIndex((unit_number % columns) as u16),
        object_offset: unit_number / columns * unit + offset % unit,
    }
}

/// The segment offset of a byte of a column's object: the inverse of
/// [`locate`]. `None` if there is no such column, or if the byte would lie
/// beyond the largest file (object lengths come from disks, which may lie).
pub fn segment_offset(stripe: StripeMap, column: ColumnIndex, object_offset: u64) -> Option<u64> {
    if column.0 >= stripe.columns {
        return None;
    }
    let unit = u64::from(stripe.unit_bytes);
    let stripe_start = (object_offset / unit).checked_mul(stripe_bytes(stripe))?;
    let in_stripe = u64::from(column.0) * unit + object_offset % unit;
    stripe_start.checked_add(in_stripe).filter(|&offset| offset < MAX_FILE_BYTES)
}

/// The bytes of the segment (offset and length) that a range of a column's
/// object holds, in order; ends early where [`segment_offset`] has none.
pub fn segment_ranges(
    stripe: StripeMap,
    column: ColumnIndex,
    object_offset: u64,
    len: u64,
) -> impl Iterator<Item = (u64, u64)> {
    let unit = u64::from(stripe.unit_bytes);
    let end = object_offset.saturating_add(len);
    let mut at = object_offset;
    std::iter::from_fn(move || {
        let start = segment_offset(stripe, column, at).filter(|_| at < end)?;
        let in_unit = if stripe.columns == 1 { u64::MAX } else { unit - at % unit };
        let len = in_unit.min(end - at).min(MAX_FILE_BYTES - start);
        at += len;
        Some((start, len))
    })
}

/// Number of bytes of `column` among the first `len` bytes of the segment. This is the length of
/// its object if the segment is `len` bytes long, and the object offset of the column's first byte
/// at or after `len`.
pub fn object_len(stripe: StripeMap, column: ColumnIndex, len: u64) -> u64 {
    let unit = u64::from(stripe.unit_bytes);
    let width = stripe_bytes(stripe);
    let last_stripe = (len % width).saturating_sub(u64::from(column.0) * unit).min(unit);
    len / width * unit + last_stripe
}

/// Lower bound of the segment's length if the object of `column` is `object_len` bytes long. `None`
/// where [`segment_offset`] has none.
pub fn implied_segment_len(stripe: StripeMap, column: ColumnIndex, object_len: u64) -> Option<u64> {
    match object_len.checked_sub(1) {
        None => Some(0),
        Some(last) => Some(segment_offset(stripe, column, last)? + 1),
    }
}

/// The length of a segment whose objects have these lengths in bytes, column 0 first. Used to
/// recover a size. A missing object counts as 0. `None` where [`segment_offset`] has none.
pub fn segment_len(stripe: StripeMap, object_lens: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut longest = 0;
    for (column, len) in object_lens.into_iter().enumerate() {
        let column = ColumnIndex(u16::try_from(column).ok()?);
        longest = longest.max(implied_segment_len(stripe, column, len)?);
    }
    Some(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_stripe() -> impl Strategy<Value = StripeMap> {
        (1u32..=64, 1u16..=9)
            .prop_map(|(blocks, columns)| StripeMap { unit_bytes: blocks * 4096, columns })
    }

    proptest! {
        #[test]
        fn an_offset_goes_to_its_object_and_back(s in any_stripe(), offset in 0..MAX_FILE_BYTES) {
            let place = locate(s, offset);
            prop_assert_eq!(segment_offset(s, place.column, place.object_offset), Some(offset));
        }

        #[test]
        fn an_object_offset_goes_to_the_segment_and_back(
            s in any_stripe(), column in 0u16..9, object_offset in any::<u64>(),
        ) {
            let column = ColumnIndex(column);
            match segment_offset(s, column, object_offset) {
                Some(offset) => {
                    prop_assert_eq!(locate(s, offset), Location { column, object_offset })
                }
                None => prop_assert!(
                    column.0 >= s.columns || object_offset > MAX_FILE_BYTES / u64::from(s.columns) - (1 << 30)
                ),
            }
        }

        #[test]
        fn the_bytes_of_a_range_of_an_object_are_found_in_the_segment(
            s in any_stripe(), column in 0u16..9, offset in 0u64..100_000, len in 0u64..100_000,
        ) {
            let column = ColumnIndex(column % s.columns);
            let mut at = offset;
            for (start, len) in segment_ranges(s, column, offset, len) {
                for byte in [0, len / 2, len - 1] {
                    let place = Location { column, object_offset: at + byte };
                    prop_assert_eq!(locate(s, start + byte), place);
                }
                at += len;
            }
            prop_assert_eq!(at, offset + len);
        }

        #[test]
        fn object_lengths_are_what_counting_bytes_gives(
            blocks in 1u32..=2, columns in 1u16..=4, len in 0u64..40_000,
        ) {
            let s = StripeMap { unit_bytes: blocks * 4096, columns };
            let mut counted = vec![0; usize::from(columns)];
            for offset in 0..len {
                let place = locate(s, offset);
                prop_assert_eq!(place.object_offset, counted[usize::from(place.column.0)]);
                counted[usize::from(place.column.0)] += 1;
            }
            for (column, &count) in counted.iter().enumerate() {
                prop_assert_eq!(object_len(s, ColumnIndex(column as u16), len), count);
            }
        }

        #[test]
        fn the_objects_of_a_segment_add_up_to_it_and_give_its_length_back(
            s in any_stripe(), len in 0..=MAX_FILE_BYTES,
        ) {
            let lens: Vec<u64> =
                (0..s.columns).map(|c| object_len(s, ColumnIndex(c), len)).collect();
            prop_assert_eq!(lens.iter().sum::<u64>(), len);
            prop_assert_eq!(segment_len(s, lens), Some(len));
        }
    }

    #[test]
    fn a_sparse_segment_is_as_long_as_its_furthest_byte() {
        let s = StripeMap { unit_bytes: 4096, columns: 3 };
        // The last write was byte 5 of the second unit of column 1.
        assert_eq!(segment_len(s, [4096, 4096 + 6, 0]), Some(4 * 4096 + 6));
    }

    #[test]
    fn a_lying_object_length_is_refused_not_wrapped() {
        let s = StripeMap { unit_bytes: 1 << 30, columns: 1024 };
        assert_eq!(segment_len(s, [u64::MAX]), None);
        assert_eq!(implied_segment_len(s, ColumnIndex(1024), 1), None);
    }
}
