//! A disk that stops at any point, and syncs left out.

use super::{durable_file, images, root};
use crate::disk::{SimDisk, with_disk};
use rustix::io::{Errno, Result};
use std::collections::BTreeSet;
use weir_host::fs::{Directory, OpenHow};

/// Replaces a file as one should.
fn replace(root: &Directory, bytes: &[u8]) -> Result<()> {
    let new = root.open_file("new", OpenHow::REPLACE)?;
    new.write_full(bytes, 0)?;
    new.sync("replace-data")?;
    root.rename("new", "a")?;
    root.sync("replace-name")
}

#[test]
fn a_careful_program_survives_a_crash_at_every_point() {
    for point in 0.. {
        let disk = SimDisk::new(point);
        drop(durable_file(&disk, "a", b"old"));
        disk.crash_after(point);
        let result = replace(&root(&disk), b"brand new");
        let mut seen = BTreeSet::new();
        for image in images(&disk, 100) {
            seen.insert(image.read_file("a").unwrap());
        }
        let (old, new) = (b"old".to_vec(), b"brand new".to_vec());
        assert!(seen.is_subset(&BTreeSet::from([old, new.clone()])), "point {point}: {seen:?}");
        if result.is_ok() {
            assert_eq!(seen, BTreeSet::from([new]));
            assert_eq!(point, 5, "it has five operations that count");
            return;
        }
        assert_eq!(result, Err(Errno::IO));
    }
}

#[test]
fn each_sync_that_is_left_out_is_noticed() {
    let disk = SimDisk::new(1);
    drop(durable_file(&disk, "a", b"old"));
    replace(&root(&disk), b"brand new").unwrap();
    let sites = disk.sites();
    assert_eq!(sites.get("replace-data"), Some(&1));
    for site in ["replace-data", "replace-name"] {
        let disk = SimDisk::new(1);
        drop(durable_file(&disk, "a", b"old"));
        disk.skip_site(Some(site));
        replace(&root(&disk), b"brand new").unwrap();
        let bad = images(&disk, 200).filter(|i| i.read_file("a").unwrap() != b"brand new").count();
        assert!(bad > 20, "without {site} it was lost {bad} times of 200");
    }
}

#[test]
fn a_stopped_disk_does_nothing_until_it_thaws() {
    let disk = SimDisk::new(3);
    let file = durable_file(&disk, "a", b"data");
    let count = disk.op_count();
    disk.crash_after(1);
    file.write_full(b"first", 0).unwrap();
    assert_eq!(disk.op_count(), count + 1);
    let directory = root(&disk);
    assert_eq!(directory.unlink("none"), Err(Errno::IO), "this is where it stops");
    assert!(disk.is_frozen());
    let digest = disk.digest();
    assert_eq!(file.write_full(b"more", 0), Err(Errno::IO));
    assert_eq!(file.read_full(&mut [0; 4], 0), Err(Errno::IO));
    assert_eq!(file.sync("test"), Err(Errno::IO));
    assert_eq!(directory.entries().err(), Some(Errno::IO));
    assert_eq!(directory.open_file("b", OpenHow::CREATE).err(), Some(Errno::IO));
    assert_eq!(disk.digest(), digest);
    disk.thaw();
    assert_eq!(disk.read_file("a").unwrap(), b"first", "only the processes died");
    file.write_full(b"again", 0).unwrap();
}

#[test]
fn a_write_is_torn_where_the_disk_stops() {
    let mut lengths = BTreeSet::new();
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let file = durable_file(&disk, "a", b"");
        disk.crash_after(0);
        assert_eq!(file.write_full(&[1; 4000], 0), Err(Errno::IO));
        lengths.insert(disk.read_file("a").unwrap().len());
    }
    // Between two sectors, anywhere.
    let sectors: Vec<usize> = (0..=7).map(|n| n * 512).chain([4000]).collect();
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), sectors);
}

#[test]
fn what_was_open_before_a_power_cut_is_dead() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", b"data");
    let directory = root(&disk);
    let lock = directory.lock("lock").unwrap();
    disk.crash_after(0);
    disk.power_cut(&mut fastrand::Rng::with_seed(1));
    assert_eq!(file.write_full(b"late", 0), Err(Errno::IO));
    assert_eq!(file.size(), Err(Errno::IO));
    assert_eq!(file.sync("test"), Err(Errno::IO));
    assert_eq!(directory.entries().err(), Some(Errno::IO));
    let held = root(&disk).lock("lock").unwrap();
    drop(lock);
    assert_eq!(root(&disk).lock("lock").err(), Some(Errno::WOULDBLOCK), "it is another lock now");
    drop((held, file));
    assert_eq!(disk.read_file("a").unwrap(), b"data");
}

#[test]
fn handles_of_before_a_power_cut_hold_nothing() {
    let disk = SimDisk::new(1);
    let old = durable_file(&disk, "a", b"data");
    std::mem::forget(durable_file(&disk, "b", b"data"));
    disk.power_cut(&mut fastrand::Rng::with_seed(1));
    let new = root(&disk).open_file("a", OpenHow::WRITE).unwrap();
    root(&disk).unlink("a").unwrap();
    root(&disk).unlink("b").unwrap();
    root(&disk).sync("test").unwrap();
    assert_eq!(disk.used_bytes(), 4096);
    drop(old);
    assert_eq!(new.size(), Ok(4));
    assert_eq!(disk.copy().used_bytes(), 0, "nobody has it open on a copy");
    drop(new);
    assert_eq!(disk.used_bytes(), 0);
}

#[test]
fn copies_are_independent() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", &[1; 9000]);
    file.write_full(&[2; 100], 0).unwrap();
    let copy = disk.copy();
    file.write_full(&[3; 9000], 0).unwrap();
    root(&disk).unlink("a").unwrap();
    assert_eq!(copy.read_file("a").unwrap()[..101], [&[2; 100][..], &[1]].concat());
    drop(file);
    let used = copy.used_bytes();
    let file = root(&copy).open_file("a", OpenHow::WRITE).unwrap();
    file.write_full(&[4; 4096], 12_288).unwrap();
    assert_eq!(copy.used_bytes(), used + 4096);
    disk.wipe();
    assert!(disk.files().is_empty() && disk.used_bytes() == 0);
    copy.power_cut(&mut fastrand::Rng::with_seed(1));
    assert!(copy.read_file("a").is_ok());
}

#[test]
fn a_process_that_ends_gives_its_locks_back() {
    let disk = SimDisk::new(1);
    let lock = with_disk(&disk, 1, || {
        let root = Directory::open("/".as_ref()).unwrap();
        let lock = root.lock("l").unwrap();
        assert_eq!(root.lock("l").err(), Some(Errno::WOULDBLOCK));
        let other = root.lock("m").unwrap();
        drop(other);
        root.lock("m").unwrap();
        lock
    });
    let held = root(&disk).lock("l").unwrap();
    drop(lock);
    assert_eq!(root(&disk).lock("l").err(), Some(Errno::WOULDBLOCK));
    drop(held);
    root(&disk).lock("l").unwrap();
}
