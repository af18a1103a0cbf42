//! Disk space: punching holes, preallocation, and finding data and holes. One request for each
//! object, to all of a segment's servers at once.

use super::control::{Control, ask_objects};
use crate::core::plan::Place;
use crate::state::Call;
use std::ops::Range;
use weir_layout::{object_len, segment_at, segment_offset, split};
use weir_types::limits::MAX_ALLOCATE_BYTES;
use weir_types::{ColumnIndex, FileId, FileLayout, Result, Segment};

/// The most objects asked at once for data or a hole: whole segments, and at least one.
const SEEK_OBJECTS: usize = 32;
/// A change of the disk space of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// Write zeros and free the space.
    Punch,
    /// Preallocate the space.
    Reserve,
}

/// First byte of data, or of a hole, in `at..size` according to the objects.
pub(crate) fn seek_from(
    call: Call<'_>,
    layout: &FileLayout,
    (mut at, size): (u64, u64),
    hole: bool,
) -> Result<Option<u64>> {
    let end = layout.segments.partition_point(|segment| segment.start < size);
    let segments = &layout.segments[segment_at(layout, at).unwrap_or(end)..end];
    let columns = segments.iter().map(|segment| segment.columns.len()).max().unwrap_or(1);
    for batch in segments.chunks((SEEK_OBJECTS / columns).max(1)) {
        let found = seek_in(call, batch, at, hole)?;
        if let Some(found) = found.filter(|&found| found < size) {
            return Ok(Some(found));
        }
        at = batch.last().map_or(at, Segment::end);
    }
    // What no segment was granted for was never written.
    Ok((hole && at < size).then_some(at))
}

/// First byte of data, or of a hole, from `offset` on within these segments.
fn seek_in(call: Call<'_>, segments: &[Segment], offset: u64, hole: bool) -> Result<Option<u64>> {
    let (mut list, mut places) = (Vec::new(), Vec::new());
    for segment in segments {
        let from = offset.saturating_sub(segment.start);
        for place in places_of(call.file.id, segment) {
            let column = place.object.column;
            let offset = object_len(segment.stripe(), column, from);
            list.push((place, Control::Seek { offset, hole }));
            places.push((segment, column));
        }
    }
    let answers = ask_objects(call, list)?.into_iter().map(|answer| answer.found);
    let in_file = |((segment, column), answer): ((&Segment, ColumnIndex), Option<u64>)| {
        let at = segment.start + segment_offset(segment.stripe(), column, answer?)?;
        (at < segment.end()).then_some(at)
    };
    Ok(places.into_iter().zip(answers).filter_map(in_file).min())
}

fn places_of(file: FileId, segment: &Segment) -> impl Iterator<Item = Place> {
    let columns = (0..segment.columns.len()).map(|column| ColumnIndex(column as u16));
    columns.filter_map(move |column| Place::of(file, segment, column))
}

/// The request for each column with bytes of a range, with the first byte of its segment.
pub(crate) fn space_requests(
    file: FileId,
    layout: &FileLayout,
    space: Space,
    range: Range<u64>,
) -> Vec<(Place, Control, u64)> {
    let mut list = Vec::new();
    for span in split(layout, range.start, range.end - range.start) {
        let segment = &layout.segments[span.segment];
        for place in places_of(file, segment) {
            let at = |offset| object_len(segment.stripe(), place.object.column, offset);
            let (offset, end) = (at(span.offset), at(span.offset + span.len));
            let control = match space {
                _ if end == offset => continue,
                Space::Punch => Control::Punch { offset, len: end - offset },
                Space::Reserve => Control::Allocate { offset, len: end - offset },
            };
            list.push((place, control, segment.start));
        }
    }
    list
}

/// Splits a range into steps within the limit of one preallocation request.
pub(crate) fn steps(space: Space, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let step = match space {
        Space::Punch => u64::MAX,
        Space::Reserve => MAX_ALLOCATE_BYTES,
    };
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = start.saturating_add(step).min(range.end);
        (start < at).then_some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reservations_are_made_in_steps_and_holes_at_once() {
        let gib = MAX_ALLOCATE_BYTES;
        let all: Vec<_> = steps(Space::Reserve, 5..2 * gib + 6).collect();
        assert_eq!(all, [5..gib + 5, gib + 5..2 * gib + 5, 2 * gib + 5..2 * gib + 6]);
        assert!(steps(Space::Punch, 7..1 << 62).eq(std::iter::once(7..1 << 62)));
        assert_eq!(steps(Space::Punch, 7..7).count(), 0);
    }
}
