//! Mounts that stop, for a while or for good, while they hold leases: others go
//! on within the lease time, and nothing that is out of date comes up again.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod coherence_io;
mod harness;

use coherence_io::{open, read_all};
use harness::{Cluster, Place, Stopped, eventually, root};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What a session may be silent for.
const LEASE: Duration = Duration::from_secs(2);
/// Others wait hardly longer, on a busy machine.
const AT_MOST: Duration = Duration::from_secs(12);

/// A cluster with a short lease, mounted twice.
fn impatient<'a>(place: &'a Place, name: &str) -> (Cluster<'a>, PathBuf, PathBuf) {
    let cluster = place.up(name, &["--targets", "2"]);
    let config = cluster.dir().join("meta.toml");
    let mut settings: toml::Table = fs::read_to_string(&config).unwrap().parse().unwrap();
    let lease_ms = toml::Value::Integer(LEASE.as_millis() as i64);
    settings.insert("lease_ms".into(), lease_ms.clone());
    settings.insert("grace_ms".into(), lease_ms);
    fs::write(&config, settings.to_string()).unwrap();
    cluster.weir(&["down"]).ok();
    place.weir(&["up", "--name", name]).ok();
    let (a, b) = (cluster.mount("a", ""), cluster.mount("b", ""));
    (cluster, a, b)
}

#[test]
fn others_go_on_without_a_mount_that_stopped_and_it_serves_nothing_stale_afterwards() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, a, b) = impatient(&place, "stop");
    fs::write(a.join("name"), "").unwrap();
    let file_b = open(&b.join("f"));
    file_b.write_all_at(&[1; 8192], 0).unwrap();
    file_b.sync_all().unwrap();
    assert!(b.join("name").exists() && !b.join("new").exists());
    // Its last write may be on its way still.
    file_b.write_all_at(&[2; 100], 0).unwrap();
    let stopped = Stopped::these([cluster.mount_pid(&b)]);

    let begin = Instant::now();
    let file_a = open(&a.join("f"));
    let old = read_all(&file_a);
    assert_eq!(old.len(), 8192);
    assert!(old[100..].iter().all(|byte| *byte == 1));
    file_a.write_all_at(&[3; 8192], 0).unwrap();
    file_a.sync_all().unwrap();
    fs::rename(a.join("name"), a.join("new")).unwrap();
    assert!(begin.elapsed() < AT_MOST, "waited {:?}", begin.elapsed());
    // With nobody in the way it is quick again.
    let begin = Instant::now();
    file_a.write_all_at(&[4; 8192], 0).unwrap();
    assert!(begin.elapsed() < 3 * LEASE, "waited {:?}", begin.elapsed());

    drop(stopped);
    assert!(b.join("new").exists() && !b.join("name").exists(), "names of before the stop");
    assert_eq!(fs::read(b.join("f")).unwrap(), [4; 8192], "bytes of before the stop");
    // Pages that the kernel kept for who has it open go as soon as it goes on.
    eventually("the open file is seen as it is", || read_all(&file_b) == [4; 8192]);
    // What it had not sent is lost, and it says so rather than to overwrite.
    let told = file_b.sync_all();
    drop(file_b);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(read_all(&file_a), [4; 8192], "a late write came up; told: {told:?}");
    // Both go on.
    let file_b = open(&b.join("f"));
    file_b.write_all_at(&[5; 8192], 0).unwrap();
    assert_eq!(read_all(&file_a), [5; 8192]);
}

#[test]
fn others_go_on_without_a_mount_that_was_killed_and_see_what_it_had_sent() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, a, b) = impatient(&place, "kill");
    let file_b = open(&b.join("f"));
    file_b.write_all_at(&[1; 10_000], 0).unwrap();
    file_b.sync_all().unwrap();
    file_b.write_all_at(&[1; 500], 10_000).unwrap();
    let pid = Pid::from_raw(cluster.mount_pid(&b)).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    eventually("it is gone", || !harness::is_ours(pid.as_raw_nonzero().get()));
    let begin = Instant::now();
    let file_a = open(&a.join("f"));
    let seen = read_all(&file_a);
    assert!(begin.elapsed() < AT_MOST, "waited {:?}", begin.elapsed());
    assert!(seen.len() >= 10_000 && seen.len() <= 10_500, "{} bytes", seen.len());
    assert!(seen[..10_000].iter().all(|byte| *byte == 1));
    file_a.write_all_at(&[2; 10], 5).unwrap();
    assert_eq!(fs::metadata(a.join("f")).unwrap().len(), seen.len() as u64);
    drop(file_b);
}
