//! `weir cp --resume`: a copy that was ended goes on, and whatever has its name is complete.

use crate::cp::{all, watch};
use crate::harness::{Cluster, Place, Running, Said, noise, root};
use crate::trees::{Snapshot, assert_same, count, snapshot};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// What is not complete yet.
fn is_partial(name: &[u8]) -> bool {
    name.starts_with(b".weir-cp-")
}

/// Makes a tree that takes a while to copy: small files, links, and two in several pieces.
fn work(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for i in 0..10 {
        let below = dir.join(format!("d{i}"));
        fs::create_dir(&below).unwrap();
        for j in 0..30 {
            fs::write(below.join(format!("f{j}")), noise(20_000 + 11 * j, (i * j) as u64)).unwrap();
        }
        fs::hard_link(below.join("f0"), below.join("same")).unwrap();
    }
    for name in ["d3/big", "d7/big"] {
        fs::write(dir.join(name), noise(140_000_003, name.len() as u64)).unwrap();
    }
}

/// Runs a copy that is to go on, and kills it when `is_time`.
fn kill_when(cluster: &Cluster<'_>, paths: [&str; 2], mut is_time: impl FnMut() -> bool) {
    let arguments = ["cp", "-aT", "--resume", "-j", "2", paths[0], paths[1]];
    let mut copy = Running(cluster.command(&arguments).stderr(Stdio::null()).spawn().unwrap());
    let begin = std::time::Instant::now();
    while copy.0.try_wait().unwrap().is_none() && !is_time() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = copy.0.kill();
    copy.0.wait().unwrap();
}

/// Whatever has its name is as it is to be; of directories what they are given in the end may
/// be missing.
#[track_caller]
fn assert_whole(from: &Snapshot, there: &Snapshot) {
    for (path, seen) in there {
        let source = &from[path];
        if seen.kind == FileType::RegularFile {
            let known = (seen.size, seen.bytes, seen.mtime, seen.mode);
            let shown = String::from_utf8_lossy(path);
            assert_eq!(known, (source.size, source.bytes, source.mtime, source.mode), "{shown}");
        }
    }
}

/// The bytes of files in a directory that are not complete.
fn partial_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let partial = entries.filter(|entry| is_partial(entry.file_name().as_encoded_bytes()));
    partial.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

/// How many were complete, and how many were gone on with.
fn resumed(said: Said) -> (u64, u64) {
    assert_eq!(said.code, Some(0), "{}", said.err);
    let numbers: Vec<u64> = said.err.split(' ').filter_map(|word| word.parse().ok()).collect();
    (numbers[0], numbers[1])
}

/// Kills a copy at several points, looks at what is there each time, and then has it end.
fn killed_and_resumed(cluster: &Cluster<'_>, paths: [&str; 2], from: &Path, there: &Path) {
    let wanted = snapshot(from, all);
    for point in 0..4 {
        kill_when(cluster, paths, || match point {
            0 => there.exists(),
            1 => count(there) > 60,
            2 => partial_bytes(&there.join("d3")) > 30_000_000,
            _ => partial_bytes(&there.join("d7")) > 30_000_000,
        });
        assert_whole(&wanted, &snapshot(there, is_partial));
    }
    let (complete, _) = resumed(cluster.weir(&["cp", "-aT", "--resume", paths[0], paths[1]]));
    assert!(complete > 60, "{complete}");
    assert_same(&wanted, &snapshot(there, all));
    let (complete, continued) =
        resumed(cluster.weir(&["cp", "-aT", "--continue", paths[0], paths[1]]));
    // Hard links are not counted again.
    assert_eq!((complete, continued), (302, 0));
}

#[test]
fn a_copy_into_the_cluster_that_is_killed_goes_on() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = quick(&place, "killed");
    work(&place.path("from"));
    let mount = watch(&cluster);
    let there = mount.join("to");
    killed_and_resumed(&cluster, ["from", "weir:/to"], &place.path("from"), &there);
    // A file that was changed is copied again, and only that.
    fs::write(place.path("from/d5/f5"), "changed").unwrap();
    let (complete, _) = resumed(cluster.weir(&["cp", "-aT", "--resume", "from", "weir:/to"]));
    assert_eq!(complete, 301);
    assert_eq!(fs::read(there.join("d5/f5")).unwrap(), b"changed");
    // The same words mean the same again.
    let again = ["cp", "-a", "--resume", "from", "weir:/to"];
    cluster.weir(&again).fails(&["weir:/to", "is there already", "-T"]);
    cluster.weir(&["cp", "-a", "--resume", "from", "weir:/new/"]).fails(&["weir:/new", "-T"]);
    cluster.weir(&["cp", "-a", "--resume", "from/d5", "weir:/to/"]).ok();
    assert!(there.join("d5/f5").exists());
}

#[test]
fn a_copy_out_of_the_cluster_that_is_killed_goes_on() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = quick(&place, "killed");
    work(&place.path("from"));
    cluster.weir(&["cp", "-a", "from", "weir:/from"]).ok();
    let there = place.path("to");
    killed_and_resumed(&cluster, ["weir:/from", "to"], &place.path("from"), &there);
}

/// A cluster in which what was killed is soon forgotten.
fn quick<'a>(place: &'a Place, name: &str) -> Cluster<'a> {
    let cluster = place.up(name, &["--targets", "2"]);
    cluster.weir(&["down"]).ok();
    let path = cluster.dir().join("meta.toml");
    let mut settings: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    for (key, ms) in [("lease_ms", 1000), ("grace_ms", 1000), ("session_timeout_ms", 2000)] {
        settings.insert(key.into(), toml::Value::Integer(ms));
    }
    fs::write(path, settings.to_string()).unwrap();
    cluster.weir(&["up"]).ok();
    cluster
}

#[test]
fn what_is_left_of_a_file_is_compared_and_what_is_wrong_is_written_again() {
    let place = Place::new();
    let cluster = place.up("left", &["--targets", "2"]);
    let bytes = noise(100_000_001, 5);
    fs::write(place.path("big"), &bytes).unwrap();
    cluster.weir(&["cp", "big", "weir:/big"]).ok();
    // A local file that a run has left: right in the beginning, then wrong, and too long.
    let name = format!(".weir-cp-{:08x}-{:016x}-k", weir_types::checksum::crc32c(b"copy"), 77);
    let mut left = bytes[..70_000_000].to_vec();
    left[50_000_000..50_001_000].fill(0);
    left.resize(110_000_000, 1);
    fs::write(place.path(&name), left).unwrap();
    let said = cluster.weir(&["cp", "--resume", "weir:/big", "copy"]);
    assert_eq!(resumed(said), (0, 1));
    assert!(fs::read(place.path("copy")).unwrap() == bytes);
    assert!(!place.path(&name).exists());
    let said = cluster.weir(&["cp", "--resume", "weir:/big", "copy"]);
    assert_eq!(resumed(said), (1, 0));
}

/// What a run calls a file that is not complete.
fn partial_name(of: &str, run: u64) -> String {
    format!(".weir-cp-{:08x}-{run:016x}-k", weir_types::checksum::crc32c(of.as_bytes()))
}

#[test]
fn what_others_have_put_in_the_place_of_leftovers_is_neither_used_nor_removed() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("planted", &["--targets", "1"]);
    fs::write(place.path("f"), "the file").unwrap();
    let mount = watch(&cluster);
    for (dir, from, to) in
        [(place.path("here"), "weir:/f", "here/f"), (mount.join("d"), "f", "weir:/d/f")]
    {
        cluster.weir(&["cp", "f", "weir:/f"]).ok();
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("victim"), "victim").unwrap();
        let planted: Vec<_> = (0..5).map(|run| dir.join(partial_name("f", run))).collect();
        symlink("victim", &planted[0]).unwrap();
        fs::hard_link(dir.join("victim"), &planted[1]).unwrap();
        fs::create_dir(&planted[2]).unwrap();
        fs::write(&planted[3], "of somebody else").unwrap();
        std::os::unix::fs::chown(&planted[3], Some(77), Some(77)).unwrap();
        mknodat(CWD, &planted[4], FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        // One that is ours is gone on with, another one is removed.
        let ours: Vec<_> = (5..7).map(|run| dir.join(partial_name("f", run))).collect();
        ours.iter().for_each(|path| fs::write(path, "the").unwrap());
        assert_eq!(resumed(cluster.weir(&["cp", "--resume", from, to])), (0, 1));
        assert_eq!(fs::read(dir.join("f")).unwrap(), b"the file");
        assert_eq!(fs::read(dir.join("victim")).unwrap(), b"victim");
        assert!(planted.iter().all(|path| fs::symlink_metadata(path).is_ok()));
        assert!(ours.iter().all(|path| !path.exists()));
    }
}

#[test]
fn who_is_somebody_else_by_the_key_goes_on_with_what_that_one_has_left() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("squashed", &["--targets", "1"]);
    let mount = watch(&cluster);
    fs::set_permissions(&mount, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(place.path("f"), "the file").unwrap();
    let key = ["key", "create", "k", "--output", "key.toml", "--squash", "all", "--anon-uid", "40"];
    cluster.weir(&key).ok();
    let left = [(40, mount.join(partial_name("f", 1))), (0, mount.join(partial_name("f", 2)))];
    for (owner, path) in &left {
        fs::write(path, "the").unwrap();
        std::os::unix::fs::chown(path, Some(*owner), None).unwrap();
    }
    let resume = ["cp", "--credential", "key.toml", "--resume", "f", "weir:/f"];
    assert_eq!(resumed(place.weir(&resume)), (0, 1));
    assert_eq!(fs::read(mount.join("f")).unwrap(), b"the file");
    assert!(!left[0].1.exists() && left[1].1.exists());
}

#[test]
fn a_server_that_is_lost_ends_the_copy_and_the_next_one_goes_on() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = quick(&place, "lost");
    work(&place.path("from"));
    let mount = watch(&cluster);
    let there = mount.join("to");
    kill_when(&cluster, ["from", "weir:/to"], || {
        let late = partial_bytes(&there.join("d3")) > 10_000_000;
        if late {
            cluster.kill("data-1");
            cluster.kill("meta");
        }
        late
    });
    cluster.weir(&["up"]).ok();
    let (complete, _) = resumed(cluster.weir(&["cp", "-aT", "--resume", "from", "weir:/to"]));
    assert!(complete > 0);
    let from = snapshot(&place.path("from"), all);
    assert_same(&from, &snapshot(&there, all));
}
