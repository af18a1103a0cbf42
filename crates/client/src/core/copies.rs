//! The choice of the copy of a column that gets a request, and the error when no copy can get it.
//!
//! Invariant: changes go to the primary alone. The primary is the first copy in the order of the
//! layout that is online and whole. No byte is read from a copy that is not online and whole.

use weir_types::{
    Column, ColumnIndex, CopyIndex, Error, ErrorKind, FileId, ObjectId, Segment, TargetId,
};
use weir_wire::map::TargetState;

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reading bytes or attributes: any current copy will do.
    Read,
    /// Changing or syncing: the primary takes care of the other copies.
    Change,
}

/// State of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// State in the newest known cluster map.
    pub state: TargetState,
    /// Whether it gave no reply lately, whatever the map says.
    pub doubtful: bool,
}

/// A failed request to a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Index of the copy.
    pub copy: CopyIndex,
    /// The error.
    pub error: Error,
}

/// Each copy of a column, or of a parity, with its target, in the order of the layout.
pub fn copies_of(
    segment: &Segment,
    column: ColumnIndex,
) -> impl Iterator<Item = (CopyIndex, TargetId)> + '_ {
    segment.member(usize::from(column.0)).into_iter().flat_map(Column::copies)
}

/// Whether a column has several copies.
pub fn is_mirrored(segment: &Segment, column: ColumnIndex) -> bool {
    copies_of(segment, column).nth(1).is_some()
}

/// Whether others can take the place of an only copy that cannot be read.
pub fn is_computable(purpose: Purpose, segment: &Segment) -> bool {
    purpose == Purpose::Read && segment.is_coded()
}

/// The copy to ask next. `None` if no copy is known to be current, or if all current ones were
/// `tried`. A column with one copy has no choice, unless it can be computed.
pub fn next_copy(
    purpose: Purpose,
    segment: &Segment,
    column: ColumnIndex,
    tried: &[CopyIndex],
    known: impl Fn(TargetId) -> Option<Known>,
) -> Option<(CopyIndex, TargetId)> {
    let mut all = copies_of(segment, column);
    let (first, second) = (all.next()?, all.next());
    if second.is_none() {
        // Only what has others has to be current to be read.
        let hopeless = || {
            let away = known(first.1).is_none_or(|known| known.state == TargetState::Offline);
            away || tried.contains(&first.0) || segment.is_filling(column, first.0)
        };
        return Some(first).filter(|_| !is_computable(purpose, segment) || !hopeless());
    }
    let current = || {
        let whole =
            copies_of(segment, column).filter(|(copy, _)| !segment.is_filling(column, *copy));
        whole.filter_map(|place| {
            known(place.1).filter(|known| known.state.is_online()).map(|known| (place, known))
        })
    };
    if purpose == Purpose::Change {
        return current().next().map(|(place, _)| place);
    }
    let left = || current().filter(|((copy, _), _)| !tried.contains(copy));
    let sure = left().find(|(_, known)| !known.doubtful);
    sure.or_else(|| left().next()).map(|(place, _)| place)
}

/// Whether another copy may have what this one failed to return. `again` says that it was read
/// under its server's lock.
pub fn is_elsewhere(kind: ErrorKind, again: bool) -> bool {
    match kind {
        ErrorKind::Unreachable
        | ErrorKind::TimedOut
        | ErrorKind::Protocol
        | ErrorKind::NotCurrent
        | ErrorKind::TargetMissing
        | ErrorKind::Io
        | ErrorKind::Corrupt => true,
        ErrorKind::ChecksumMismatch => again,
        _ => false,
    }
}

/// Whether the error means that stored bytes are damaged.
pub fn is_damage(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corrupt | ErrorKind::ChecksumMismatch)
}

/// Whether waiting is pointless: every copy is online and has failed to read its disk.
pub fn is_hopeless(segment: &Segment, column: ColumnIndex, failures: &[Failure]) -> bool {
    let lost = |copy: CopyIndex| {
        let failed = failures.iter().find(|failure| failure.copy == copy);
        failed.is_some_and(|f| is_damage(f.error.kind) || f.error.kind == ErrorKind::Io)
    };
    copies_of(segment, column).all(|(copy, _)| lost(copy) || segment.is_filling(column, copy))
}

/// The error when no copy of an object's column can be used. `name` formats a target and its
/// server.
pub fn no_current_copy(
    object: ObjectId,
    segment: &Segment,
    failures: &[Failure],
    known: impl Fn(TargetId) -> Option<Known>,
    name: impl Fn(TargetId) -> String,
) -> Error {
    let ObjectId { file, column, .. } = object;
    let why = |(copy, target): (CopyIndex, TargetId)| {
        let state = match known(target).map(|known| known.state) {
            None => "is not part of the cluster any more",
            Some(TargetState::Offline) => "is offline",
            Some(TargetState::OutOfService) => "is out of service",
            Some(TargetState::Syncing) => "is being brought up to date",
            Some(_) if segment.is_filling(column, copy) => "is being filled",
            Some(TargetState::Online | TargetState::Suspect) => {
                match failures.iter().find(|failure| failure.copy == copy) {
                    // It names the target.
                    Some(failure) => return failure.error.to_string(),
                    None => "has not been asked",
                }
            }
        };
        format!("{} {state}", name(target))
    };
    let all: Vec<String> = copies_of(segment, column).map(why).collect();
    let damaged = is_hopeless(segment, column, failures);
    let lost = failures.iter().find(|failure| damaged && is_damage(failure.error.kind));
    let kind = match lost {
        Some(_) => ErrorKind::Corrupt,
        None if damaged => ErrorKind::Io,
        None => ErrorKind::NotCurrent,
    };
    Error { kind, message: what(file, column, &all), at: None }
}

fn what(file: FileId, column: ColumnIndex, all: &[String]) -> String {
    format!("file {file}, column {column}: no current copy: {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_types::{Epoch, Filling, Scheme, SegmentIndex, SegmentState};

    const STATES: [TargetState; 5] = [
        TargetState::Online,
        TargetState::Offline,
        TargetState::OutOfService,
        TargetState::Syncing,
        TargetState::Suspect,
    ];

    fn segment(copies: u8, filling: &[u8]) -> Segment {
        let targets = (0..u32::from(copies)).map(|n| TargetId(n + 10)).collect();
        let filling =
            filling.iter().map(|c| Filling { column: ColumnIndex(0), copy: CopyIndex(*c) });
        Segment {
            index: SegmentIndex(1),
            start: 0,
            len: None,
            stripe_unit_bytes: 65536,
            columns: vec![Column { targets }],
            filling: filling.collect(),
            parities: Vec::new(),
            scheme: Scheme::Copies,
            state: SegmentState::Open,
            epoch: Epoch(1),
        }
    }

    fn failure(copy: u8, kind: ErrorKind) -> Failure {
        Failure { copy: CopyIndex(copy), error: kind.into() }
    }

    #[test]
    fn the_error_names_every_target_and_what_is_the_matter_with_it() {
        let segment = segment(5, &[4]);
        let object = ObjectId {
            file: FileId(5),
            segment: segment.index,
            column: ColumnIndex(0),
            copy: CopyIndex(0),
        };
        let states = [Some(1), Some(2), None, Some(0), Some(0)];
        let known = |target: TargetId| {
            let state = STATES[states[target.0 as usize - 10]?];
            Some(Known { state, doubtful: false })
        };
        let name = |target| format!("target {target} on server 2 (host)");
        let failures = [failure(3, ErrorKind::Io), failure(0, ErrorKind::Unreachable)];
        let error = no_current_copy(object, &segment, &failures, known, name);
        assert_eq!(error.kind, ErrorKind::NotCurrent);
        assert_eq!(
            error.message,
            "file 5, column 0: no current copy: target 10 on server 2 (host) is offline, \
             target 11 on server 2 (host) is out of service, target 12 on server 2 (host) is not \
             part of the cluster any more, input/output error, target 14 on server 2 (host) is \
             being filled"
        );
    }

    #[test]
    fn where_a_copy_has_gone_nobody_is_asked_and_the_others_keep_their_places() {
        let mut segment = segment(3, &[]);
        segment.columns[0].targets[0] = TargetId::NONE;
        let known = |_| Some(Known { state: TargetState::Online, doubtful: false });
        let column = ColumnIndex(0);
        let next = |segment: &Segment| next_copy(Purpose::Change, segment, column, &[], known);
        assert_eq!(next(&segment), Some((CopyIndex(1), TargetId(11))));
        assert!(is_mirrored(&segment, column));
        segment.columns[0].targets[1] = TargetId::NONE;
        assert_eq!(next(&segment), Some((CopyIndex(2), TargetId(12))));
        assert!(!is_mirrored(&segment, column));
    }

    #[test]
    fn nobody_waits_for_copies_that_are_all_damaged() {
        let two = segment(2, &[]);
        let column = ColumnIndex(0);
        let bad = [failure(0, ErrorKind::Corrupt), failure(1, ErrorKind::Io)];
        assert!(is_hopeless(&two, column, &bad));
        assert!(!is_hopeless(&two, column, &bad[..1]), "the other may come back");
        assert!(is_hopeless(&segment(3, &[2]), column, &bad), "nothing comes of one being made");
        assert!(!is_hopeless(
            &two,
            column,
            &[failure(0, ErrorKind::Io), failure(1, ErrorKind::TimedOut)]
        ));
    }

    proptest! {
        #[test]
        fn only_whole_copies_that_are_online_are_asked_and_changes_only_of_the_first(
            targets in proptest::collection::vec((0usize..6, any::<bool>(), any::<bool>(), any::<bool>()), 2..6)
        ) {
            let of = |pick: fn(&(usize, bool, bool, bool)) -> bool| -> Vec<u8> {
                (0..targets.len()).filter(|n| pick(&targets[*n])).map(|n| n as u8).collect()
            };
            let filling = of(|t| t.1);
            let tried: Vec<_> = of(|t| t.2).into_iter().map(CopyIndex).collect();
            let segment = segment(targets.len() as u8, &filling);
            let known = |target: TargetId| {
                let (state, .., doubtful) = targets[target.0 as usize - 10];
                STATES.get(state).map(|state| Known { state: *state, doubtful })
            };
            let current: Vec<_> = (0..targets.len() as u8)
                .filter(|n| matches!(targets[usize::from(*n)].0, 0 | 4) && !filling.contains(n))
                .map(CopyIndex)
                .collect();
            let ask = |purpose, tried: &[CopyIndex]| {
                next_copy(purpose, &segment, ColumnIndex(0), tried, known).map(|(copy, target)| {
                    assert_eq!(target.0, u32::from(copy.0) + 10);
                    copy
                })
            };
            prop_assert_eq!(ask(Purpose::Change, &tried), current.first().copied());
            // Asked one after another, all come, each once, those in doubt last.
            let (mut asked, mut order) = (tried.clone(), Vec::new());
            while let Some(copy) = ask(Purpose::Read, &asked) {
                prop_assert!(!asked.contains(&copy));
                asked.push(copy);
                order.push(copy);
            }
            let doubt = |copy: &CopyIndex| targets[usize::from(copy.0)].3;
            let mut wanted: Vec<_> = current.iter().copied().filter(|c| !tried.contains(c)).collect();
            wanted.sort_by_key(doubt);
            prop_assert_eq!(order, wanted);
        }

        #[test]
        fn a_single_copy_is_asked_whatever_is_known(state in 0usize..6, change in any::<bool>()) {
            let known = |_| STATES.get(state).map(|state| Known { state: *state, doubtful: true });
            let purpose = if change { Purpose::Change } else { Purpose::Read };
            let asked = next_copy(purpose, &segment(1, &[]), ColumnIndex(0), &[CopyIndex(0)], known);
            prop_assert_eq!(asked, Some((CopyIndex(0), TargetId(10))));
        }
    }
}
