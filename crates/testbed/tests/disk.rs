//! Disks leave nothing behind.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use weir_testbed::{Disk, missing};

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
