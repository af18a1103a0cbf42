//! What other copies lack is remembered over any end of the process.
#![allow(clippy::unwrap_used)]

mod support;

use std::ops::Range;
use std::path::Path;
use weir_store::{Target, TargetIdentity};
use weir_types::{ColumnIndex, CopyIndex, ErrorKind, FileId, ObjectId, SegmentIndex};
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
    target.gaps().clear(object(1), AWAY, &(0..u64::MAX)).unwrap();
    assert_eq!(target.gaps().counts(), [(AWAY, 1), (TargetId(9), 1)]);
    // Of an object that is removed nobody lacks anything.
    target.remove(object(2)).unwrap();
    assert_eq!(target.gaps().counts(), []);
    assert_eq!(target.gaps().next(AWAY, None), None);
}

#[test]
fn a_log_that_is_written_anew_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    target.gaps().note(object(1), AWAY, SECOND, &(0..MIB)).unwrap();
    let size = || std::fs::metadata(dir.path().join("gaps")).unwrap().len();
    let mut largest = 0;
    for round in 0..3000 {
        let at = (round % 7 + 2) * MIB;
        target.gaps().note(object(2), AWAY, SECOND, &(at..at + 1)).unwrap();
        target.gaps().clear(object(2), AWAY, &(at..at + MIB)).unwrap();
        largest = size().max(largest);
    }
    assert!(size() < largest && largest < 1 << 20, "{largest}");
    drop(target);
    let target = Target::open(dir.path()).unwrap();
    assert_eq!(gaps_of(&target, 1), [0..MIB]);
    assert_eq!(gaps_of(&target, 2), []);
}

#[test]
fn the_end_of_a_log_may_be_torn_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let target = made(dir.path());
    for file in 1..4 {
        target.gaps().note(object(file), AWAY, SECOND, &(0..MIB)).unwrap();
    }
    drop(target);
    let path = dir.path().join("gaps");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    let target = Target::open(dir.path()).unwrap();
    assert_eq!(target.gaps().counts(), [(AWAY, 2)]);
    target.gaps().note(object(9), AWAY, SECOND, &(0..MIB)).unwrap();
    drop(target);
    let target = Target::open(dir.path()).unwrap();
    assert_eq!(gaps_of(&target, 9), [0..MIB]);
    drop(target);
    for at in [3, 70, 100] {
        let mut rotten = whole.clone();
        rotten[at] ^= 4;
        std::fs::write(&path, rotten).unwrap();
        let error = Target::open(dir.path()).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Corrupt, "byte {at}: {error}");
        assert!(error.message.contains("gap log"), "{error}");
    }
}
