//! Disks that fail, fill up, rot or take their time.

use super::{durable_file, images, root};
use crate::disk::{Operation, SimDisk, with_disk};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;
use weir_host::clock;
use weir_host::fs::OpenHow;

#[test]
fn after_a_failed_sync_nothing_tells_of_the_loss() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let file = durable_file(&disk, "a", &[1; 512]);
        file.write_full(&[2; 512], 0).unwrap();
        disk.fail_next(Operation::Sync, Errno::IO, 0);
        assert_eq!(file.sync("test"), Err(Errno::IO));
        assert_eq!(file.sync("test"), Ok(()), "the next one knows nothing of it");
        let seen = disk.read_file("a").unwrap();
        let left: BTreeSet<_> = images(&disk, 20).map(|i| i.read_file("a").unwrap()).collect();
        assert_eq!(left.len(), 1, "it is decided");
        outcomes.insert((seen[0], left.first().unwrap()[0]));
        // What is written after it becomes durable as always.
        file.write_full(&[3; 100], 200).unwrap();
        file.write_full(&[3; 512], 4096).unwrap();
        file.sync("test").unwrap();
        for image in images(&disk, 20) {
            let bytes = image.read_file("a").unwrap();
            assert_eq!(bytes.len(), 4608);
            assert!(bytes[200..300].iter().chain(&bytes[4096..]).all(|b| *b == 3));
        }
    }
    assert_eq!(outcomes, BTreeSet::from([(1, 1), (2, 1), (2, 2)]));
}

#[test]
fn what_a_failed_sync_lost_stays_lost_and_the_rest_is_safe() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let file = durable_file(&disk, "a", &[1; 512]);
        file.write_full(&[2; 2048], 0).unwrap();
        disk.fail_next(Operation::SyncFileSystem, Errno::IO, 0);
        assert_eq!(root(&disk).sync_file_system("test"), Err(Errno::IO));
        let before = images(&disk, 1).next().unwrap().read_file("a").unwrap();
        file.write_full(&[3; 100], 1024).unwrap();
        file.sync("test").unwrap();
        for image in images(&disk, 10) {
            let bytes = image.read_file("a").unwrap();
            assert_eq!(bytes.len(), 2048, "seed {seed}: the length is not data");
            assert_eq!(bytes[1024..1124], [3; 100]);
            assert_eq!(bytes[..512], before[..512]);
            lost += usize::from(bytes[0] == 1);
        }
    }
    assert!(lost > 100, "lost {lost} times of 1000");
}

#[test]
fn room_set_aside_is_given_back() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", &[1; 4096]);
    file.allocate(0, 5 * 4096, true).unwrap();
    file.write_full(&[1], 3 * 4096).unwrap();
    assert_eq!(disk.used_bytes(), 5 * 4096);
    file.set_len(2 * 4096).unwrap();
    assert_eq!(disk.used_bytes(), 2 * 4096);
    file.punch(0, 2 * 4096).unwrap();
    assert_eq!(disk.used_bytes(), 0);
    file.allocate(0, 1 << 36, true).unwrap();
    assert_eq!(disk.used_bytes(), 1 << 36);
}

#[test]
fn holes_are_found() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", &[]);
    file.write_full(&[1; 8192], 8192).unwrap();
    file.set_len(40_000).unwrap();
    assert_eq!(file.next_data(0), Ok(Some(8192)));
    assert_eq!(file.next_data(9000), Ok(Some(9000)));
    assert_eq!(file.next_data(16_384), Ok(None));
    assert_eq!(file.next_hole(0), Ok(0));
    assert_eq!(file.next_hole(9000), Ok(16_384));
    assert_eq!(file.next_hole(50_000), Ok(50_000));
    file.set_len(10_000).unwrap();
    assert_eq!(file.next_hole(8192), Ok(10_000));
    file.punch(8192, 4096).unwrap();
    assert_eq!(file.next_data(0), Ok(None));
}

#[test]
fn names_of_a_failed_sync_may_be_lost() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let root = root(&disk);
        root.open_file("a", OpenHow::CREATE).unwrap();
        disk.fail_next(Operation::SyncDirectory, Errno::IO, 0);
        assert_eq!(root.sync("test"), Err(Errno::IO));
        assert_eq!(root.sync("test"), Ok(()));
        root.open_file("a", OpenHow::WRITE).unwrap();
        lost += images(&disk, 1).filter(|i| i.files().is_empty()).count();
    }
    assert!((20..80).contains(&lost), "lost {lost} times of 100");
}

#[test]
fn errors_come_when_they_are_planned() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", b"data");
    disk.fail_next(Operation::Write, Errno::IO, 1);
    file.write_full(b"1", 0).unwrap();
    assert_eq!(file.write_full(b"2", 0), Err(Errno::IO));
    file.write_full(b"3", 1).unwrap();
    assert_eq!(disk.read_file("a").unwrap(), b"13ta");
    disk.fail_from(Operation::Unlink, Errno::IO, 0);
    let root = root(&disk);
    assert_eq!(root.unlink("a"), Err(Errno::IO));
    assert_eq!(root.unlink("a"), Err(Errno::IO));
    disk.heal();
    root.unlink("a").unwrap();
}

#[test]
fn a_full_disk_takes_what_fits() {
    let disk = SimDisk::new(1);
    disk.set_space(5 * 4096);
    let file = durable_file(&disk, "a", &[1; 4096]);
    let root = root(&disk);
    assert_eq!(root.space().unwrap().free_bytes, 4 * 4096);
    assert_eq!(file.allocate(0, 6 * 4096, true), Err(Errno::NOSPC));
    file.allocate(4096, 4096, true).unwrap();
    let other = root.open_file("b", OpenHow::CREATE).unwrap();
    assert_eq!(other.write_at(&[IoSlice::new(&[2; 20_000])], 100), Ok(3 * 4096 - 100));
    assert_eq!(other.write_full(&[2; 100], 3 * 4096), Err(Errno::NOSPC));
    assert_eq!(root.space().unwrap().free_bytes, 0);
    other.write_full(&[3; 4096], 50).unwrap();
    file.write_full(&[4; 4096], 4096).unwrap();
    assert_eq!(file.size(), Ok(8192), "what was reserved is there");
    other.punch(0, 4096).unwrap();
    file.write_full(&[5; 10], 8192).unwrap();
    root.unlink("b").unwrap();
    assert_eq!(root.space().unwrap().free_bytes, 0, "it is open still");
    drop(other);
    assert_eq!(root.space().unwrap().free_bytes, 2 * 4096);
    for image in images(&disk, 200) {
        let space = super::root(&image).space().unwrap();
        assert_eq!(space.free_bytes, space.total_bytes.saturating_sub(image.used_bytes()));
    }
}

#[test]
fn a_disk_for_reading_only_changes_nothing() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", b"data");
    file.write_full(b"more", 4).unwrap();
    disk.set_read_only(true);
    let root = root(&disk);
    let digest = disk.digest();
    assert_eq!(file.write_full(b"x", 0), Err(Errno::ROFS));
    assert_eq!(file.set_len(0), Err(Errno::ROFS));
    assert_eq!(file.punch(0, 1), Err(Errno::ROFS));
    assert_eq!(file.sync("test"), Err(Errno::ROFS));
    assert_eq!(root.unlink("a"), Err(Errno::ROFS));
    assert_eq!(root.rename("a", "b"), Err(Errno::ROFS));
    assert_eq!(root.make_directory("d"), Err(Errno::ROFS));
    assert_eq!(root.open_file("b", OpenHow::CREATE).err(), Some(Errno::ROFS));
    assert_eq!(root.open_file("a", OpenHow::WRITE).err(), Some(Errno::ROFS));
    let reader = root.open_file("a", OpenHow::READ).unwrap();
    assert_eq!(reader.read_full(&mut [0; 10], 0), Ok(8));
    assert_eq!(disk.digest(), digest);
    disk.set_read_only(false);
    file.sync("test").unwrap();
}

#[test]
fn a_disk_that_is_gone_answers_nothing() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", b"data");
    disk.set_gone(Some(Errno::NOENT));
    assert_eq!(file.write_full(b"x", 0), Err(Errno::NOENT));
    assert_eq!(file.sync("test"), Err(Errno::NOENT));
    let root = with_disk(&disk, 1, || weir_host::fs::Directory::open("/".as_ref()));
    assert_eq!(root.err(), Some(Errno::NOENT));
    disk.heal();
    file.sync("test").unwrap();
}

#[test]
fn bad_sectors_and_cold_pages() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", &[1; 9000]);
    disk.fail_reads("a", 4096..4608).unwrap();
    let mut bytes = [0; 100];
    assert_eq!(file.read_full(&mut bytes, 4000), Err(Errno::IO));
    assert_eq!(file.read_full(&mut bytes, 4607), Err(Errno::IO));
    assert_eq!(file.read_full(&mut bytes, 4608), Ok(100));
    assert_eq!(file.read_full(&mut bytes, 3996), Ok(100));
    disk.heal();
    disk.set_not_cached(0.5);
    let mut again = 0;
    for _ in 0..100 {
        match file.read_at(&mut [IoSliceMut::new(&mut bytes)], 0, true) {
            Ok(n) => assert_eq!(n, 100),
            Err(e) => {
                assert_eq!(e, Errno::AGAIN);
                again += 1;
            }
        }
        assert_eq!(file.read_full(&mut bytes, 0), Ok(100));
    }
    assert!((20..80).contains(&again), "{again} of 100");
}

#[test]
fn rot_is_on_the_disk_and_in_memory() {
    let disk = SimDisk::new(1);
    disk.write_file("d/e/a", &[0; 5000]).unwrap();
    assert!(disk.flip_bit("d/e/a", 4999, 7).unwrap());
    assert!(!disk.flip_bit("d/e/a", 5000, 0).unwrap());
    disk.truncate_file("d/e/a", 5001).unwrap();
    disk.write_file("d/b", b"x").unwrap();
    disk.write_file("d/b", b"yz").unwrap();
    disk.write_file("d/c", b"").unwrap();
    disk.remove_file("d/c").unwrap();
    assert_eq!(disk.remove_file("d/c"), Err(Errno::NOENT));
    assert_eq!(disk.remove_file("d"), Err(Errno::ISDIR));
    assert_eq!(disk.files(), [("d/b".to_owned(), 2), ("d/e/a".to_owned(), 5001)]);
    for image in images(&disk, 20) {
        assert_eq!(image.digest(), disk.digest());
        assert_eq!(image.read_file("d/e/a").unwrap()[4998..], [0, 0x80, 0]);
        assert_eq!(image.read_file("d/b").unwrap(), b"yz");
    }
}

#[test]
fn a_directory_vanishes_under_those_who_use_it() {
    let disk = SimDisk::new(1);
    disk.write_file("t/objects/a", b"data").unwrap();
    disk.write_file("t2/b", b"").unwrap();
    let directory = root(&disk).open_directory("t").unwrap();
    let file = directory.open_file("objects/a", OpenHow::WRITE).unwrap();
    disk.remove_directory("t").unwrap();
    assert_eq!(directory.open_file("objects/a", OpenHow::WRITE).err(), Some(Errno::NOENT));
    assert_eq!(directory.open_file("c", OpenHow::CREATE).err(), Some(Errno::NOENT));
    assert_eq!(directory.lock("lock").err(), Some(Errno::NOENT));
    assert_eq!(directory.stat("objects").err(), Some(Errno::NOENT));
    file.write_full(b"more", 0).unwrap();
    file.sync("test").unwrap();
    drop(file);
    assert_eq!(disk.used_bytes(), 0);
    assert!(images(&disk, 20).all(|i| i.files() == [("t2/b".to_owned(), 0)]));
}

#[test]
fn operations_take_their_time() {
    let disk = SimDisk::new(1);
    let (ms, s) = (Duration::from_millis, Duration::from_secs);
    disk.set_latency(ms(1)..ms(2), s(1)..s(2));
    with_disk(&disk, 1, || {
        let root = weir_host::fs::Directory::open("/".as_ref()).unwrap();
        let start = clock::now();
        let file = root.open_file("a", OpenHow::CREATE).unwrap();
        file.write_full(b"x", 0).unwrap();
        let taken = clock::elapsed(start);
        assert!((ms(2)..ms(4)).contains(&taken), "{taken:?}");
        let start = clock::now();
        file.sync("test").unwrap();
        assert!((s(1)..s(2)).contains(&clock::elapsed(start)));
        let start = clock::now();
        file.read_at(&mut [IoSliceMut::new(&mut [0])], 0, true).unwrap();
        assert_eq!(clock::elapsed(start), Duration::ZERO, "from memory");
    });
}
