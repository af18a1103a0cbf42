//! The log of a mount says in plain words what happened to its servers, with
//! times, and does not fill the disk with it.

use crate::fault_load::{Program, mounted};
use crate::harness::{Cluster, Place, eventually, noise, root};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// The log, where `weir status` says that it is.
fn log(cluster: &Cluster<'_>) -> PathBuf {
    let status = cluster.weir(&["status"]).ok();
    let log = status.lines().find_map(|line| line.split_once("; its log: ")).unwrap().1;
    let json = cluster.weir(&["status", "--json"]).json();
    assert_eq!(json["mount_daemons"][0]["log"], log);
    log.into()
}

/// Lines that have all of these words.
fn lines(log: &PathBuf, words: &[&str]) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap();
    let all = text.lines().filter(|line| words.iter().all(|word| line.contains(word)));
    all.map(str::to_owned).collect()
}

#[test]
fn the_log_says_who_is_away_since_when_what_waits_and_after_how_long_it_is_back() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place, "log", "ttl=0");
    let log = log(&cluster);
    let start = |call| Program::start(call, &at.join(call), place.path(call), false);
    let programs = ["stat", "read", "fsync", "unlink"].map(start);
    eventually("they work", || programs.iter().all(|p| p.report().calls > 2));
    let before = fs::read_to_string(&log).unwrap().lines().count();

    let meta = cluster.stopped(&["meta"]);
    let away = ["WARN", "the metadata server is away since", "UTC", "wait"];
    eventually("it is said", || !lines(&log, &away).is_empty());
    drop(meta);
    let back = ["INFO", "the metadata server is back after", "no call has failed meanwhile"];
    eventually("it is said", || !lines(&log, &back).is_empty());

    cluster.kill("data-2");
    let away = ["WARN", "data server 2 is away since", "UTC", "connect", "for it, 30 s each"];
    eventually("it is said", || !lines(&log, &away).is_empty());
    std::thread::sleep(Duration::from_secs(1));
    cluster.place.weir(&["up", "--name", &cluster.name]).ok();
    eventually("it is said", || !lines(&log, &["data server 2 is back after"]).is_empty());
    // Each line has its time, and there is none for each request.
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.lines().all(|line| line.starts_with("20") && line.contains('T')), "{text}");
    let said = text.lines().count() - before;
    assert!(said <= 10, "{said} lines for two outages: {text}");
}

#[test]
fn what_is_lost_at_last_is_in_the_log_when_the_mount_has_ended() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place, "last", "ttl=0,timeout=5");
    let log = log(&cluster);
    let mut file = File::create(at.join("loses")).unwrap();
    file.sync_all().unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
    let _stopped = cluster.stopped(&["data-1", "data-2", "data-3", "data-4"]);
    file.write_all(&noise(600_000, 1)).unwrap();
    // It is written and lost now, and most often the mount ends before its log is written the next
    // time.
    drop(file);
    cluster.umount(&at);
    let loss = ["ERROR", "data was lost", &format!("file {inode} ")];
    assert_eq!(lines(&log, &loss).len(), 1, "{}", fs::read_to_string(&log).unwrap());
}

#[test]
fn the_log_names_the_file_whose_data_was_lost_and_says_that_a_session_was() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place, "lost", "ttl=0,timeout=5");
    let log = log(&cluster);
    // `fsync` returns the error to the program; all earlier writes together are one loss.
    let path = at.join("loses");
    let mut file = File::create(&path).unwrap();
    file.sync_all().unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
    let stopped = cluster.stopped(&["data-1", "data-2", "data-3", "data-4"]);
    file.write_all(&noise(600_000, 1)).unwrap();
    assert!(file.sync_all().is_err());
    drop(stopped);
    let loss = ["ERROR", "data was lost", &format!("file {inode} ")];
    eventually("it is said", || lines(&log, &loss).len() == 1);
    file.write_all(b"goes on").unwrap();
    file.sync_all().unwrap();
    drop(file);

    // The mount sleeps for longer than its session lasts.
    let config = cluster.dir().join("meta.toml");
    let text = fs::read_to_string(&config).unwrap();
    let mut shorter: toml::Table = text.parse().unwrap();
    shorter.insert("session_timeout_ms".into(), 7_000.into());
    shorter.insert("lease_ms".into(), 5_000.into());
    fs::write(&config, shorter.to_string()).unwrap();
    cluster.kill("meta");
    cluster.place.weir(&["up", "--name", &cluster.name]).ok();
    fs::write(at.join("before"), "knows the new run").unwrap();
    let mount = cluster.stopped(&[&cluster.mount_daemon()]);
    std::thread::sleep(Duration::from_secs(10));
    drop(mount);
    fs::write(at.join("after"), "works on").unwrap();
    eventually("it is said", || lines(&log, &["WARN", "ended our session"]).len() == 1);
}
