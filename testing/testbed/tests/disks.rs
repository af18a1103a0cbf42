//! A disk is as fast as it is set to be, and what is said to be cold comes from it.

use std::fs;
use std::process::Command;
use std::time::Instant;
use weir_testbed::{Disk, Throttle, forget, missing};

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
        // It reads when it is in the group.
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
    // At 4 MiB a second; a burst at the beginning is allowed for.
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

    // What was there before stays.
    std::fs::create_dir(&at).unwrap();
    Disk::make(&image, &at, 16 << 20).unwrap_err();
    assert!(!image.exists() && at.exists());
}
