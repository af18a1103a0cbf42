//! `kill -9` of each daemon while files are being written: what was synced is
//! there afterwards, whole, and the work goes on once the daemon is back.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod harness;
mod library;

use harness::{Cluster, Place, eventually, noise, root};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_client::{Client, ClientConfig, Context};
use weir_wire::Rights;

const FILE_BYTES: usize = 300_000;

fn contents(number: u64) -> Vec<u8> {
    noise(FILE_BYTES, number + 1)
}

fn name(number: u64) -> String {
    format!("file-{number:05}")
}

/// Writes files, each synced, until it is killed; says in `progress` how many
/// were synced. It is a process of its own: were it a thread of the test, every
/// program that the test starts would inherit the open file, and close it.
#[test]
fn writer_process() {
    let Some(dir) = std::env::var_os("WEIR_TEST_WRITER") else { return };
    let progress = PathBuf::from(std::env::var_os("WEIR_TEST_PROGRESS").unwrap());
    for number in 0.. {
        let path = Path::new(&dir).join(name(number));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&path)?;
            for part in contents(number).chunks(70_001) {
                file.write_all(part)?;
            }
            file.sync_all()
        };
        write().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let next = progress.with_extension("next");
        fs::write(&next, (number + 1).to_string()).unwrap();
        fs::rename(&next, &progress).unwrap();
    }
}

struct Writer {
    child: Child,
    progress: PathBuf,
}

impl Writer {
    fn start(place: &Place, dir: &Path) -> Self {
        let progress = place.path("progress");
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer_process"])
            .env("WEIR_TEST_WRITER", dir)
            .env("WEIR_TEST_PROGRESS", &progress)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, progress }
    }

    fn synced(&self) -> u64 {
        fs::read_to_string(&self.progress).ok().and_then(|s| s.parse().ok()).unwrap_or(0)
    }

    /// Waits until so many more files are synced; the writer must not fail.
    fn wait_for(&mut self, more: u64) {
        let want = self.synced() + more;
        eventually("files are synced", || self.synced() >= want || self.ended());
        assert!(!self.ended(), "the writer failed: {}", self.complaint());
    }

    fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn complaint(&mut self) -> String {
        let mut text = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            stderr.read_to_string(&mut text).unwrap();
        }
        text
    }

    fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn verify(dir: &Path, count: u64) {
    for number in 0..count {
        let path = dir.join(name(number));
        let read = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(read == contents(number), "{} is not what was synced", path.display());
    }
}

/// A cluster, where it is mounted, and a writer in a directory there.
struct Work<'a> {
    cluster: Cluster<'a>,
    at: PathBuf,
    dir: PathBuf,
    writer: Writer,
}

impl<'a> Work<'a> {
    fn begin(place: &'a Place, name: &str) -> Self {
        let at = place.path("mnt");
        let cluster = place.up(name, &["--mount", at.to_str().unwrap()]);
        let dir = at.join("work");
        fs::create_dir(&dir).unwrap();
        let writer = Writer::start(place, &dir);
        Self { cluster, at, dir, writer }
    }
}

/// Kills a daemon several times under a writer, which must not see an error.
fn killed_under_a_writer(daemon: &str, rounds: usize) {
    if !root() {
        return;
    }
    let place = Place::new();
    let Work { cluster, at, dir, mut writer } = Work::begin(&place, &format!("kill-{daemon}"));
    for _ in 0..rounds {
        writer.wait_for(5);
        cluster.kill(daemon);
        // Down for a moment, with the writer running into it.
        std::thread::sleep(Duration::from_millis(300));
        up_again(&cluster);
    }
    writer.wait_for(3);
    writer.stop();
    let count = writer.synced();
    verify(&dir, count);
    // And from the servers, not from what the kernel still has.
    remount(&cluster, &at);
    verify(&dir, count);
}

fn up_again(cluster: &Cluster<'_>) {
    cluster.place.weir(&["up", "--name", &cluster.name]).ok();
}

fn remount(cluster: &Cluster<'_>, at: &Path) {
    cluster.umount(at);
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
    let Work { cluster, at, dir, mut writer } = Work::begin(&place, "kill-mount");
    writer.wait_for(10);
    cluster.kill(&cluster.mount_daemon());
    // The writer's file system is gone: it gets an error, not a hang.
    eventually("the writer ends", || writer.ended());
    // The dead mountpoint is taken over.
    cluster.weir(&["mount", at.to_str().unwrap()]).ok();
    verify(&dir, writer.synced());
    fs::write(dir.join("after"), b"goes on").unwrap();
}

#[test]
fn everything_is_killed_at_once() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Work { cluster, at, dir, mut writer } = Work::begin(&place, "kill-all");
    writer.wait_for(10);
    for daemon in ["meta", "data-1", "data-2", "data-3", "data-4"] {
        cluster.kill(daemon);
    }
    up_again(&cluster);
    writer.wait_for(3);
    writer.stop();
    remount(&cluster, &at);
    verify(&dir, writer.synced());
}

#[test]
fn a_server_that_stays_away_gives_an_error_that_names_it() {
    let place = Place::new();
    let cluster = place.up("away", &[]);
    cluster.weir(&["mkfile", "weir:/f", "--layout", "striped", "--count", "1", "--base", "1"]).ok();
    let config = ClientConfig { request_timeout_ms: 1500, ..library::config(&cluster) };
    let client = Client::connect(config).unwrap();
    let ctx = Context::root();
    let attr = client.resolve(&ctx, b"/f", true).unwrap();
    let (file, _) = client.open(&ctx, attr.file, Rights::READ_WRITE).unwrap();
    // It gives up soon, and disks may be slow.
    let write = || file.write_at(&ctx, 0, &noise(100_000, 1)).and_then(|_| file.sync(&ctx));
    eventually("it is synced", || write().is_ok());
    cluster.kill("data-2");
    let begin = Instant::now();
    let error = file.read_at(&ctx, 0, &mut [0; 100]).unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(10), "the wait is bounded");
    assert!(error.message.contains("target 2 on server 2"), "{error}");
    // What write-behind could not deliver is told by the next sync.
    file.write_at(&ctx, 0, b"lost").unwrap();
    let error = file.sync(&ctx).unwrap_err();
    assert!(error.message.contains("target 2 on server 2"), "{error}");
    // The server comes back: so does the file.
    up_again(&cluster);
    let mut read = vec![0; 100_000];
    let is_read = || file.read_at(&ctx, 0, &mut read).is_ok_and(|bytes| bytes == 100_000);
    eventually("it is read", is_read);
    assert!(read == noise(100_000, 1));
}
