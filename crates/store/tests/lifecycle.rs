//! Targets that are closed, killed, upgraded and damaged.

use crate::support::*;
use std::os::unix::fs::FileExt;
use weir_store::{RecoveryReport, ScrubCursor, Target};
use weir_types::{ErrorKind, Generation};

#[test]
fn a_target_that_was_closed_has_nothing_to_recover() {
    let store = TestTarget::new();
    write(&store.target.object_or_create(object_id(1)).unwrap(), 0, &pattern(1, 50_000));
    let store = store.reopen();
    assert_eq!(*store.target.recovery(), RecoveryReport::default());
    assert_eq!(read(&store.target.object(object_id(1)).unwrap().unwrap(), 0, 9), pattern(1, 9));
}

#[test]
fn after_a_kill_only_what_was_written_is_examined() {
    let store = TestTarget::new();
    for file in 1..20 {
        let object = store.target.object_or_create(object_id(file)).unwrap();
        write(&object, 0, &pattern(file, 10_000));
    }
    store.target.sync_all().unwrap();
    let old = store.target.object(object_id(5)).unwrap().unwrap();
    write(&old, 9000, b"new");
    write(&store.target.object_or_create(object_id(50)).unwrap(), 0, &pattern(50, 7000));
    drop(old);
    let store = store.kill_and_reopen();
    let report = store.target.recovery();
    assert!(report.unclean && !report.log_damaged);
    assert_eq!((report.objects, report.bytes, report.blocks, report.failed), (2, 17_000, 0, 0));
}

#[test]
fn a_block_whose_checksum_did_not_make_it_is_recovered_with_its_synced_bytes() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    write(&object, 0, &pattern(1, 5000));
    store.target.sync_all().unwrap();
    write(&object, 5000, b"appended");
    drop(object);
    // The kill came between the checksum and the data.
    let path = store.only_file();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(32 * 4096 + 5000).unwrap();
    let store = store.kill_and_reopen();
    assert_eq!(store.target.recovery().blocks, 1);
    let object = store.target.object(object_id(1)).unwrap().unwrap();
    assert_eq!(read(&object, 0, 10_000), pattern(1, 5000));
}

#[test]
fn rot_of_what_was_not_marked_is_still_rot_after_a_kill() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    write(&object, 0, &pattern(1, 9_000_000));
    store.target.sync_all().unwrap();
    write(&object, 0, b"new");
    drop(object);
    let file = std::fs::File::options().write(true).open(store.only_file()).unwrap();
    file.write_all_at(b"rotten", 32 * 4096 + 8_500_000).unwrap();
    let store = store.kill_and_reopen();
    let object = store.target.object(object_id(1)).unwrap().unwrap();
    let error = read_pieces(&object, &[(8_500_000, 9)], weir_store::ReadMode::Locked).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert_eq!(read(&object, 0, 3), b"new");
}

#[test]
fn a_target_of_the_first_format_is_brought_up_to_date() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    write(&object, 0, &pattern(1, 50_000));
    object.truncate(40_000, Generation(3)).unwrap();
    drop(object);
    let store = store.into_version_1();
    let object = store.target.object(object_id(1)).unwrap().unwrap();
    assert_eq!(object.generation(), Generation(3));
    assert_eq!(read(&object, 0, 50_000), pattern(1, 40_000));
    write_pieces(&object, &[(39_000, 5000)], &pattern(2, 5000), Generation(3)).unwrap();
    drop(object);
    let store = store.kill_and_reopen();
    assert_eq!(store.target.recovery().objects, 1);
    let object = store.target.object(object_id(1)).unwrap().unwrap();
    assert_eq!(read(&object, 39_000, 5000), pattern(2, 5000));
    let superblock = std::fs::read(store.dir.path().join("superblock")).unwrap();
    assert_eq!(superblock[8], 2);
}

#[test]
fn a_lost_or_damaged_intent_log_has_everything_verified_and_nothing_repaired() {
    for lost in [true, false] {
        let store = TestTarget::new();
        let object = store.target.object_or_create(object_id(1)).unwrap();
        write(&object, 0, &pattern(1, 50_000));
        drop(object);
        let (path, log) = (store.only_file(), store.dir.path().join("intents"));
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(b"rotten", 32 * 4096 + 20_000).unwrap();
        if lost {
            std::fs::remove_file(&log).unwrap();
        } else {
            let log = std::fs::File::options().write(true).open(&log).unwrap();
            log.write_all_at(b"rotten", 40).unwrap();
            log.write_all_at(b"rotten", (1 << 20) + 40).unwrap();
        }
        let store = store.kill_and_reopen();
        let report = store.target.recovery();
        assert!(report.log_damaged && report.findings == 1 && report.blocks == 0, "{report:?}");
        assert_eq!(read(&store.target.object(object_id(1)).unwrap().unwrap(), 0, 9), pattern(1, 9));
        // The target is served, with a good log.
        write(&store.target.object_or_create(object_id(2)).unwrap(), 0, b"new");
        let store = store.kill_and_reopen();
        assert!(!store.target.recovery().log_damaged);
        assert_eq!(store.target.recovery().objects, 1, "the old object is not young");
    }
}

#[test]
fn an_intent_log_of_another_version_is_refused() {
    let store = TestTarget::new();
    let path = store.dir.path().to_path_buf();
    drop(store.target);
    let mut bytes = std::fs::read(path.join("intents")).unwrap();
    for area in [0, 1 << 20] {
        bytes[area + 16] = 9;
        let check = weir_types::checksum::crc32c(&bytes[area + 8..area + 512]);
        bytes[area + 4..area + 8].copy_from_slice(&check.to_le_bytes());
    }
    std::fs::write(path.join("intents"), &bytes).unwrap();
    let error = Target::open(&path).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.message.contains("version 9") && error.message.contains("intent log"), "{error}");
}

#[test]
fn an_object_that_is_held_when_the_target_is_closed_changes_no_more() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    write(&object, 0, b"hello");
    store.target.close().unwrap();
    assert!(write_pieces(&object, &[(0, 4)], b"late", G0).is_err());
    assert!(object.sync().is_err());
    assert_eq!(read(&object, 0, 5), b"hello");
}

#[test]
fn a_hole_is_punched_and_found() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    let len = SECTION_BORDER + 500_000;
    write(&object, SECTION_BORDER - 500_000, &pattern(1, 1_000_000));
    let (start, end) = (SECTION_BORDER - 200_100, SECTION_BORDER + 100_100);
    assert_eq!(object.punch(start, end - start, G0).unwrap(), len);
    let mut expected = pattern(1, 1_000_000);
    expected[500_000 - 200_100..500_000 + 100_100].fill(0);
    assert!(read(&object, SECTION_BORDER - 500_000, 1_000_000) == expected);
    if object.next_data(0).unwrap() != Some(0) {
        let data = object.next_data(0).unwrap().unwrap();
        assert!(data > SECTION_BORDER - 600_000 && data <= SECTION_BORDER - 500_000);
        let hole = object.next_hole(data).unwrap();
        assert!((start..start + BLOCK).contains(&hole), "{hole} {start}");
        let after = object.next_data(hole).unwrap().unwrap();
        assert!((end - BLOCK..=end).contains(&after), "{after} {end}");
        assert_eq!(object.next_hole(after).unwrap(), len);
    }
    assert_eq!(object.next_data(len).unwrap(), None);
    object.truncate(len, Generation(4)).unwrap();
    assert_eq!(object.punch(0, 10, Generation(3)).unwrap_err().kind, ErrorKind::Stale);
    assert_eq!(
        object.punch(u64::MAX, 10, Generation(4)).unwrap_err().kind,
        ErrorKind::InvalidArgument
    );
}

#[test]
fn room_is_reserved_with_and_without_growing() {
    use std::os::unix::fs::MetadataExt;
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    assert_eq!(object.allocate(0, 5_000_000, true, G0).unwrap(), 0);
    assert!(std::fs::metadata(store.only_file()).unwrap().blocks() * 512 >= 5_000_000);
    write(&object, 100, b"hello");
    assert_eq!(object.allocate(10, 100_000, false, G0).unwrap(), 100_010);
    let mut expected = vec![0; 100_010];
    expected[100..105].copy_from_slice(b"hello");
    assert!(read(&object, 0, 200_000) == expected);
    assert_eq!(object.allocate(0, 0, false, G0).unwrap(), 100_010);
}

/// Checks the disk space of an object. Local file systems take some blocks for their own tables.
#[track_caller]
fn takes(object: &weir_store::Object, bytes: u64) {
    let taken = object.allocated().unwrap();
    assert!((bytes..=bytes + 4 * BLOCK).contains(&taken), "{taken} for {bytes}");
}

#[test]
fn what_an_object_takes_is_the_same_before_the_disk_has_it_and_after() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    // More pieces than an inode of ext4 holds, in two sections, and preallocated space.
    for piece in 0..20 {
        write(&object, piece * 64 * BLOCK, &pattern(1, 2 * BLOCK as usize));
        write(&object, (150 << 20) + piece * 64 * BLOCK, &pattern(2, BLOCK as usize));
    }
    object.allocate(100 << 20, 1 << 20, true, G0).unwrap();
    let before = object.allocated().unwrap();
    object.sync().unwrap();
    assert_eq!(object.allocated().unwrap(), before);
    assert_eq!(before, 60 * BLOCK + (1 << 20));
}

#[test]
fn what_the_data_of_an_object_takes_is_told_without_its_checksums() {
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    takes(&object, 0);
    write(&object, 0, &pattern(1, 10_000));
    takes(&object, 3 * BLOCK);
    // More blocks than the first page has slots for.
    write(&object, 10_000, &pattern(2, 8 << 20));
    takes(&object, (8 << 20) + 3 * BLOCK);
    object.punch(BLOCK, 1 << 20, G0).unwrap();
    takes(&object, (7 << 20) + 3 * BLOCK);
    // In two sections.
    let far = store.target.object_or_create(object_id(2)).unwrap();
    write(&far, SECTION_BORDER - (1 << 20), &pattern(3, 2 << 20));
    takes(&far, 2 << 20);
    object.sync().unwrap();
    far.sync().unwrap();
    takes(&far, 2 << 20);
    far.allocate(10 << 30, 1 << 20, true, G0).unwrap();
    takes(&far, 3 << 20);
}

#[test]
fn scrubbing_goes_on_where_it_stopped_and_counts_everything_once() {
    let store = TestTarget::new();
    let mut bytes = 0;
    for file in 1..30 {
        let object = store.target.object_or_create(object_id(file)).unwrap();
        bytes += write(&object, 0, &pattern(file, file as usize * 7000));
    }
    let (mut cursor, mut objects, mut seen, mut steps) = (Some(ScrubCursor::default()), 0, 0, 0);
    while let Some(at) = cursor {
        let step = store.target.scrub(&at, 20_000).unwrap();
        assert!(step.findings.is_empty(), "{:?}", step.findings);
        (objects, seen, steps) = (objects + step.objects, seen + step.bytes, steps + 1);
        cursor = step.next;
    }
    assert_eq!((objects, seen), (29, bytes));
    assert!(steps > 20);
}

#[test]
fn sections_that_are_written_after_a_farther_one_count() {
    const MIB: u64 = 1 << 20;
    let store = TestTarget::new();
    let object = store.target.object_or_create(object_id(1)).unwrap();
    write(&object, 900 * MIB, &pattern(1, 4096));
    takes(&object, BLOCK);
    write(&object, 300 * MIB, &pattern(2, 4096));
    takes(&object, 2 * BLOCK);
    // Its slots are in two places.
    write(&object, 383 * MIB, &pattern(3, 4096));
    write(&object, 0, &pattern(4, 4096));
    takes(&object, 4 * BLOCK);
    object.sync().unwrap();
    takes(&object, 4 * BLOCK);
    object.punch(0, 400 * MIB, G0).unwrap();
    takes(&object, BLOCK);
    object.punch(0, 901 * MIB, G0).unwrap();
    takes(&object, 0);
}
