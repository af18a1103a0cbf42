//! Ranges of files of which no current copy can be read: which ranges, why, and what is left of
//! them, and how an administrator accepts the loss. The function [`column`] is pure.

use crate::Administrator;
use std::collections::BTreeMap;
use std::ops::Range;
use weir_layout::{object_len, segment_offset};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{
    Column, ColumnIndex, CopyIndex, FileId, ObjectId, Result, Segment, SegmentIndex, TargetId,
};
use weir_wire::map::TargetState;
use weir_wire::targets::TargetView;

/// What is left of a range that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Copies that may have it are away.
    Away,
    /// A copy with older bytes, on this target.
    Older(TargetId),
    /// No copy.
    Nothing,
}

/// A range of an object that cannot be read from any copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Index of the segment of the file.
    pub segment: SegmentIndex,
    /// Index of the column.
    pub column: ColumnIndex,
    /// First and last byte of the range in the file; bytes of other columns lie between. `None` if
    /// it lies behind the end.
    pub bytes: Option<(u64, u64)>,
    /// The object of the remaining copy.
    pub object: Option<ObjectId>,
    /// The range in the object.
    pub range: Range<u64>,
    /// The targets, present or former, whose absence makes it unreadable, in the order of the
    /// copies.
    pub missing: Vec<TargetId>,
    /// What is left of it.
    pub left: Left,
}

impl Loss {
    /// Describes the loss. `shown` formats a target and its state.
    pub fn text(&self, shown: impl Fn(TargetId) -> String) -> String {
        let Self { segment, column, .. } = self;
        let bytes = match self.bytes {
            Some((first, last)) => format!("bytes {first}-{last}"),
            None => "behind the end".to_owned(),
        };
        let missing: Vec<String> = self.missing.iter().map(|t| shown(*t)).collect();
        let left = match self.left {
            Left::Away => "it may come back with them".to_owned(),
            Left::Older(target) => format!("target {target} has what was there before"),
            Left::Nothing => "nothing of it is left: zeros".to_owned(),
        };
        let missing = missing.join(", ");
        format!("{bytes}, column {column} of segment {segment}: was on {missing}; {left}")
    }
}

/// States of all targets of the cluster.
pub type States = BTreeMap<TargetId, TargetState>;

/// The states from the list of targets.
pub fn states(views: &[TargetView]) -> States {
    views.iter().map(|view| (view.target, view.state)).collect()
}

/// Formats a target and its state.
pub fn named(target: TargetId, states: &States) -> String {
    let state = match states.get(&target) {
        None => "which was removed from the cluster",
        Some(TargetState::Offline) => "which is offline",
        Some(TargetState::OutOfService) => "which is out of service",
        Some(TargetState::Syncing) => "which is being brought up to date",
        Some(TargetState::Online | TargetState::Suspect) => "which is online",
    };
    format!("target {target}, {state}")
}

/// The ranges of a column that cannot be read. `lacking` returns what the copy of an object on a
/// target does not serve.
pub fn column(
    (file, size): (FileId, u64),
    (segment, column): (&Segment, ColumnIndex),
    states: &States,
    mut lacking: impl FnMut(TargetId, ObjectId) -> Result<Vec<(u64, u64)>>,
) -> Result<Vec<Loss>> {
    let Some(placed) = segment.columns.get(usize::from(column.0)) else { return Ok(Vec::new()) };
    let whole = placed.copies().filter(|(copy, _)| !segment.is_filling(column, *copy));
    let whole: Vec<(CopyIndex, TargetId)> = whole.collect();
    let serves = |target: &TargetId| match states.get(target) {
        Some(TargetState::Online | TargetState::Suspect) => true,
        // What has no other copies.
        Some(TargetState::Syncing | TargetState::OutOfService) => placed.copies().count() == 1,
        Some(TargetState::Offline) | None => false,
    };
    let missing = whole.iter().map(|(_, target)| *target).filter(|target| !serves(target));
    let missing: Vec<TargetId> = missing.collect();
    let may_come = missing.iter().any(|target| states.contains_key(target));
    let object = |copy| ObjectId { file, segment: segment.index, column, copy };
    let mut found: Option<(ObjectId, TargetId, Vec<Range<u64>>)> = None;
    for &(copy, target) in whole.iter().filter(|(_, target)| serves(target)) {
        let ranges = lacking(target, object(copy))?;
        let ranges: Vec<Range<u64>> = ranges.iter().map(|(start, end)| *start..*end).collect();
        found = Some(match found {
            None => (object(copy), target, ranges),
            Some((object, target, before)) => (object, target, both(&before, &ranges)),
        });
    }
    let loss = |object, range: Range<u64>, left| {
        let bytes = bytes(size, segment, column, &range);
        let (segment, missing) = (segment.index, missing.clone());
        Loss { segment, column, bytes, object, range, missing, left }
    };
    let left = |otherwise| if may_come { Left::Away } else { otherwise };
    Ok(match found {
        None => vec![loss(None, 0..MAX_FILE_BYTES, left(Left::Nothing))],
        Some((object, target, ranges)) => {
            let each = |range| loss(Some(object), range, left(Left::Older(target)));
            ranges.into_iter().map(each).collect()
        }
    })
}

/// The intersection.
fn both(some: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let all = some.iter().flat_map(|a| others.iter().map(move |b| (a, b)));
    let common = all.map(|(a, b)| a.start.max(b.start)..a.end.min(b.end));
    common.filter(|range| !range.is_empty()).collect()
}

/// First and last byte of the file in a range of a column.
fn bytes(
    size: u64,
    segment: &Segment,
    column: ColumnIndex,
    range: &Range<u64>,
) -> Option<(u64, u64)> {
    let within = size.clamp(segment.start, segment.end()) - segment.start;
    let end = object_len(segment.stripe(), column, within).min(range.end);
    let last = end.checked_sub(1).filter(|last| *last >= range.start)?;
    let at = |offset| segment_offset(segment.stripe(), column, offset).map(|at| segment.start + at);
    Some((at(range.start)?, at(last)?))
}

/// The ranges of a file that cannot be read.
pub fn of_file(admin: &Administrator, file: (FileId, u64), states: &States) -> Result<Vec<Loss>> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let (segments, more) = admin.segments_from(file.0, from)?;
        for segment in segments.iter().filter(|segment| !is_computable(segment, states)) {
            for at in 0..segment.columns.len() {
                let place = (segment, ColumnIndex(at as u16));
                let lacking = |target, object| ask(admin, target, object);
                all.extend(column(file, place, states, lacking)?);
            }
        }
        match segments.last() {
            Some(last) if more && last.end() > from => from = last.end(),
            _ => return Ok(all),
        }
    }
}

/// Whether so much of a segment with parities is online that the rest can be computed.
fn is_computable(segment: &Segment, states: &States) -> bool {
    let is_online = |(column, member): &(ColumnIndex, &Column)| {
        let mut whole = member.copies().filter(|(copy, _)| !segment.is_filling(*column, *copy));
        whole.any(|(_, target)| states.get(&target).is_some_and(|state| state.is_online()))
    };
    segment.is_coded() && segment.members().filter(is_online).count() >= segment.columns.len()
}

/// Accepts the losses of a file. First all clients drop cached data of it; then the remaining bytes
/// are served.
pub fn give_up(admin: &Administrator, file: FileId, lost: &[Loss]) -> Result<()> {
    admin.accept_losses(file)?;
    for loss in lost {
        if let (Left::Older(target), Some(object)) = (&loss.left, loss.object) {
            admin.accept_loss(*target, object, (loss.range.start, loss.range.end))?;
        }
    }
    Ok(())
}

/// The ranges that the copy of one object does not serve.
fn ask(admin: &Administrator, target: TargetId, object: ObjectId) -> Result<Vec<(u64, u64)>> {
    let page = admin.list_lacking(target, object, 1)?;
    let found = page.objects.into_iter().find(|lacking| lacking.object == object);
    Ok(found.map(|lacking| lacking.ranges).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{Column, Epoch, Scheme, SegmentState};

    const STATES: [(u32, TargetState); 3] =
        [(1, TargetState::Online), (2, TargetState::Online), (3, TargetState::Offline)];

    /// What cannot be read of a column of a file of 300 bytes with copies there.
    fn losses(targets: &[u32], lacking: &[(u32, (u64, u64))]) -> Vec<Loss> {
        let segment = Segment {
            index: SegmentIndex(0),
            start: 0,
            len: None,
            stripe_unit_bytes: 65536,
            columns: vec![Column { targets: targets.iter().map(|t| TargetId(*t)).collect() }],
            filling: Vec::new(),
            parities: Vec::new(),
            scheme: Scheme::Copies,
            state: SegmentState::Open,
            epoch: Epoch(1),
        };
        let states = STATES.iter().map(|(t, state)| (TargetId(*t), *state)).collect();
        let of = |target: TargetId, _| {
            let mine = lacking.iter().filter(|(t, _)| *t == target.0);
            Ok(mine.map(|(_, range)| *range).collect())
        };
        column((FileId(7), 300), (&segment, ColumnIndex(0)), &states, of).unwrap()
    }

    fn shape(losses: &[Loss]) -> Vec<(Range<u64>, Left)> {
        losses.iter().map(|loss| (loss.range.clone(), loss.left.clone())).collect()
    }

    #[test]
    fn lost_is_what_no_copy_that_is_there_has_and_none_can_bring_back() {
        let older = Left::Older(TargetId(1));
        assert_eq!(shape(&losses(&[1, 2], &[])), []);
        assert_eq!(shape(&losses(&[1, 2], &[(1, (0, 200))])), [], "the other has it");
        let twice = [(1, (0, 200)), (2, (100, 400))];
        assert_eq!(shape(&losses(&[1, 2], &twice)), [(100..200, older.clone())]);
        assert_eq!(shape(&losses(&[1, 9], &[(1, (0, 200))])), [(0..200, older)]);
        assert_eq!(shape(&losses(&[1, 3], &[(1, (0, 200))])), [(0..200, Left::Away)]);
        assert_eq!(shape(&losses(&[3, 9], &[])), [(0..MAX_FILE_BYTES, Left::Away)]);
        assert_eq!(shape(&losses(&[8, 9], &[])), [(0..MAX_FILE_BYTES, Left::Nothing)]);
        assert_eq!(losses(&[1, 9], &[(1, (300, 500))])[0].bytes, None);
        let all = losses(&[9], &[]);
        assert_eq!((all[0].bytes, &all[0].missing), (Some((0, 299)), &vec![TargetId(9)]));
    }
}
