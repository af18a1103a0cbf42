//! A disk of the metadata that is full, turns read-only or fails: clear errors at once, what makes
//! room goes on, and `weir up` starts.

use crate::disk::{Disk, succeeds};
use crate::harness::{Cluster, Place, eventually};
use std::fs;
use std::io::{Error, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Writes to a file until that fails, and says how.
fn fill(path: &Path, block: usize) -> Error {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    let block = vec![7; block];
    // `fsync` tells of what `write` has taken and the disk has not.
    let mut written = (0..100_000).map(|n| {
        let synced = if n % 64 == 63 { file.sync_data() } else { Ok(()) };
        synced.and_then(|()| file.write_all(&block))
    });
    let failed = written.find_map(Result::err);
    drop(written);
    // What else was taken and not written is told here, and not to whom opens the file next.
    let later = (0..100).map_while(|_| file.sync_data().err()).last();
    failed.or(later).expect("the disk is small")
}

/// Others take all that is left of the disk.
fn fill_by_others(disk: &Disk) {
    for block in [1 << 20, 4096] {
        let error = fill(&disk.at.join("filler"), block);
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
    }
}

fn free_bytes(at: &Path) -> u64 {
    let space = rustix::fs::statvfs(at).unwrap();
    space.f_bavail * space.f_frsize
}

/// The number of an error, which comes within a minute.
fn error_of(what: &str, call: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> i32 {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(call()));
    let done = told.recv_timeout(Duration::from_secs(60));
    let error = done.unwrap_or_else(|_| panic!("{what} hangs")).expect_err(what);
    error.raw_os_error().unwrap()
}

/// `ENOSPC`: a call that has waited for a server in vain ends with another error.
#[track_caller]
fn has_no_room(directory: &Path) {
    let error = fs::create_dir(directory).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
}

/// A whole cluster on one disk, metadata and targets: as `weir up` makes it.
fn on_a_full_disk(place: &Place, disk: &Disk) {
    let cluster = place.up("full", &["--targets", "2"]);
    cluster.weir(&["down"]).ok();
    let m = place.path("m");
    cluster.weir(&["up", "--mount", m.to_str().unwrap()]).ok();
    let meta = cluster.pid("meta");
    for n in 0..20 {
        fs::create_dir_all(m.join(format!("tree/{n}"))).unwrap();
        fs::write(m.join(format!("tree/{n}/file")), [n; 10_000]).unwrap();
    }
    for (name, block) in [("f", 1 << 20), ("g", 4096)] {
        let error = fill(&m.join(name), block);
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
    }
    assert!(free_bytes(&disk.at) > 2 << 20, "data servers leave some to the metadata");
    eventually("df says so", || free_bytes(&m) < 2 << 20);
    // What has its place on the disk can be written again.
    let mut file = fs::OpenOptions::new().write(true).open(m.join("f")).unwrap();
    file.write_all(&[9; 100_000]).and_then(|()| file.sync_all()).unwrap();

    let made = (0..200_000).find(|n| fs::create_dir(m.join(format!("d{n}"))).is_err());
    let made = made.expect("the disk is small");
    has_no_room(&m.join("another"));
    assert!(made > 0, "metadata has room when data has none");
    fill_by_others(disk);
    has_no_room(&m.join("another"));

    // Commands that look after the cluster and its disks work.
    cluster.weir(&["target", "drain", "2"]).ok();
    cluster.weir(&["target", "undrain", "2"]).ok();
    cluster.weir(&["fsck", "--repair"]).ok();
    fill_by_others(disk);
    has_no_room(&m.join("another"));

    // What makes room goes on.
    cluster.weir(&["rm", "-r", "weir:/tree"]).ok();
    for n in 0..made / 2 {
        fs::remove_dir(m.join(format!("d{n}"))).unwrap();
    }
    fs::rename(m.join("g"), m.join("h")).unwrap();
    file.set_len(1 << 20).unwrap();
    fs::remove_file(m.join("h")).unwrap();
    drop(file);
    assert_eq!(cluster.pid("meta"), meta, "it is the same process");
    eventually("what the removed file had is free", || free_bytes(&disk.at) > 4 << 20);

    // So does a start, after a kill and after a stop.
    fill_by_others(disk);
    cluster.kill("meta");
    cluster.kill("data-1");
    fill_by_others(disk);
    cluster.weir(&["up"]).ok();
    has_no_room(&m.join("another"));
    for n in made / 2..made {
        fs::remove_dir(m.join(format!("d{n}"))).unwrap();
    }
    fill_by_others(disk);
    cluster.down(&[]);
    fill_by_others(disk);
    cluster.weir(&["up", "--mount", m.to_str().unwrap()]).ok();
    has_no_room(&m.join("another"));
    let file = fs::OpenOptions::new().write(true).open(m.join("f")).unwrap();
    file.set_len(5).unwrap();
    drop(file);
    assert_eq!(fs::read(m.join("f")).unwrap(), [9; 5]);
    fs::remove_file(m.join("f")).unwrap();

    fs::remove_file(disk.at.join("filler")).unwrap();
    eventually("there is room again", || fs::create_dir(m.join("new")).is_ok());
    fs::write(m.join("new/file"), [3; 100_000]).unwrap();
    assert_eq!(fs::read(m.join("new/file")).unwrap(), [3; 100_000]);
    assert_eq!(fs::read_dir(&m).unwrap().count(), 1);
    cluster.weir(&["fsck"]).ok();
}

#[test]
fn on_a_full_ext4_metadata_is_refused_at_once_and_removals_and_starts_go_on() {
    let place = Place::new();
    let Some(disk) = Disk::ext4_at(&place, "state", 300) else { return };
    on_a_full_disk(&place, &disk);
}

#[test]
fn on_a_full_tmpfs_metadata_is_refused_at_once_and_removals_and_starts_go_on() {
    let place = Place::new();
    let Some(disk) = Disk::memory_at(&place, "state", "128m") else { return };
    on_a_full_disk(&place, &disk);
}

/// A mounted cluster whose metadata is on a disk of its own.
fn apart<'a>(place: &'a Place, disk: &Disk) -> (Cluster<'a>, PathBuf) {
    let cluster = place.up("apart", &["--targets", "2"]);
    cluster.weir(&["down"]).ok();
    let (dir, there) = (cluster.dir().join("meta"), disk.at.join("meta"));
    // Of another size on another disk.
    fs::remove_file(dir.join("reserve")).unwrap();
    assert!(succeeds("cp", &[&"-a", &dir, &there]) && succeeds("sync", &[&"-f", &there]));
    fs::remove_dir_all(&dir).unwrap();
    std::os::unix::fs::symlink(there, dir).unwrap();
    let m = place.path("m");
    cluster.weir(&["up", "--mount", m.to_str().unwrap()]).ok();
    fs::create_dir(m.join("before")).unwrap();
    fs::write(m.join("before/file"), b"kept").unwrap();
    fs::File::open(m.join("before/file")).unwrap().sync_all().unwrap();
    fs::File::open(m.join("before")).unwrap().sync_all().unwrap();
    (cluster, m)
}

/// The disk takes nothing any more: a call fails, a start says why, and all is well once the disk
/// is.
fn is_told_and_comes_back(cluster: &Cluster<'_>, disk: &Disk, m: &Path, word: &str) {
    let new = m.join("new");
    let number = error_of("mkdir", move || fs::create_dir(new));
    // An answer, not silence. (EIO also if the server has ended before the call came.)
    assert!([libc::EIO, libc::EROFS].contains(&number), "error {number}");
    // It stops when its log fails; what finds no room for the log on such a disk is refused only.
    if cluster.runs("meta") {
        cluster.kill("meta");
    }
    cluster.weir(&["up"]).fails(&[word]);
    let said = cluster.weir(&["status"]);
    assert_eq!(said.code, Some(1), "{}", said.out);
    // It waits for the server, and would for a while.
    cluster.kill(&cluster.mount_daemon());
    cluster.weir(&["down"]).ok();
    disk.repair();
    cluster.weir(&["up", "--mount", m.to_str().unwrap()]).ok();
    assert_eq!(fs::read(m.join("before/file")).unwrap(), b"kept");
    fs::create_dir(m.join("new")).unwrap();
    fs::remove_dir(m.join("new")).unwrap();
}

#[test]
fn a_metadata_disk_that_turns_read_only_is_told_and_comes_back_repaired() {
    let place = Place::new();
    let Some(disk) = Disk::ext4(&place) else { return };
    let (cluster, m) = apart(&place, &disk);
    if !disk.turn_read_only() {
        println!("skipped: this kernel's ext4 has no trigger_fs_error");
        return;
    }
    is_told_and_comes_back(&cluster, &disk, &m, "Read-only file system");
}

#[test]
fn a_metadata_disk_that_fails_is_told_and_comes_back_repaired() {
    let place = Place::new();
    let Some(disk) = Disk::ext4(&place) else { return };
    let (cluster, m) = apart(&place, &disk);
    if !disk.break_down() {
        println!("skipped: this kernel's ext4 cannot be shut down");
        return;
    }
    is_told_and_comes_back(&cluster, &disk, &m, "meta");
}
