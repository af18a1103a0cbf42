//! A failing disk: errors are clean and name it, no wrong bytes are served, and no changes are made
//! while its contents are uncertain.

use crate::support::*;
use rustix::io::Errno;
use std::sync::Arc;
use weir_simhost::disk::{Operation, SimDisk, with_disk};
use weir_store::{Object, ReadMode, Target};
use weir_types::{ErrorKind, Generation};

const DIR: &str = "/disk/target";

/// Runs `body` with an object of 100,000 synced bytes.
fn with_object(body: impl FnOnce(&SimDisk, &Target, Arc<Object>)) {
    let disk = SimDisk::new(1);
    with_disk(&disk, 1, || {
        Target::create(DIR, IDENTITY).unwrap();
        let target = Target::open(DIR).unwrap();
        let object = target.object_or_create(object_id(1)).unwrap();
        write(&object, 0, &pattern(1, 100_000));
        object.sync().unwrap();
        body(&disk, &target, object);
    });
}

fn is_named(error: &weir_types::Error) {
    assert!(error.message.contains("target 3 (/disk/target)"), "{error}");
}

/// Checks that the target refuses changes, says why, and still serves blocks that verify.
fn is_out_of_service(target: &Target, object: &Object, first: &weir_types::Error) {
    is_named(first);
    let trouble = target.trouble().unwrap();
    assert!(trouble.contains("out of service") && trouble.contains(&first.message), "{trouble}");
    let refusals = [
        write_pieces(object, &[(0, 3)], b"new", G0).unwrap_err(),
        object.truncate(5, Generation(1)).unwrap_err(),
        object.punch(0, 5, G0).unwrap_err(),
        object.allocate(0, 5, false, G0).unwrap_err(),
        object.sync().unwrap_err(),
        target.sync_all().unwrap_err(),
        target.sync_removals().unwrap_err(),
        target.remove(object_id(1)).unwrap_err(),
        target.object_or_create(object_id(77)).err().unwrap(),
    ];
    for error in refusals {
        assert_eq!(error.kind, ErrorKind::Io);
        assert!(error.message.contains(&first.message), "{error}");
    }
    assert_eq!(read(object, 20_480, 4096), pattern(1, 100_000)[20_480..24_576]);
}

#[test]
fn after_a_failed_sync_nothing_is_changed_any_more() {
    with_object(|disk, target, object| {
        write(&object, 5, b"lost?");
        disk.fail_next(Operation::Sync, Errno::IO, 0);
        let error = object.sync().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Io);
        is_out_of_service(target, &object, &error);
    });
    with_object(|disk, target, object| {
        disk.fail_next(Operation::SyncFileSystem, Errno::IO, 0);
        let error = target.sync_all().unwrap_err();
        is_out_of_service(target, &object, &error);
    });
    with_object(|disk, target, object| {
        write(&target.object_or_create(object_id(2)).unwrap(), 0, b"new");
        target.remove(object_id(2)).unwrap();
        disk.fail_next(Operation::SyncDirectory, Errno::IO, 0);
        let error = target.sync_removals().unwrap_err();
        is_out_of_service(target, &object, &error);
    });
}

#[test]
fn a_mark_that_cannot_be_made_durable_stops_the_write() {
    with_object(|disk, target, object| {
        target.sync_all().unwrap();
        // The object is old here, so overwriting it needs a mark.
        disk.fail_next(Operation::Sync, Errno::IO, 0);
        let error = write_pieces(&object, &[(0, 3)], b"new", G0).unwrap_err();
        assert!(error.message.contains("intent log"), "{error}");
        assert_eq!(read(&object, 0, 3), pattern(1, 3));
        is_out_of_service(target, &object, &error);
    });
}

#[test]
fn a_write_error_takes_the_target_out_of_service() {
    for passed in 0..3 {
        with_object(|disk, target, object| {
            disk.fail_next(Operation::Write, Errno::IO, passed);
            // A write has slots, then data. The third call belongs to a second write.
            let result = write_pieces(&object, &[(50_000, 3)], b"new", G0);
            let result = result.and_then(|_| write_pieces(&object, &[(60_000, 3)], b"new", G0));
            let error = result.unwrap_err();
            is_out_of_service(target, &object, &error);
        });
    }
}

#[test]
fn a_full_disk_fails_a_write_and_nothing_else() {
    with_object(|disk, target, object| {
        let hole = 3_000_000;
        disk.set_space(disk.used_bytes());
        for at in [hole, 100_000, 99_999] {
            let error = write_pieces(&object, &[(at, 9000)], &[7; 9000], G0).unwrap_err();
            assert_eq!(error.kind, ErrorKind::NoSpace);
            is_named(&error);
        }
        assert_eq!(target.trouble(), None);
        assert_eq!(read(&object, 0, 200_000)[..99_999], pattern(1, 99_999));
        // Overwriting existing bytes needs no space.
        write(&object, 0, b"new");
        disk.set_space(1 << 40);
        write(&object, 100_000, &[7; 9000]);
        assert_eq!(read(&object, 100_000, 9000), [7; 9000]);
    });
}

#[test]
fn a_write_that_is_repeated_after_an_error_is_right() {
    // Whichever step fails for lack of space, the object verifies, and the same write succeeds when
    // there is space.
    for passed in 0..6 {
        for at in [99_990u64, 100_000, 50_123, 4096, PAGE_BORDER - 3000] {
            with_object(|disk, target, object| {
                target.sync_all().unwrap();
                let data = pattern(passed + at, 6000);
                disk.fail_next(Operation::Write, Errno::NOSPC, passed);
                let result = write_pieces(&object, &[(at, 6000)], &data, G0);
                let got = read_pieces(&object, &[(0, 8 << 20)], ReadMode::Locked);
                assert!(matches!(got, Ok(Received::Good(_))), "{passed} {at}: {got:?}");
                if result.is_err() {
                    write_pieces(&object, &[(at, 6000)], &data, G0).unwrap();
                }
                assert_eq!(read(&object, at, 6000), data);
                assert_eq!(read(&object, 0, at.min(100_000)), pattern(1, at.min(100_000) as usize));
                assert_eq!(target.trouble(), None);
            });
        }
    }
}

#[test]
fn a_vanished_directory_is_not_an_empty_one() {
    with_object(|disk, target, _object| {
        disk.remove_directory("disk/target").unwrap();
        let error = target.object(object_id(5)).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Io);
        is_named(&error);
        assert!(error.message.contains("vanished"), "{error}");
        assert!(target.trouble().is_some());
        assert!(target.object_or_create(object_id(6)).is_err());
        assert!(target.remove(object_id(7)).is_err());
    });
}

#[test]
fn a_disk_that_becomes_read_only_refuses_changes_and_serves_reads() {
    with_object(|disk, target, object| {
        disk.set_read_only(true);
        let error = write_pieces(&object, &[(0, 3)], b"new", G0).unwrap_err();
        assert_eq!(error.kind, ErrorKind::ReadOnly);
        is_named(&error);
        assert!(target.object_or_create(object_id(9)).is_err());
        assert_eq!(read(&object, 0, 100_000), pattern(1, 100_000));
    });
}

#[test]
fn a_block_that_cannot_be_read_is_an_error_and_found_by_scrubbing() {
    with_object(|disk, target, object| {
        let (path, _) =
            disk.files().into_iter().find(|(path, _)| path.contains("objects")).unwrap();
        let at = 32 * 4096 + 5 * 4096;
        disk.fail_reads(&path, at..at + 10).unwrap();
        let error = read_pieces(&object, &[(0, 100_000)], ReadMode::Blocking).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Io);
        is_named(&error);
        let step = target.scrub(&Default::default(), u64::MAX).unwrap();
        let found: Vec<_> = step.findings.iter().map(|f| (f.offset, f.len, f.damage)).collect();
        assert_eq!(found, [(5 * 4096, 4096, weir_store::Damage::Unreadable)]);
    });
}

#[test]
fn a_recovery_that_cannot_write_is_done_again_and_not_forgotten() {
    for seed in 0..400 {
        let (cut, after) = (seed / 4, seed % 4);
        let disk = SimDisk::new(1);
        with_disk(&disk, 1, || {
            Target::create(DIR, IDENTITY).unwrap();
            let target = Target::open(DIR).unwrap();
            let object = target.object_or_create(object_id(1)).unwrap();
            write(&object, 0, &pattern(1, 100_000));
            object.sync().unwrap();
            for i in 0..10 {
                write(&object, i * 9_000, &pattern(i + 2, 7_000));
            }
            target.drop_unclosed();
        });
        disk.power_cut(&mut fastrand::Rng::with_seed(cut));
        disk.fail_next(Operation::Write, Errno::IO, after);
        // The target opens, or fails with that error.
        with_disk(&disk, 2, || drop(Target::open(DIR).map(Target::drop_unclosed)));
        disk.heal();
        with_disk(&disk, 3, || {
            let target = Target::open(DIR).unwrap();
            let object = target.object(object_id(1)).unwrap().unwrap();
            let got = read_pieces(&object, &[(0, object.len())], ReadMode::Locked);
            assert!(matches!(got, Ok(Received::Good(_))), "cut {cut}, write {after}: {got:?}");
        });
    }
}
