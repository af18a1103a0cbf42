//! The bytes that other copies lack are remembered however the process ends.
#![allow(clippy::single_range_in_vec_init, reason = "one range is meant")]

use std::ops::Range;
use std::path::Path;
use weir_store::{ELSEWHERE, Note, RangeSet, Target, TargetIdentity, TargetOptions, UNHEARD};
use weir_types::{ColumnIndex, CopyIndex, FileId, ObjectId, SegmentIndex};
use weir_types::{ServerId, TargetId};

const MIB: u64 = 1 << 20;
const AWAY: TargetId = TargetId(7);
const SECOND: CopyIndex = CopyIndex(1);

fn object(file: u64) -> ObjectId {
    ObjectId {
        file: FileId(file),
        segment: SegmentIndex(0),
        column: ColumnIndex(0),
        copy: CopyIndex(0),
    }
}

fn made(dir: &Path) -> Target {
    let identity = TargetIdentity { cluster: [1; 16], target: TargetId(1), server: ServerId(1) };
    Target::create(dir, identity).unwrap();
    Target::open(dir).unwrap()
}

fn gaps_of(target: &Target, file: u64) -> Vec<Range<u64>> {
    let mut after = None;
    while let Some(gap) = target.gaps().next(AWAY, after) {
        if gap.object == object(file) {
            assert_eq!(gap.copy, SECOND);
            return gap.bytes.iter().collect();
        }
        after = Some(gap.object);
    }
    Vec::new()
}

#[test]
fn what_was_noted_is_there_after_a_kill_and_what_was_cleared_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    target.gaps().note(object(1), AWAY, SECOND, &(5..10)).unwrap();
    target.gaps().note(object(1), AWAY, SECOND, &(3 * MIB..3 * MIB + 1)).unwrap();
    target.gaps().note(object(2), AWAY, SECOND, &(0..u64::MAX)).unwrap();
    target.gaps().note(object(2), TargetId(9), CopyIndex(2), &(0..1)).unwrap();
    target.gaps().clear(object(2), AWAY, &(0..2 * MIB)).unwrap();
    target.drop_unclosed();
    let target = Target::open(dir.path()).unwrap();
    assert_eq!(gaps_of(&target, 1), [0..MIB, 3 * MIB..4 * MIB], "whole MiB");
    assert_eq!(gaps_of(&target, 2), [2 * MIB..u64::MAX]);
    assert_eq!(target.gaps().counts(), [(AWAY, 2), (TargetId(9), 1)]);
    // A range that is open to the end counts as one part.
    assert_eq!(target.gaps().untold(), [(AWAY, 3), (TargetId(9), 1)]);
    target.gaps().clear(object(1), AWAY, &(0..u64::MAX)).unwrap();
    assert_eq!(target.gaps().counts(), [(AWAY, 1), (TargetId(9), 1)]);
    // A removed object has no gaps.
    target.remove(object(2)).unwrap();
    assert_eq!(target.gaps().counts(), []);
    assert_eq!(target.gaps().next(AWAY, None), None);
}

#[test]
fn a_log_that_is_written_anew_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    drop(made(dir.path()));
    let options = TargetOptions { max_log_sectors: 64, ..TargetOptions::default() };
    let target = Target::open_with(dir.path(), options).unwrap();
    target.gaps().note(object(1), AWAY, SECOND, &(0..MIB)).unwrap();
    for round in 0..1000 {
        let at = (round % 7 + 2) * MIB;
        target.gaps().note(object(2), AWAY, SECOND, &(at..at + 1)).unwrap();
        target.gaps().clear(object(2), AWAY, &(at..at + MIB)).unwrap();
    }
    let size = std::fs::metadata(dir.path().join("gaps")).unwrap().len();
    assert!(size < 70_000, "{size}");
    drop(target);
    let target = Target::open(dir.path()).unwrap();
    assert_eq!(gaps_of(&target, 1), [0..MIB]);
    assert_eq!(gaps_of(&target, 2), []);
}

/// A closed target with a gap of another target.
fn with_a_log(dir: &Path) -> Vec<u8> {
    let target = made(dir);
    target.gaps().note(object(1), AWAY, SECOND, &(0..MIB)).unwrap();
    drop(target);
    std::fs::read(dir.join("gaps")).unwrap()
}

#[test]
fn a_damaged_log_is_not_taken_for_one_that_says_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let whole = with_a_log(dir.path());
    for at in [3, 70, 515, 600, 1030, 9000] {
        let mut rotten = whole.clone();
        rotten[at] ^= 4;
        std::fs::write(dir.path().join("gaps"), rotten).unwrap();
        knows_nothing(dir.path(), at);
    }
    for len in [0, 100, whole.len() - 5] {
        std::fs::write(dir.path().join("gaps"), &whole[..len]).unwrap();
        knows_nothing(dir.path(), len);
    }
}

#[test]
fn a_log_that_has_vanished_is_missed() {
    let dir = tempfile::tempdir().unwrap();
    with_a_log(dir.path());
    std::fs::remove_file(dir.path().join("gaps")).unwrap();
    knows_nothing(dir.path(), 0);
}

/// Checks that the target knows nothing, also on a second opening, until everything is found.
fn knows_nothing(dir: &Path, case: usize) {
    for _ in 0..2 {
        let target = Target::open(dir).unwrap();
        assert!(target.gaps().lost(), "{case}");
        assert_eq!(target.gaps().lost_files(), [0..u64::MAX], "{case}");
        assert!(target.gaps().lacks(object(77), TargetId(1), &(5..6)), "{case}");
        assert!(!target.gaps().lacks(object(77), TargetId(9), &(5..6)), "{case}");
        target.gaps().note(object(9), AWAY, SECOND, &(0..MIB)).unwrap();
        target.drop_unclosed();
    }
    let target = Target::open(dir).unwrap();
    target.gaps().found().unwrap();
    target.gaps().found().unwrap();
    assert!(!target.gaps().lost() && !target.gaps().lacks(object(77), TargetId(1), &(5..6)));
    assert_eq!(gaps_of(&target, 9), [0..MIB]);
    drop(target);
    assert!(!Target::open(dir).unwrap().gaps().lost(), "{case}");
}

#[test]
fn a_log_that_never_was_is_not_missed() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    target.object_or_create(object(1)).unwrap().sync().unwrap();
    target.drop_unclosed();
    let target = Target::open(dir.path()).unwrap();
    assert!(!target.gaps().lost());
    assert!(!dir.path().join("gaps").exists());
}

#[test]
fn what_is_lacking_is_told_of_each_byte_and_target() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    let lacks = |file, of, range| target.gaps().lacks(object(file), of, &range);
    assert!(!lacks(1, AWAY, 0..u64::MAX));
    target.gaps().note(object(1), AWAY, SECOND, &(MIB..3 * MIB)).unwrap();
    assert!(lacks(1, AWAY, 0..MIB + 1) && lacks(1, AWAY, 3 * MIB - 1..4 * MIB));
    assert!(!lacks(1, AWAY, 0..MIB) && !lacks(1, AWAY, 3 * MIB..u64::MAX));
    assert!(!lacks(1, AWAY, MIB + 5..MIB + 5), "nothing is not lacking");
    assert!(!lacks(1, TargetId(9), 0..u64::MAX) && !lacks(2, AWAY, 0..u64::MAX));
    for _ in 0..2 {
        target.gaps().clear(object(1), AWAY, &(0..2 * MIB)).unwrap();
        assert!(!lacks(1, AWAY, 0..2 * MIB) && lacks(1, AWAY, 2 * MIB..2 * MIB + 1));
    }
    target.gaps().clear(object(1), AWAY, &(0..u64::MAX)).unwrap();
    assert!(!lacks(1, AWAY, 0..u64::MAX));
}

#[test]
fn threads_that_note_and_clear_at_once_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let gaps = target.gaps();
            scope.spawn(move || {
                for i in 0..150 {
                    let (file, at) = (i % 7, (thread * 1000 + i) * 2 * MIB);
                    gaps.note(object(file), AWAY, SECOND, &(at..at + 1)).unwrap();
                    assert!(gaps.lacks(object(file), AWAY, &(at..at + 1)));
                    if i % 3 > 0 {
                        gaps.clear(object(file), AWAY, &(at..at + MIB)).unwrap();
                    }
                }
            });
        }
    });
    target.drop_unclosed();
    let target = Target::open(dir.path()).unwrap();
    for (thread, i) in (0..4).flat_map(|thread| (0..150).map(move |i| (thread, i))) {
        let at = (thread * 1000 + i) * 2 * MIB;
        let lacks = target.gaps().lacks(object(i % 7), AWAY, &(at..at + 1));
        // A full set may include bytes between two ranges.
        assert!(lacks || i % 3 > 0, "{thread} {i}");
    }
}

#[test]
fn what_is_left_of_a_gap_gets_less_with_each_part_that_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    let gaps = target.gaps();
    gaps.note(object(1), AWAY, SECOND, &(0..u64::MAX)).unwrap();
    gaps.note(object(2), AWAY, SECOND, &(5..2 * MIB + 5)).unwrap();
    assert_eq!(gaps.untold(), [(AWAY, 4)]);
    // It ends there.
    gaps.sent(object(1), AWAY, &(2 * MIB + 1..u64::MAX));
    assert_eq!(gaps.untold(), [(AWAY, 6)]);
    gaps.sent(object(1), AWAY, &(0..MIB));
    assert_eq!(gaps.untold(), [(AWAY, 5)]);
    gaps.sent(object(1), AWAY, &(MIB..2 * MIB + 1));
    assert_eq!(gaps.untold(), [(AWAY, 4)], "it is not durable there");
    gaps.clear_sent(object(1), AWAY).unwrap();
    assert_eq!(gaps.untold(), [(AWAY, 3)]);
}

#[test]
fn what_was_noted_anew_or_not_sent_after_all_stays() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    let gaps = target.gaps();
    gaps.note(object(1), AWAY, SECOND, &(0..4 * MIB)).unwrap();
    gaps.sent(object(1), AWAY, &(0..4 * MIB));
    gaps.not_sent(object(1), AWAY, &(3 * MIB..4 * MIB));
    // No record is written: the gap is noted already.
    gaps.note(object(1), AWAY, SECOND, &(MIB..MIB + 1)).unwrap();
    gaps.clear_sent(object(1), AWAY).unwrap();
    assert_eq!(gaps_of(&target, 1), [MIB..2 * MIB, 3 * MIB..4 * MIB]);
}

#[test]
fn what_a_copy_says_itself_is_told_unless_something_else_is_noted_that_it_has_not_heard_of() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    let gaps = target.gaps();
    gaps.note_said(object(1), AWAY, SECOND, &(0..1)).unwrap();
    gaps.note_said(object(1), AWAY, SECOND, &(MIB..MIB + 1)).unwrap();
    assert!(gaps.untold().is_empty() && gaps.is_told(object(1), AWAY, &(0..2 * MIB)));
    gaps.note(object(1), AWAY, SECOND, &(2 * MIB..2 * MIB + 1)).unwrap();
    gaps.note_said(object(1), AWAY, SECOND, &(3 * MIB..3 * MIB + 1)).unwrap();
    assert_eq!(gaps.untold(), [(AWAY, 4)]);
    gaps.clear(object(1), AWAY, &(0..u64::MAX)).unwrap();
    gaps.note_said(object(1), AWAY, SECOND, &(0..1)).unwrap();
    assert!(gaps.untold().is_empty());
}

#[test]
fn what_a_copy_says_of_a_part_that_it_was_sent_some_of_is_not_put_off_unheard() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    let gaps = target.gaps();
    gaps.put_off(object(1), AWAY, SECOND, &(0..MIB)).unwrap();
    assert!(gaps.put_off_again(object(1), AWAY, &(0..1)));
    // The copy clears the first half of its note; then the connection breaks.
    gaps.begins(object(1), AWAY, &(0..MIB / 2));
    gaps.note_said(object(1), AWAY, SECOND, &(MIB / 2..MIB)).unwrap();
    assert!(!gaps.put_off_again(object(1), AWAY, &(0..1)), "it serves that");
    gaps.note_told(object(1), AWAY, SECOND, &(0..MIB)).unwrap();
    assert!(gaps.put_off_again(object(1), AWAY, &(0..1)));
}

/// Regression: old bytes were read after a write that was postponed on the word of an outdated
/// report.
#[test]
fn what_a_copy_said_before_it_got_it_is_not_put_off_unheard() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    let gaps = target.gaps();
    let lacks = || gaps.note_said(object(1), AWAY, SECOND, &(0..MIB)).unwrap();
    lacks();
    gaps.clear(object(1), AWAY, &(0..MIB)).unwrap();
    // Reported again, because no answer came; the second report arrives only here.
    lacks();
    assert!(!gaps.put_off_again(object(1), AWAY, &(0..1)), "it serves that");
    assert!(gaps.untold().is_empty(), "it lacks nothing that it does not know of");
    // Asked, the copy has noted it.
    gaps.put_off(object(1), AWAY, SECOND, &(0..1)).unwrap();
    assert!(gaps.put_off_again(object(1), AWAY, &(0..1)));
}

#[test]
fn what_another_copy_had_got_does_not_count_when_its_machine_has_started_anew() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    let gaps = target.gaps();
    gaps.in_run(AWAY, 1);
    gaps.put_off(object(1), AWAY, SECOND, &(100..200)).unwrap();
    gaps.got(object(1), AWAY, &[(100, 100)]);
    gaps.sent(object(1), AWAY, &(0..MIB));
    gaps.in_run(AWAY, 1);
    assert!(gaps.left(object(1), AWAY).is_some_and(|left| left.is_empty()));
    gaps.in_run(AWAY, 2);
    assert_eq!(gaps.left(object(1), AWAY), None, "all of it is sent once more");
    gaps.clear_sent(object(1), AWAY).unwrap();
    assert_eq!(gaps_of(&target, 1), [0..MIB]);
}

#[test]
fn of_what_was_put_off_it_is_known_which_bytes_are_left_until_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    let gaps = target.gaps();
    let left = || gaps.left(object(1), AWAY).map(|left| left.iter().collect::<Vec<_>>());
    gaps.put_off(object(1), AWAY, SECOND, &(100..200)).unwrap();
    assert_eq!(gaps_of(&target, 1), [0..MIB], "whole MiB");
    assert!(gaps.untold().is_empty(), "it has been told");
    assert!(gaps.put_off_again(object(1), AWAY, &(300..400)));
    assert!(!gaps.put_off_again(object(1), AWAY, &(MIB..MIB + 1)), "nobody knows of that");
    gaps.got(object(1), AWAY, &[(100, 50), (300, 100)]);
    assert_eq!(left(), Some(vec![150..200]));
    // While bytes are being cleared, more are postponed: these stay.
    gaps.got(object(1), AWAY, &[(150, 50)]);
    gaps.sent(object(1), AWAY, &(0..MIB));
    assert!(!gaps.put_off_again(object(1), AWAY, &(500..600)));
    gaps.put_off(object(1), AWAY, SECOND, &(500..600)).unwrap();
    gaps.clear_sent(object(1), AWAY).unwrap();
    assert_eq!((gaps_of(&target, 1), left()), (vec![0..MIB], Some(vec![500..600])));
    // Other missing bytes are not known so exactly.
    gaps.note(object(1), AWAY, SECOND, &(700..800)).unwrap();
    assert_eq!((left(), gaps.untold()), (None, vec![(AWAY, 1)]));
    gaps.put_off(object(1), AWAY, SECOND, &(900..901)).unwrap();
    assert_eq!(left(), None);
    gaps.clear(object(1), AWAY, &(0..MIB)).unwrap();
    gaps.put_off(object(1), AWAY, SECOND, &(900..901)).unwrap();
    assert_eq!(left(), Some(vec![900..901]));
    target.drop_unclosed();
    let target = Target::open(dir.path()).unwrap();
    assert_eq!((gaps_of(&target, 1), target.gaps().left(object(1), AWAY)), (vec![0..MIB], None));
}

#[test]
fn who_knows_that_another_one_lacks_something_says_so_of_its_parts_alone() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    let knows = |bytes: Range<u64>| target.gaps().knows_of_others(object(1), &bytes);
    assert!(!knows(0..u64::MAX));
    target.gaps().note(object(1), ELSEWHERE, SECOND, &(0..5)).unwrap();
    assert!(!knows(0..u64::MAX), "what it lacks itself is no other's");
    target.gaps().note(object(1), AWAY, SECOND, &(5..10)).unwrap();
    assert!(knows(0..1) && knows(MIB - 1..2 * MIB) && !knows(MIB..2 * MIB));
    target.gaps().clear(object(1), AWAY, &(0..MIB)).unwrap();
    assert!(!knows(0..u64::MAX));
}

/// A target that has lost its log, with an object for which the other copies have not reported.
fn unheard(dir: &Path, bytes: Range<u64>) -> Target {
    with_a_log(dir);
    std::fs::remove_file(dir.join("gaps")).unwrap();
    let target = Target::open(dir).unwrap();
    let note = |behind, bytes| Note { object: object(9), behind, copy: CopyIndex(0), bytes };
    target.gaps().note_all(&[note(OWN, 0..8 * MIB), note(UNHEARD, bytes)]).unwrap();
    target
}

const OWN: TargetId = TargetId(1);

fn noted(target: &Target, under: TargetId) -> Vec<Range<u64>> {
    target.gaps().of(object(9), under).iter().flat_map(RangeSet::iter).collect()
}

#[test]
fn what_was_written_since_an_object_is_held_does_not_become_elsewhere_again() {
    let dir = tempfile::tempdir().unwrap();
    let target = unheard(dir.path(), 0..1);
    let (gaps, block) = (target.gaps(), 2 * MIB..2 * MIB + 4096);
    gaps.hold(object(9), CopyIndex(0)).unwrap();
    assert!(gaps.is_held(object(9)) && noted(&target, OWN).is_empty());
    gaps.clear(object(9), ELSEWHERE, &block).unwrap();
    let left = [0..block.start, block.end..8 * MIB];
    assert_eq!(noted(&target, ELSEWHERE), left);
    // Bytes that come into doubt later are newer.
    gaps.note(object(9), OWN, CopyIndex(0), &block).unwrap();
    gaps.hold(object(9), CopyIndex(0)).unwrap();
    assert_eq!(
        (noted(&target, ELSEWHERE), noted(&target, OWN)),
        (left.to_vec(), vec![2 * MIB..3 * MIB])
    );
    gaps.clear(object(9), OWN, &(0..u64::MAX)).unwrap();
    // To the exact byte.
    gaps.release(object(9), CopyIndex(0)).unwrap();
    assert_eq!((noted(&target, ELSEWHERE), noted(&target, OWN)), (vec![], left.to_vec()));
    assert!(!gaps.is_held(object(9)));
    target.drop_unclosed();
    let target = Target::open(dir.path()).unwrap();
    assert_eq!((noted(&target, OWN), noted(&target, UNHEARD)), (left.to_vec(), vec![0..MIB]));
    // The report of other copies is remembered.
    target.gaps().heard(object(9)).unwrap();
    target.gaps().hold(object(9), CopyIndex(0)).unwrap();
    assert_eq!((noted(&target, OWN), noted(&target, UNHEARD)), (left.to_vec(), vec![]));
}

#[test]
fn of_a_lost_log_no_file_is_known_until_all_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let target = unheard(dir.path(), 0..1);
    assert!(target.gaps().is_unknown(object(77)) && target.gaps().is_unknown(object(9)));
    target.gaps().found().unwrap();
    assert!(!target.gaps().is_unknown(object(77)) && !target.gaps().is_unknown(object(9)));
}
