//! A disk with a head gives a sequential reader its full rate, and two alternating readers much
//! less.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use weir_testbed::{Device, Disk, Drive, forget_whole, missing_for_cold, missing_for_models};

const PIECE: u64 = 64 << 10;
const BYTES: u64 = 3 << 20;
const PATIENCE: Duration = Duration::from_secs(10);
/// A small and fast relative of River's disks.
const DRIVE: Drive = Drive {
    bytes_per_s: 8_000_000,
    positioning_us: 12_000,
    overhead_us: 200,
    streams: 1,
    prefetch_bytes: 128 << 10,
    zones: None,
};

fn parts(file: &File, pieces: impl Iterator<Item = u64>) -> Duration {
    let (begin, mut memory) = (Instant::now(), vec![0; PIECE as usize]);
    for piece in pieces {
        file.read_exact_at(&mut memory, piece * PIECE).unwrap();
    }
    begin.elapsed()
}

#[test]
fn two_streams_in_turn_cost_what_a_head_needs_to_move() {
    if let Some(what) = missing_for_models().or_else(missing_for_cold) {
        println!("skipped: needs {what}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, at) = (dir.path().join("image"), dir.path().join("disk"));
    let disk = Disk::make_modelled(&image, &at, 32 << 20, DRIVE).unwrap();
    let path = disk.path().join("file");
    fs::write(&path, vec![7; 2 * BYTES as usize]).unwrap();
    assert_eq!(forget_whole(disk.path(), PATIENCE).unwrap(), 0);

    // The file is opened each time, because the kernel reads ahead for a sequential reader.
    let count = BYTES / PIECE;
    let before = disk.read_bytes().unwrap();
    let straight = parts(&File::open(&path).unwrap(), 0..count);
    let given = disk.read_bytes().unwrap() - before;
    assert!(given >= BYTES, "{given}");
    let least = Duration::from_secs_f64(BYTES as f64 / DRIVE.bytes_per_s as f64);
    assert!(straight >= least, "{straight:?} is faster than the disk ({least:?})");

    assert_eq!(forget_whole(disk.path(), PATIENCE).unwrap(), 0);
    disk.device().read_ahead(0).unwrap();
    let in_turn = (0..count).map(|n| n % 2 * count + n / 2);
    let turns = parts(&File::open(&path).unwrap(), in_turn);
    // Nearly each turn is a seek of 12 ms, besides 8 ms for the bytes. Some positions may be so
    // close that the head only rotates on.
    assert!(turns >= 2 * least, "{turns:?}, the bytes alone take {least:?}");
    drop(disk);
    gone(&image, &at);
}

#[test]
fn of_a_model_that_was_in_use_nothing_is_left() {
    if let Some(what) = missing_for_models() {
        println!("skipped: needs {what}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, at) = (dir.path().join("image"), dir.path().join("disk"));
    let disk = Disk::make_modelled(&image, &at, 16 << 20, DRIVE).unwrap();
    // Written, and not on the disk yet.
    fs::write(disk.path().join("file"), vec![7; 1 << 20]).unwrap();
    drop(disk);
    gone(&image, &at);
    // Too small for a file system.
    Disk::make_modelled(&image, &at, 8 << 10, DRIVE).unwrap_err();
    gone(&image, &at);
}

/// Checks that no file, mount or device is left.
fn gone(image: &Path, at: &Path) {
    let model = Disk::model_at(at);
    assert!(!image.exists() && !at.exists() && !model.exists());
    let mounts = Command::new("cat").arg("/proc/self/mounts").output().unwrap().stdout;
    assert!(!String::from_utf8_lossy(&mounts).contains(at.to_str().unwrap()));
    assert_eq!(Device::of(&weir_testbed::Model::file(&model)).unwrap(), []);
}
