//! One disk hangs: it neither answers nor fails. What has another copy is done without it, the
//! other disk of its server is not held up, and when it answers again it comes back with all.
//! A real file system that is frozen, real servers, a real mount.

use crate::harness::{Cluster, Place, eventually_within, noise};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_testbed::{Disk, missing};

const FILES: u64 = 8;
const BYTES: usize = 256 << 10;
/// What has not come after this time does not come. (A disk may hang for 15 s before others go on
/// without it.)
const PATIENCE: Duration = Duration::from_secs(60);

/// Moves a target to a disk of its own.
fn move_target(cluster: &Cluster<'_>, target: u32, disk: &Disk) {
    cluster.weir(&["down"]).ok();
    let (dir, there) =
        (cluster.dir().join(format!("targets/{target}")), disk.path().join("target"));
    assert!(Command::new("cp").arg("-a").args([&dir, &there]).status().unwrap().success());
    std::fs::remove_dir_all(&dir).unwrap();
    std::os::unix::fs::symlink(there, dir).unwrap();
    cluster.weir(&["up"]).ok();
}

/// Has the writers stop when it is dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes and syncs in turn until it is to stop, and counts how often it has; how long the longest
/// took, and what each file has.
fn write_on(files: &[PathBuf], stop: &AtomicBool, done: &AtomicU64) -> (Duration, Vec<u64>) {
    let open = |path| OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let (mut longest, mut has, mut round) = (Duration::ZERO, vec![0; files.len()], 0);
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        for (at, path) in files.iter().enumerate() {
            let begin = Instant::now();
            let file: File = open(path).unwrap();
            file.write_all_at(&noise(BYTES, round), 0).unwrap();
            file.sync_all().unwrap();
            drop(file);
            has[at] = round;
            longest = longest.max(begin.elapsed());
            done.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    (longest, has)
}

/// Waits until so many more writes are done.
fn goes_on(what: &str, done: &AtomicU64, more: u64) {
    let before = done.load(Ordering::Relaxed);
    eventually_within(PATIENCE, what, || done.load(Ordering::Relaxed) >= before + more);
}

fn state(cluster: &Cluster<'_>, target: u64) -> String {
    let all = cluster.weir(&["targets", "--json"]).json();
    let found = all.as_array().unwrap().iter().find(|of| of["target"] == target).unwrap();
    found["state"].as_str().unwrap().to_owned()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    (0..FILES).map(|n| dir.join(format!("f{n}"))).collect()
}

#[test]
fn who_writes_goes_on_without_a_disk_that_hangs_and_it_comes_back() {
    if let Some(what) = missing() {
        println!("skipped: needs {what}");
        return;
    }
    let place = Place::new();
    let disk = Disk::make(&place.path("image"), &place.path("disk"), 160 << 20).unwrap();
    let cluster = place.up("hung", &["--targets", "4", "--targets-per-server", "2"]);
    move_target(&cluster, 1, &disk);
    let mnt = cluster.mount("mnt", "rw");
    let (two, one) = (mnt.join("two"), mnt.join("one"));
    [&two, &one].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    cluster.weir(&["setlayout", "weir:/two", "--copies", "2"]).ok();
    // On the other disk of the same server.
    cluster.weir(&["setlayout", "weir:/one", "--count", "1", "--base", "1"]).ok();
    let (twice, once, stop) = (files(&two), files(&one)[..1].to_vec(), AtomicBool::new(false));
    let (written, beside_it) = (AtomicU64::new(0), AtomicU64::new(0));
    let before = cluster.pid("data-1");
    let (went, neighbour) = std::thread::scope(|scope| {
        // Also if this fails.
        let _stops = Stops(&stop);
        let all = scope.spawn(|| write_on(&twice, &stop, &written));
        let beside = scope.spawn(|| write_on(&once, &stop, &beside_it));
        goes_on("all write", &written, FILES);
        let begin = Instant::now();
        let frozen = disk.freeze().unwrap();
        goes_on("its neighbour is written to", &beside_it, 3);
        eventually_within(PATIENCE, "it is done without", || state(&cluster, 1) == "offline");
        println!("done without after {:.1} s", begin.elapsed().as_secs_f64());
        assert_eq!(state(&cluster, 2), "online", "its neighbour");
        let said = cluster.weir(&["status"]);
        let words = ["TROUBLE: target 1: its disk", "hangs since", "its server has given it up"];
        let told = words.iter().all(|word| said.out.contains(word));
        assert!(said.code == Some(1) && told, "{said:?}");
        // Each file once more, and the writes that were in progress.
        goes_on("who writes goes on without it", &written, 2 * FILES);
        assert_eq!(state(&cluster, 1), "offline", "it hangs still");
        drop(frozen);
        let begin = Instant::now();
        let back = || state(&cluster, 1) == "online";
        eventually_within(PATIENCE, "it is back", back);
        println!("back after {:.1} s", begin.elapsed().as_secs_f64());
        stop.store(true, Ordering::Relaxed);
        (all.join().unwrap(), beside.join().unwrap())
    });
    println!("the longest write {:?}, on the other disk {:?}", went.0, neighbour.0);
    assert_eq!(cluster.pid("data-1"), before, "it has begun anew in the same process");
    let fsck = cluster.weir(&["fsck"]);
    assert_eq!(fsck.code, Some(0), "{}{}", fsck.out, fsck.err);
    // All of it is on the disk that hung: the other server goes.
    cluster.weir(&["umount", mnt.to_str().unwrap()]).ok();
    cluster.kill("data-2");
    let mnt = cluster.mount("again", "ro");
    for (path, round) in files(&mnt.join("two")).iter().zip(&went.1) {
        assert!(std::fs::read(path).unwrap() == noise(BYTES, *round), "{}", path.display());
    }
    assert!(std::fs::read(mnt.join("one/f0")).unwrap() == noise(BYTES, neighbour.1[0]));
}

/// Its disk takes no changes for a while, so that recovery does not get to its end.
#[test]
fn a_server_that_recovers_says_so_and_nobody_ends_it() {
    if let Some(what) = missing() {
        println!("skipped: needs {what}");
        return;
    }
    let place = Place::new();
    let disk = Disk::make(&place.path("image"), &place.path("disk"), 160 << 20).unwrap();
    let cluster = place.up("recovers", &["--targets", "3"]);
    move_target(&cluster, 1, &disk);
    cluster.weir(&["setlayout", "weir:/", "--copies", "2"]).ok();
    let mnt = cluster.mount("mnt", "rw");
    files(&mnt).iter().for_each(|path| std::fs::write(path, noise(BYTES, 1)).unwrap());
    cluster.kill("data-1");
    let frozen = disk.freeze().unwrap();
    let mut up = place.command(&["up", "--name", "recovers"]).spawn().unwrap();
    let recovers = || cluster.weir(&["targets"]).ok().contains(" recovering, ");
    eventually_within(Duration::from_secs(60), "it says that it recovers", recovers);
    let pid = cluster.pid("data-1");
    let said = cluster.weir(&["status"]);
    let told = said.out.contains("makes it ready (recovering, ");
    assert!(said.code == Some(1) && told && !said.out.contains("does not answer"), "{said:?}");
    // Others go on meanwhile, and it is waited for.
    files(&mnt).iter().for_each(|path| std::fs::write(path, noise(BYTES, 2)).unwrap());
    assert!(up.try_wait().unwrap().is_none(), "`weir up` did not wait");
    // Nor does that hinder other commands.
    assert!(cluster.weir(&["up"]).ok().contains("running already"));
    drop(frozen);
    assert!(up.wait().unwrap().success());
    let back = || state(&cluster, 1) == "online";
    eventually_within(Duration::from_secs(60), "it is back", back);
    assert_eq!(cluster.pid("data-1"), pid, "it is the same process");
    let fsck = cluster.weir(&["fsck"]);
    assert_eq!(fsck.code, Some(0), "{}{}", fsck.out, fsck.err);
    for path in files(&mnt) {
        assert!(std::fs::read(&path).unwrap() == noise(BYTES, 2), "{}", path.display());
    }
}
