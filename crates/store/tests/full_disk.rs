//! A full disk fails writes cleanly and damages nothing.

use crate::support::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_store::{ReadMode, Target};
use weir_types::ErrorKind;

/// These tests run one at a time. A child process that one of them starts inherits the open files
/// of the others until it executes its program, which keeps the space of removed files.
static ALONE: Mutex<()> = Mutex::new(());

/// A file system of 8 MiB, unmounted when dropped.
struct SmallDisk {
    _dir: tempfile::TempDir,
    at: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

fn run(program: &str, args: &[&Path]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|o| o.status.success())
}

impl SmallDisk {
    /// `None` if this user may not mount.
    fn new(ext4: bool) -> Option<Self> {
        Self::made(ext4, "-osize=8m")
    }

    /// A file system with this many inodes.
    fn of_files(files: u64) -> Option<Self> {
        Self::made(false, &format!("-osize=8m,nr_inodes={files}"))
    }

    fn made(ext4: bool, options: &str) -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("disk");
        std::fs::create_dir(&at).unwrap();
        let mounted = if ext4 {
            let image = dir.path().join("image");
            std::fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
            run("mkfs.ext4", &[Path::new("-q"), Path::new("-F"), &image])
                && run("mount", &[Path::new("-oloop"), &image, &at])
        } else {
            let options = ["-ttmpfs", options, "none"].map(Path::new);
            run("mount", &[options[0], options[1], options[2], &at])
        };
        mounted.then_some(Self { _dir: dir, at, _alone: alone })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &[&self.at]);
    }
}

/// Fills the free space.
fn fill_up(disk: &Path) {
    use std::io::Write;
    let filler = std::fs::OpenOptions::new().create(true).append(true).open(disk.join("filler"));
    let mut filler = filler.unwrap();
    for block in [64 << 10, 512, 1] {
        let block = vec![1; block];
        while filler.write_all(&block).and_then(|()| filler.sync_data()).is_ok() {}
    }
}

fn fill(ext4: bool) {
    let Some(disk) = SmallDisk::new(ext4) else {
        println!("skipped: needs root (and loop devices) to mount a small file system");
        return;
    };
    let path = disk.at.join("target");
    Target::create(&path, IDENTITY).unwrap();
    let target = Target::open(&path).unwrap();
    // An old object with a hole, to be overwritten when no space is free.
    let old = target.object_or_create(object_id(1)).unwrap();
    write(&old, 0, &pattern(1, 100_000));
    write(&old, 2_000_000, &pattern(2, 1000));
    old.sync().unwrap();

    let object = target.object_or_create(object_id(2)).unwrap();
    let mut len = 0;
    let error = loop {
        let data = pattern(len, 100_000);
        match write_pieces(&object, &[(len, 100_000)], &data, G0) {
            Ok(new_len) => len = new_len,
            Err(e) => break e,
        }
        assert!(len < 9 << 20, "the disk never fills");
    };
    assert_eq!(error.kind, ErrorKind::NoSpace);
    assert!(error.message.contains("target 3 (") && error.message.contains("object 2.0.0.0"));
    assert_eq!(object.len(), len, "a failed append must not grow the object");

    // Fill the rest, down to single blocks.
    while write_pieces(&object, &[(len, 4096)], &pattern(len, 4096), G0).is_ok() {
        len += 4096;
    }
    // Write into the hole, across its border, and to new objects: some writes fail, and everything
    // verifies.
    let before = read(&old, 0, 3_000_000);
    for (offset, n) in [(95_000, 300_000), (1_000_000, 200_000), (1_999_000, 2000), (50_000, 9000)]
    {
        let data = pattern(offset, n);
        let result = write_pieces(&old, &[(offset, n as u64)], &data, G0);
        if let Err(e) = &result {
            assert_eq!(e.kind, ErrorKind::NoSpace, "{e}");
        }
        let after = read(&old, offset, n as u64);
        if result.is_ok() {
            assert!(after == data);
        }
        assert_eq!(after.len(), n);
    }
    assert!(read(&old, 0, 50_000) == before[..50_000]);
    for file in 3..2000 {
        let made = target.object_or_create(object_id(file));
        let Ok(new) = made else { break };
        if let Err(e) = write_pieces(&new, &[(0, 5)], b"hello", G0) {
            assert_eq!(e.kind, ErrorKind::NoSpace);
            assert_eq!(new.len(), 0);
            break;
        }
    }

    // Everything verifies, before and after a restart.
    drop((old, object));
    drop(target);
    let target = Target::open(&path).unwrap();
    for item in target.objects() {
        let (id, len) = item.unwrap();
        let object = target.object(id).unwrap().unwrap();
        let received = read_pieces(&object, &[(0, len)], ReadMode::Locked).unwrap();
        assert!(matches!(received, Received::Good(_)), "object {id}");
    }
    let object = target.object(object_id(2)).unwrap().unwrap();
    assert_eq!(object.len(), len);
    drop(object);

    // Other programs take even the reserved space. Removals and a restart still work.
    fill_up(&disk.at);
    let object = target.object(object_id(2)).unwrap().unwrap();
    let error = write_pieces(&object, &[(len, 4096)], &pattern(1, 4096), G0).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSpace);
    // Allocated bytes can be written again.
    write(&object, 0, &pattern(8, 9000));
    assert_eq!(object.truncate(50_000, 1.into()).unwrap(), 50_000);
    fill_up(&disk.at);
    target.remove(object_id(1)).unwrap();
    target.sync_removals().unwrap();
    fill_up(&disk.at);
    drop((object, target));
    let target = Target::open(&path).unwrap();
    assert!(target.object(object_id(1)).unwrap().is_none());
    let object = target.object(object_id(2)).unwrap().unwrap();
    assert_eq!(read(&object, 0, 9000), pattern(8, 9000));
    drop(object);
    std::fs::remove_file(disk.at.join("filler")).unwrap();

    // With free space again the target works as usual.
    target.remove(object_id(2)).unwrap();
    let again = target.object_or_create(object_id(2)).unwrap();
    write(&again, 0, &pattern(9, 500_000));
    assert!(read(&again, 0, 500_000) == pattern(9, 500_000));
}

#[test]
fn a_full_tmpfs_fails_writes_and_spoils_nothing() {
    fill(false);
}

#[test]
fn a_full_ext4_fails_writes_and_spoils_nothing() {
    fill(true);
}

/// The metadata server may be on the same disk.
#[test]
fn the_last_files_that_a_disk_can_take_are_not_for_objects() {
    let Some(disk) = SmallDisk::of_files(600) else {
        println!("skipped: needs root to mount a small file system");
        return;
    };
    let path = disk.at.join("target");
    Target::create(&path, IDENTITY).unwrap();
    let target = Target::open(&path).unwrap();
    let made = (1..1000).map_while(|file| target.object_or_create(object_id(file)).ok()).count();
    let refused = target.object_or_create(object_id(1001)).err().unwrap();
    assert_eq!(refused.kind, ErrorKind::NoSpace, "{refused}");
    assert!(made > 100 && refused.message.contains("files"), "{made}: {refused}");
    assert_eq!(target.usage().unwrap().free_files, 0);
    (0..32).for_each(|n| drop(std::fs::File::create(disk.at.join(n.to_string())).unwrap()));
    // Existing objects are usable, even when they have to be opened again.
    drop(target);
    let target = Target::open(&path).unwrap();
    write(&target.object_or_create(object_id(1)).unwrap(), 0, b"hello");
    (0..32).for_each(|n| std::fs::remove_file(disk.at.join(n.to_string())).unwrap());
    (2..50).for_each(|file| target.remove(object_id(file)).unwrap());
    target.object_or_create(object_id(1001)).unwrap();
}

#[test]
fn a_read_only_disk_is_said_to_be_one() {
    let Some(disk) = SmallDisk::new(false) else {
        println!("skipped: needs root to mount a small file system");
        return;
    };
    let path = disk.at.join("target");
    Target::create(&path, IDENTITY).unwrap();
    let target = Target::open(&path).unwrap();
    write(&target.object_or_create(object_id(2)).unwrap(), 0, b"hello");
    drop(target);
    assert!(Command::new("mount").arg("-oremount,ro").arg(&disk.at).status().unwrap().success());
    // Existing objects can still be read.
    let target = Target::open(&path).unwrap();
    let object = target.object(object_id(2)).unwrap().unwrap();
    assert_eq!(read(&object, 0, 10), b"hello");
    assert!(target.object(object_id(1)).unwrap().is_none());
    let refusals = [
        target.object_or_create(object_id(1)).err().unwrap(),
        target.remove(object_id(2)).unwrap_err(),
        write_pieces(&object, &[(0, 3)], b"new", G0).unwrap_err(),
        object.truncate(0, 1.into()).unwrap_err(),
    ];
    for error in refusals {
        assert_eq!(error.kind, ErrorKind::ReadOnly, "{error}");
        assert!(error.message.contains("target 3 ("), "{error}");
    }
}
