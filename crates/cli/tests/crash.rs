//! `kill -9` of each daemon while files are being written: what was synced is
//! there afterwards, whole, and the work goes on once the daemon is back.

mod harness;

use harness::{Cluster, Place, eventually, noise, root};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const FILE_BYTES: usize = 300_000;

fn contents(number: u64) -> Vec<u8> {
    noise(FILE_BYTES, number + 1)
}

fn name(number: u64) -> String {
    format!("file-{number:05}")
}

/// Writes files, each synced, until told to stop; says how many were synced.
fn writer(dir: &Path, stop: &AtomicBool, synced: &AtomicU64) -> Result<(), String> {
    let mut number = 0;
    while !stop.load(Ordering::Acquire) {
        let path = dir.join(name(number));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&path)?;
            for part in contents(number).chunks(70_001) {
                file.write_all(part)?;
            }
            file.sync_all()
        };
        write().map_err(|e| format!("{}: {e}", path.display()))?;
        number += 1;
        synced.store(number, Ordering::Release);
    }
    Ok(())
}

fn verify(dir: &Path, count: u64) {
    for number in 0..count {
        let path = dir.join(name(number));
        let read = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(read == contents(number), "{} is not what was synced", path.display());
    }
}

/// Kills a daemon several times under a writer, which must not see an error.
fn killed_under_a_writer(daemon: &str, rounds: usize) {
    if !root() {
        return;
    }
    let place = Place::new();
    let at = place.path("mnt");
    let cluster = place.up(&format!("kill-{daemon}"), &["--mount", at.to_str().unwrap()]);
    let dir = at.join("work");
    fs::create_dir(&dir).unwrap();
    let (stop, synced) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| writer(&dir, &stop, &synced));
        for _ in 0..rounds {
            let before = synced.load(Ordering::Acquire);
            eventually("files are synced", || {
                synced.load(Ordering::Acquire) >= before + 5 || writing.is_finished()
            });
            cluster.kill(daemon);
            // Down for a moment, with the writer running into it.
            std::thread::sleep(Duration::from_millis(300));
            up_again(&cluster);
        }
        let before = synced.load(Ordering::Acquire);
        eventually("the writer goes on", || {
            synced.load(Ordering::Acquire) >= before + 3 || writing.is_finished()
        });
        stop.store(true, Ordering::Release);
        writing.join().unwrap().unwrap();
    });
    let count = synced.load(Ordering::Acquire);
    verify(&dir, count);
    // And from the servers, not from what the kernel still has.
    remount(&cluster, &at);
    verify(&dir, count);
}

fn up_again(cluster: &Cluster<'_>) {
    cluster.place.weir(&["up", "--name", &cluster.name]).ok();
}

fn remount(cluster: &Cluster<'_>, at: &PathBuf) {
    cluster.weir(&["umount", at.to_str().unwrap()]).ok();
    cluster.weir(&["mount", at.to_str().unwrap()]).ok();
}

#[test]
fn a_data_server_is_killed_under_a_copy() {
    killed_under_a_writer("data-2", 4);
}

#[test]
fn the_metadata_server_is_killed_under_a_copy() {
    killed_under_a_writer("meta", 4);
}

#[test]
fn the_mount_is_killed_under_a_copy() {
    if !root() {
        return;
    }
    let place = Place::new();
    let at = place.path("mnt");
    let cluster = place.up("kill-mount", &["--mount", at.to_str().unwrap()]);
    let dir = at.join("work");
    fs::create_dir(&dir).unwrap();
    let (stop, synced) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| writer(&dir, &stop, &synced));
        eventually("files are synced", || synced.load(Ordering::Acquire) >= 10);
        cluster.kill(&mount_daemon(&cluster));
        // The writer's file system is gone: it gets an error, not a hang.
        assert!(writing.join().unwrap().is_err());
    });
    // The dead mountpoint is taken over.
    cluster.weir(&["mount", at.to_str().unwrap()]).ok();
    verify(&dir, synced.load(Ordering::Acquire));
    fs::write(dir.join("after"), b"goes on").unwrap();
}

fn mount_daemon(cluster: &Cluster<'_>) -> String {
    let run = fs::read_dir(cluster.dir().join("run")).unwrap().flatten();
    let mut names = run.map(|f| f.file_name().to_string_lossy().into_owned());
    let found = names.find(|n| n.starts_with("mount-") && n.ends_with(".pid")).unwrap();
    found.trim_end_matches(".pid").to_string()
}

#[test]
fn everything_is_killed_at_once() {
    if !root() {
        return;
    }
    let place = Place::new();
    let at = place.path("mnt");
    let cluster = place.up("kill-all", &["--mount", at.to_str().unwrap()]);
    let dir = at.join("work");
    fs::create_dir(&dir).unwrap();
    let (stop, synced) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| writer(&dir, &stop, &synced));
        eventually("files are synced", || synced.load(Ordering::Acquire) >= 10);
        for daemon in ["meta", "data-1", "data-2", "data-3", "data-4"] {
            cluster.kill(daemon);
        }
        up_again(&cluster);
        let before = synced.load(Ordering::Acquire);
        eventually("the writer goes on", || {
            synced.load(Ordering::Acquire) >= before + 3 || writing.is_finished()
        });
        stop.store(true, Ordering::Release);
        writing.join().unwrap().unwrap();
    });
    remount(&cluster, &at);
    verify(&dir, synced.load(Ordering::Acquire));
}

#[test]
fn a_server_that_stays_away_gives_an_error_that_names_it() {
    let place = Place::new();
    let cluster = place.up("away", &[]);
    cluster.weir(&["mkfile", "weir:/f", "--layout", "striped", "--count", "1", "--base", "1"]).ok();
    let source = place.path("source");
    fs::write(&source, noise(100_000, 1)).unwrap();
    cluster.weir(&["cp", source.to_str().unwrap(), "weir:/f"]).ok();
    cluster.kill("data-2");
    let mut command = cluster.command(&["cat", "weir:/f"]);
    command.env("WEIR_REQUEST_TIMEOUT_MS", "1500");
    let begin = std::time::Instant::now();
    harness::said(command).fails(&["target 2", "server 2"]);
    assert!(begin.elapsed() < Duration::from_secs(20), "the wait is bounded");
}
