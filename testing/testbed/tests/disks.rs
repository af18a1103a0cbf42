//! A disk has its set speed, and a cold file is read from it.

use std::fs;
use std::process::Command;
use std::time::Instant;
use weir_testbed::{
    Array, Disk, Processor, Throttle, forget, missing, missing_for_arrays, missing_for_processors,
};

const BYTES: usize = 8 << 20;

#[test]
fn what_is_cold_comes_from_the_disk_at_the_speed_that_is_set() {
    if let Some(what) = missing() {
        println!("skipped: needs {what}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, at) = (dir.path().join("image"), dir.path().join("disk"));
    let disk = Disk::make(&image, &at, 32 << 20).unwrap();
    let file = disk.path().join("file");
    fs::write(&file, vec![7; BYTES]).unwrap();
    let group = Throttle::new(&format!("weir-testbed-{}", std::process::id())).unwrap();
    group.limit(&disk, 4 << 20).unwrap();

    let read = || {
        let (before, begin) = (disk.read_bytes().unwrap(), Instant::now());
        let mut cat = Command::new("sh");
        // It begins to read when it is in the group.
        cat.args(["-c", "read go; exec cat \"$0\" > /dev/null"]).arg(&file);
        let mut cat = cat.stdin(std::process::Stdio::piped()).spawn().unwrap();
        group.add(cat.id() as i32).unwrap();
        drop(cat.stdin.take());
        assert!(cat.wait().unwrap().success());
        (disk.read_bytes().unwrap() - before, begin.elapsed().as_secs_f64())
    };
    let (bytes, _) = read();
    assert!(bytes < BYTES as u64 / 8, "it is in memory: {bytes}");
    forget(disk.path()).unwrap();
    let (bytes, seconds) = read();
    assert!(bytes >= BYTES as u64, "{bytes}");
    // At 4 MiB per second, with allowance for a burst at the beginning.
    assert!(seconds > 1.0, "{seconds}");
    drop(group);
    drop(disk);
    assert!(!image.exists() && !at.exists());
}

#[test]
fn of_a_disk_that_cannot_be_made_nothing_is_left() {
    if let Some(what) = missing() {
        println!("skipped: needs {what}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, at) = (dir.path().join("image"), dir.path().join("disk"));
    // Too small for a file system.
    Disk::make(&image, &at, 8 << 10).unwrap_err();
    assert!(!image.exists() && !at.exists());
    let devices = std::process::Command::new("losetup").arg("--all").output().unwrap().stdout;
    assert!(!String::from_utf8_lossy(&devices).contains(image.to_str().unwrap()));

    // An existing directory stays.
    std::fs::create_dir(&at).unwrap();
    Disk::make(&image, &at, 16 << 20).unwrap_err();
    assert!(!image.exists() && at.exists());
}

#[test]
fn disks_of_an_array_each_give_their_part_of_a_file() {
    if let Some(what) = missing().or_else(missing_for_arrays) {
        println!("skipped: needs {what}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let array = Array::make(&dir.path().join("array"), 3, 1, None).unwrap();
    array.read_ahead(384).unwrap();
    let file = array.path().join("file");
    fs::write(&file, vec![7; BYTES]).unwrap();
    forget(array.path()).unwrap();
    let of_disks = || -> Vec<u64> {
        let counts = array.devices().iter().map(|device| device.counts().unwrap().read_bytes);
        counts.collect()
    };
    let (before, whole) = (of_disks(), array.read_bytes().unwrap());
    assert!(fs::read(&file).unwrap() == vec![7; BYTES]);
    let given: Vec<u64> =
        of_disks().iter().zip(before).map(|(after, before)| after - before).collect();
    let part = BYTES as u64 / 3;
    assert!(given.iter().all(|bytes| (part / 2..part * 2).contains(bytes)), "{given:?}");
    assert_eq!(array.read_bytes().unwrap() - whole, given.iter().sum::<u64>());
    drop(array);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "all of it has gone");
}

#[test]
fn a_group_has_no_more_of_a_core_than_its_share() {
    if let Some(what) = missing().or_else(missing_for_processors) {
        println!("skipped: needs {what}");
        return;
    }
    let name = format!("weir-testbed-cpu{}", std::process::id());
    let group = Processor::new(&name).unwrap();
    group.limit(Some(1001)).unwrap_err();
    group.limit(Some(50)).unwrap();
    // It begins to use CPU time when it is in the group.
    let mut count = Command::new("sh");
    count.args(["-c", "read go; n=0; while [ $n -lt 100000 ]; do n=$((n + 1)); done"]);
    let mut count = count.stdin(std::process::Stdio::piped()).spawn().unwrap();
    group.add(count.id() as i32).unwrap();
    drop(count.stdin.take());
    assert!(count.wait().unwrap().success());
    let waited = group.waited_seconds().unwrap();
    assert!(waited > 0.0, "nobody had to wait");
    group.limit(None).unwrap();
    assert!(Processor::new(&name).is_err(), "the name is taken");
    drop(group);
    drop(Processor::new(&name).unwrap());
}
