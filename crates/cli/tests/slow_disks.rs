//! One disk of several is slow: readers of files with two copies are delayed less, and the disk is
//! named; writers that spread records hardly wait for it. Real servers on real (loop) disks of a
//! set speed, read through real mounts.

use crate::harness::{Cluster, Place, noise};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use weir_testbed::{Disk, Throttle, forget, missing};

const DISKS: usize = 4;
const FILES: u64 = 2;
const FILE_BYTES: usize = 48 << 20;
/// What is spread over all disks.
const SPREAD_BYTES: usize = 160 << 20;
/// What a disk gives in a second,
const USUAL: u64 = 32 << 20;
/// and the slow one.
const SLOW: u64 = 8 << 20;

/// Within this a slow disk is named.
const NAMED: std::time::Duration = std::time::Duration::from_secs(120);

/// Times are of this machine: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Moves each target to a disk of its own.
fn move_targets(cluster: &Cluster<'_>, disks: &[Disk]) {
    cluster.weir(&["down"]).ok();
    for (n, disk) in disks.iter().enumerate() {
        let dir = cluster.dir().join(format!("targets/{}", n + 1));
        let there = disk.path().join("target");
        assert!(Command::new("cp").arg("-a").args([&dir, &there]).status().unwrap().success());
        std::fs::remove_dir_all(&dir).unwrap();
        std::os::unix::fs::symlink(there, dir).unwrap();
    }
    cluster.weir(&["up"]).ok();
}

fn path(mnt: &Path, n: u64) -> PathBuf {
    mnt.join(format!("two/f{n}"))
}

/// Reads all files at once through a mount of its own, from cold disks; how long that took,
/// and what was read from each disk.
fn read(cluster: &Cluster<'_>, disks: &[Disk], (name, policy): (&str, &str)) -> (f64, Vec<u64>) {
    let mnt = mount_cold(cluster, disks, (name, policy));
    let (seconds, bytes) = read_all(&mnt, disks);
    cluster.umount(&mnt);
    println!("{name}, {policy}: {seconds:.2} s, bytes of the disks {bytes:?}");
    (seconds, bytes)
}

/// A mount by which nothing was read, nor has anybody else.
fn mount_cold(cluster: &Cluster<'_>, disks: &[Disk], (name, policy): (&str, &str)) -> PathBuf {
    let mnt = cluster.mount(name, &format!("ro,read_policy={policy}"));
    disks.iter().for_each(|disk| forget(disk.path()).unwrap());
    mnt
}

fn read_all(mnt: &Path, disks: &[Disk]) -> (f64, Vec<u64>) {
    let counts = || disks.iter().map(|disk| disk.read_bytes().unwrap()).collect::<Vec<_>>();
    let (before, begin) = (counts(), Instant::now());
    std::thread::scope(|scope| {
        for n in 0..FILES {
            let file = path(mnt, n);
            scope.spawn(move || assert!(std::fs::read(file).unwrap() == noise(FILE_BYTES, n)));
        }
    });
    let seconds = begin.elapsed().as_secs_f64();
    let bytes = counts().iter().zip(&before).map(|(after, before)| after - before).collect();
    (seconds, bytes)
}

/// A cluster of a server for each disk; `None`: it cannot be here.
fn start<'a>(place: &'a Place, name: &str) -> Option<(Vec<Disk>, Cluster<'a>)> {
    if let Some(what) = missing() {
        println!("skipped: needs {what}");
        return None;
    }
    let disks = disks(place);
    let cluster = place.up(name, &["--targets", "4", "--targets-per-server", "1"]);
    move_targets(&cluster, &disks);
    Some((disks, cluster))
}

fn disks(place: &Place) -> Vec<Disk> {
    let disk = |n| {
        let (image, at) = (place.path(&format!("image-{n}")), place.path(&format!("disk-{n}")));
        Disk::make(&image, &at, 160 << 20).unwrap()
    };
    (0..DISKS).map(disk).collect()
}

/// A group of the servers, in which disks have a set speed.
fn servers(cluster: &Cluster<'_>) -> Throttle {
    let group = Throttle::new(&format!("weir-{}-{}", cluster.name, std::process::id())).unwrap();
    (1..=DISKS).for_each(|n| group.add(cluster.pid(&format!("data-{n}"))).unwrap());
    group
}

#[test]
fn records_that_are_spread_go_where_they_are_written_fastest() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let Some((disks, cluster)) = start(&place, "spread") else { return };
    let group = servers(&cluster);
    let speeds = [SLOW, USUAL, USUAL, USUAL];
    disks.iter().zip(speeds).for_each(|(disk, speed)| group.limit_writes(disk, speed).unwrap());
    let input = place.path("input");
    std::fs::write(&input, noise(SPREAD_BYTES, 1)).unwrap();
    let counts = || disks.iter().map(|disk| disk.counts().unwrap().written_bytes);
    let (before, begin) = (counts().collect::<Vec<_>>(), Instant::now());
    let order = ["spread", "--record", "64K", "--batch", "256K", "weir:/out"];
    cluster.weir(&[&order[..], &[input.to_str().unwrap()]].concat()).ok();
    let seconds = begin.elapsed().as_secs_f64();
    let bytes: Vec<u64> = counts().zip(&before).map(|(after, before)| after - before).collect();
    println!("{seconds:.2} s, bytes of the disks {bytes:?}");
    let share = |n: usize| bytes[n] as f64 / bytes.iter().sum::<u64>() as f64;
    // A thirteenth would be ideal, and a quarter what striping gives it.
    assert!(share(0) > 0.05 && share(0) < 0.12, "{bytes:?}");
    let all_wait = SPREAD_BYTES as f64 / DISKS as f64 / SLOW as f64;
    assert!(seconds < all_wait * 0.75, "{seconds} s, striped {all_wait} s at least");
}

#[test]
fn a_slow_disk_holds_up_less_who_reads_what_has_another_copy() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let Some((disks, cluster)) = start(&place, "slow") else { return };
    let mnt = cluster.mount("mnt", "rw");
    std::fs::create_dir(mnt.join("two")).unwrap();
    cluster.weir(&["setlayout", "weir:/two", "--copies", "2"]).ok();
    for n in 0..FILES {
        std::fs::write(path(&mnt, n), noise(FILE_BYTES, n)).unwrap();
    }
    cluster.umount(&mnt);

    let group = servers(&cluster);
    disks.iter().for_each(|disk| group.limit(disk, USUAL).unwrap());
    let (well, _) = read(&cluster, &disks, ("well", "proportional"));
    group.limit(&disks[0], SLOW).unwrap();
    let (held_up, all) = read(&cluster, &disks, ("first", "primary"));
    let (hardly, less) = read(&cluster, &disks, ("slow", "proportional"));
    // The slow disk has a quarter of the first copies: with them alone all wait for it. (What does
    // not come within a second is read from the other copy: 18 to 25 MB of 25 were seen.)
    let firsts = FILES * FILE_BYTES as u64 / DISKS as u64;
    assert!(all[0] >= firsts / 2, "{all:?}");
    assert!(less[0] < all[0] * 17 / 20, "{less:?}");
    let bound = held_up * 0.85;
    assert!(hardly < bound, "{hardly} s, and {held_up} s with the first copies alone");
    assert!(well < bound, "{well} s without a slow disk");
    is_named(&cluster, &disks);
}

/// What is known of a target.
fn target(cluster: &Cluster<'_>, number: u64) -> Value {
    let all = cluster.weir(&["targets", "--json"]).json();
    all.as_array().unwrap().iter().find(|of| of["target"] == number).unwrap().clone()
}

#[test]
fn who_opens_a_file_goes_past_a_disk_that_is_hot_already() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let Some((disks, cluster)) = start(&place, "hot") else { return };
    let mnt = cluster.mount("mnt", "rw");
    std::fs::create_dir(mnt.join("two")).unwrap();
    cluster.weir(&["setlayout", "weir:/two", "--copies", "2"]).ok();
    std::fs::write(path(&mnt, 0), noise(1 << 20, 0)).unwrap();
    cluster.umount(&mnt);

    let group = servers(&cluster);
    disks.iter().for_each(|disk| group.limit(disk, USUAL).unwrap());
    group.limit(&disks[0], 1 << 20).unwrap();
    // Another program uses the disk; nobody reads from its server.
    let begin = Instant::now();
    let hot = loop {
        let mut file = std::fs::File::create(disks[0].path().join("else")).unwrap();
        file.write_all(&noise(4 << 20, 7)).unwrap();
        file.sync_all().unwrap();
        let known = target(&cluster, 1);
        // Of a machine that was idle for half a second the last word is that it does nothing.
        let works = known["machine"]["cpu_percent"].as_f64().unwrap() > 0.0;
        if known["serves_us_per_mib"].as_u64().unwrap() > 200_000 && works {
            break known;
        }
        assert!(begin.elapsed() < NAMED, "it is not known to be hot: {known}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    };
    let mnt = cluster.mount("new", "ro");
    disks.iter().for_each(|disk| forget(disk.path()).unwrap());
    assert!(std::fs::read(path(&mnt, 0)).unwrap() == noise(1 << 20, 0));
    // What servers said with their next report.
    let begin = Instant::now();
    let others = |n| target(&cluster, n)["read_bytes"].as_u64().unwrap();
    while (2..=4).map(others).sum::<u64>() < 1 << 20 {
        assert!(begin.elapsed() < NAMED, "the others have not said what they served");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(others(1), hot["read_bytes"].as_u64().unwrap(), "the hot one has served something");
    cluster.umount(&mnt);
}

/// While it is read from it is found to be slow, and no other.
fn is_named(cluster: &Cluster<'_>, disks: &[Disk]) {
    let begin = Instant::now();
    let slow = |n: usize| {
        let targets = cluster.weir(&["targets", "--json"]).json();
        targets[n]["slow"].as_bool().unwrap()
    };
    let mut rounds = 0;
    while !slow(0) {
        rounds += 1;
        assert!(begin.elapsed() < NAMED, "{}", cluster.weir(&["targets"]).out);
        read(cluster, disks, (&format!("again-{rounds}"), "primary"));
    }
    println!("named after {:.1} s", begin.elapsed().as_secs_f64());
    assert!(!(1..DISKS).any(slow));
    assert!(cluster.weir(&["status"]).out.contains("target 1: its disk, of data-1"));
    assert!(cluster.weir(&["targets"]).out.contains("its disk has become slow"));
    // And while it is read from, that it holds the others up.
    let (mut rounds, begin) = (0, Instant::now());
    loop {
        rounds += 1;
        let top = top_meanwhile(cluster, disks, &format!("top-{rounds}"));
        if top.contains("target 1 (data-1 on") && top.contains("holds the others up") {
            break;
        }
        assert!(begin.elapsed() < NAMED, "{top}");
    }
}

/// What `weir top` says while all files are read.
fn top_meanwhile(cluster: &Cluster<'_>, disks: &[Disk], name: &str) -> String {
    // It looks for 2.4 s only: nothing but the reading is to fall into them.
    let mnt = mount_cold(cluster, disks, (name, "primary"));
    let top = std::thread::scope(|scope| {
        let reads = scope.spawn(|| read_all(&mnt, disks));
        // Often enough to see it while the others have not ended.
        let top = cluster.weir(&["top", "-n", "12", "-d", "0.2"]);
        reads.join().unwrap();
        top.out
    });
    cluster.umount(&mnt);
    top
}
