//! A change on several copies is suspect after an unclean stop until its outcome is known, and not
//! afterwards.
#![allow(clippy::single_range_in_vec_init, reason = "one range is meant")]

use crate::support::*;
use std::ops::Range;
use weir_store::{Target, TargetOptions};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{ErrorKind, Generation};

const MIB: u64 = 1 << 20;
/// The smallest range that is marked.
const GRANULE: u64 = 4 * MIB;

/// The bytes of an object that the target itself lacks according to its notes.
fn own_gaps(store: &TestTarget, file: u64) -> Vec<Range<u64>> {
    let (gaps, mut after) = (store.target.gaps(), None);
    while let Some(gap) = gaps.next(IDENTITY.target, after) {
        if gap.object == object_id(file) {
            assert_eq!(gap.copy, object_id(file).copy);
            return gap.bytes.iter().collect();
        }
        after = Some(gap.object);
    }
    Vec::new()
}

/// A target with an old object of 20 MiB, and a gap log.
fn with_an_object() -> TestTarget {
    let store = TestTarget::new();
    write(&store.target.object_or_create(object_id(1)).unwrap(), 20 * MIB - 1, &[1]);
    drop(store.target.pledge(object_id(1), &[(0, 1)]).unwrap());
    store.reopen()
}

#[test]
fn a_change_under_way_is_suspect_over_checkpoints_and_nothing_else_is() {
    let store = with_an_object();
    write(&store.target.object_or_create(object_id(2)).unwrap(), 0, b"done");
    let pledge = store.target.pledge(object_id(1), &[(5 * MIB, 10)]).unwrap();
    store.target.sync_all().unwrap();
    store.target.sync_all().unwrap();
    let store = store.kill_and_reopen();
    drop(pledge);
    assert_eq!(own_gaps(&store, 1), [GRANULE..2 * GRANULE]);
    assert_eq!(own_gaps(&store, 2), []);
    assert!(store.target.gaps().lacks(object_id(1), IDENTITY.target, &(5 * MIB..5 * MIB + 1)));
    assert!(!store.target.gaps().lacks(object_id(1), IDENTITY.target, &(0..GRANULE)));
    // Cleared bytes stay cleared, and the others stay a gap.
    let store = store.kill_and_reopen();
    assert_eq!(own_gaps(&store, 1), [GRANULE..2 * GRANULE]);
    let bytes = GRANULE..2 * GRANULE;
    store.target.gaps().clear(object_id(1), IDENTITY.target, &bytes).unwrap();
    assert_eq!(own_gaps(&store.kill_and_reopen(), 1), []);
}

#[test]
fn a_change_that_is_done_is_suspect_until_the_next_checkpoint() {
    let store = with_an_object();
    drop(store.target.pledge(object_id(1), &[(0, 10)]).unwrap());
    let store = store.kill_and_reopen();
    assert_eq!(own_gaps(&store, 1), [0..GRANULE]);
    store.target.gaps().clear(object_id(1), IDENTITY.target, &(0..u64::MAX)).unwrap();
    drop(store.target.pledge(object_id(1), &[(0, 10)]).unwrap());
    store.target.sync_all().unwrap();
    assert_eq!(own_gaps(&store.kill_and_reopen(), 1), []);
}

#[test]
fn an_object_that_was_never_written_to_is_suspect_as_a_whole() {
    let store = with_an_object();
    let _pledge = store.target.pledge(object_id(7), &[(MIB, 10)]).unwrap();
    let store = store.kill_and_reopen();
    assert_eq!(own_gaps(&store, 7), [0..MAX_FILE_BYTES]);
    assert!(!store.target.gaps().lost(), "the machine ran on");
    // The pledged pieces stay suspect over a checkpoint, although the object is no longer young.
    let _pledge = store.target.pledge(object_id(8), &[(MIB, 10)]).unwrap();
    write(&store.target.object_or_create(object_id(9)).unwrap(), 0, b"young");
    let _another = store.target.pledge(object_id(9), &[(0, 2)]).unwrap();
    store.target.sync_all().unwrap();
    let store = store.kill_and_reopen();
    assert_eq!(own_gaps(&store, 8), [0..MAX_FILE_BYTES], "it was to grow");
    assert_eq!(own_gaps(&store, 9), [0..GRANULE]);
}

#[test]
fn a_target_that_is_closed_amid_a_change_recovers_it() {
    let store = with_an_object();
    let pledge = store.target.pledge(object_id(1), &[(0, 10)]).unwrap();
    let store = store.reopen();
    assert!(store.target.recovery().unclean);
    assert_eq!(own_gaps(&store, 1), [0..GRANULE]);
    drop(pledge);
    assert!(!store.reopen().target.recovery().unclean);
}

#[test]
fn a_change_of_no_bytes_is_suspect_too() {
    let store = with_an_object();
    let _pledge = store.target.pledge(object_id(1), &[]).unwrap();
    assert_eq!(own_gaps(&store.kill_and_reopen(), 1), [0..GRANULE]);
}

#[test]
fn a_target_without_mirrored_objects_keeps_no_gaps() {
    let store = TestTarget::new();
    write(&store.target.object_or_create(object_id(1)).unwrap(), 0, b"young");
    let store = store.kill_and_reopen();
    assert!(store.target.recovery().unclean);
    assert_eq!(store.target.gaps().counts(), []);
    assert!(!store.dir.path().join("gaps").exists());
    let superblock = std::fs::read(store.dir.path().join("superblock")).unwrap();
    assert_eq!(superblock[12..16], [0; 4]);
}

#[test]
fn with_a_damaged_intent_log_nothing_is_known() {
    let store = with_an_object();
    let path = store.dir.path().join("intents");
    let TestTarget { dir, target } = store;
    target.drop_unclosed();
    let mut bytes = std::fs::read(&path).unwrap();
    for at in [600, (1 << 20) + 600] {
        bytes[at] ^= 1;
    }
    std::fs::write(&path, bytes).unwrap();
    assert!(Target::open(dir.path()).unwrap().gaps().lost());
}

#[test]
fn pledges_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    Target::create(dir.path(), IDENTITY).unwrap();
    let options = TargetOptions { max_log_sectors: 3, ..TargetOptions::default() };
    let target = Target::open_with(dir.path(), options).unwrap();
    let pledge = |file| target.pledge(object_id(file), &[(0, 10)]);
    let mut living = Vec::new();
    let error = loop {
        match pledge(living.len() as u64) {
            Ok(pledge) => living.push(pledge),
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind, living.len()), (ErrorKind::Overloaded, 7));
    target.sync_all().unwrap();
    living.pop();
    pledge(99).unwrap();
    let error = target.pledge(object_id(1), &[(u64::MAX, 2)]).err().unwrap();
    assert_eq!(error.kind, ErrorKind::InvalidArgument);
}

#[test]
fn an_object_gets_the_length_and_the_fence_of_another_copy() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    assert_eq!(object.align(10, G0).unwrap(), 10);
    write(&object, 0, b"some bytes, more than ten");
    assert_eq!(object.align(10, Generation(4)).unwrap(), 10);
    assert_eq!(object.generation(), Generation(4));
    // Even with the same fence: the length is not the one of that truncation.
    assert_eq!(object.align(SECTION_BORDER + 7, Generation(4)).unwrap(), SECTION_BORDER + 7);
    assert_eq!(read(&object, 0, 20), [b"some bytes".as_slice(), &[0; 10]].concat());
    assert_eq!(object.align(5, Generation(4)).unwrap(), 5);
    assert_eq!(object.align(7, Generation(3)).unwrap(), 7, "the other one has lost a truncation");
    assert_eq!(object.generation(), Generation(3));
    assert_eq!(object.truncate(5, Generation(4)).unwrap(), 5, "so it is done again");
    let too_long = object.align(u64::MAX, Generation(5)).unwrap_err();
    assert_eq!(too_long.kind, ErrorKind::FileTooLarge);
    assert_eq!(object.align(1 << 40, Generation(9)).unwrap(), 1 << 40);
    drop(object);
    let store = store.kill_and_reopen();
    assert_eq!(store.target.object(object_id(1)).unwrap().unwrap().len(), 1 << 40);
}

#[test]
fn checksums_tell_where_two_copies_differ() {
    let store = TestTarget::new();
    let copy = |file| store.target.object_or_create(object_id(file)).unwrap();
    let (a, b) = (copy(1), copy(2));
    let bytes = pattern(1, 10 * BLOCK as usize + 5);
    for object in [&a, &b] {
        write(object, SECTION_BORDER - 4 * BLOCK, &bytes);
        write(object, 0, &bytes);
    }
    let border = SECTION_BORDER / BLOCK;
    for blocks in [0..12, border - 6..border + 9, 5..5, 1 << 40..(1 << 40) + 3] {
        assert_eq!(a.slots(blocks.clone()).unwrap(), b.slots(blocks).unwrap());
    }
    let slots = a.slots(9..13).unwrap();
    assert!(slots[0] != 0 && slots[1] != 0);
    assert_eq!(slots[2..], [0, 0], "a hole");
    // The end of an object counts as followed by zeros.
    b.align(SECTION_BORDER + 99 * BLOCK, G0).unwrap();
    assert_eq!(a.slots(border..border + 200).unwrap(), b.slots(border..border + 200).unwrap());
    write(&b, SECTION_BORDER + 5, b"other");
    let (a, b) =
        (a.slots(border - 2..border + 2).unwrap(), b.slots(border - 2..border + 2).unwrap());
    let differ: Vec<bool> = a.iter().zip(&b).map(|(a, b)| a != b).collect();
    assert_eq!(differ, [false, false, true, false]);
    let object = copy(1);
    assert_eq!(object.slots(0..4096).unwrap().len(), 4096);
    for bad in [0..4097, u64::MAX - 1..u64::MAX] {
        assert_eq!(object.slots(bad).unwrap_err().kind, ErrorKind::InvalidArgument);
    }
}
