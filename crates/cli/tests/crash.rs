//! `kill -9` of each daemon while files are being written: what was synced is
//! there afterwards, whole, and the work goes on once the daemon is back.

use crate::harness::{Cluster, Place, SOON, again, eventually, eventually_within, noise, root};
use crate::library;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
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
        let mut command = again("crash::writer_process");
        command.env("WEIR_TEST_WRITER", dir);
        Self::run(place, command)
    }

    fn run(place: &Place, mut command: Command) -> Self {
        let progress = place.path("progress");
        let child = command
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

/// Where the blocks of a large file with next to nothing in it are.
const SPARSE_BLOCKS: u64 = (800 << 30) / BLOCK as u64;
const BLOCK: usize = 4096;

fn sparse_block(number: u64) -> (u64, Vec<u8>) {
    let place = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % SPARSE_BLOCKS;
    (place * BLOCK as u64, noise(BLOCK, number + 1))
}

/// Writes blocks all over a large file until it is killed; says how many there are.
#[test]
fn sparse_writer_process() {
    let Some(path) = std::env::var_os("WEIR_TEST_SPARSE") else { return };
    let progress = PathBuf::from(std::env::var_os("WEIR_TEST_PROGRESS").unwrap());
    let file = File::create(path).unwrap();
    for number in 0.. {
        let (place, block) = sparse_block(number);
        file.write_all_at(&block, place).unwrap_or_else(|e| panic!("block {number}: {e}"));
        if number % 100 == 0 {
            let next = progress.with_extension("next");
            fs::write(&next, (number + 1).to_string()).unwrap();
            fs::rename(&next, &progress).unwrap();
        }
    }
}

/// Counters of all data servers whose names end so, together.
fn counted(cluster: &Cluster<'_>, names: &[&str]) -> u64 {
    // It ends with 1 as long as a target is not online.
    let said = cluster.weir(&["status", "--json", "--counters"]);
    let status: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let servers = status["servers"].as_object().unwrap().iter();
    let counters = servers.filter(|(name, _)| name.starts_with("data-")).flat_map(|(_, of)| {
        let counters = of["counters"].as_object().unwrap().clone();
        counters.into_iter().filter(|(name, _)| names.contains(&name.as_str()))
    });
    counters.map(|(_, n)| n.as_u64().unwrap()).sum()
}

/// Bytes of disk that all targets take.
fn taken(cluster: &Cluster<'_>) -> u64 {
    let output = Command::new("du").args(["-sB1"]).arg(cluster.dir().join("targets")).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn are_online(cluster: &Cluster<'_>) -> bool {
    let views = cluster.weir(&["targets", "--json"]).json();
    views.as_array().unwrap().iter().all(|view| view["state"] == "online")
}

/// A scan of the objects visits everything that the target has: each step is counted.
#[test]
fn a_data_server_that_was_killed_under_a_large_sparse_file_comes_back_soon() {
    if !root() {
        return;
    }
    let place = Place::new();
    let at = place.path("mnt");
    let cluster = place.up("sparse", &["--targets", "4", "--mount", at.to_str().unwrap()]);
    cluster.weir(&["setlayout", "weir:/", "--copies", "2"]).ok();
    let path = at.join("s");
    let mut command = again("crash::sparse_writer_process");
    command.env("WEIR_TEST_SPARSE", &path);
    let mut writer = Writer::run(&place, command);
    writer.wait_for(400);
    cluster.kill("data-2");
    writer.wait_for(100);
    up_again(&cluster);
    let recovered = counted(&cluster, &["recovery.bytes"]);
    assert!(recovered > 0 && recovered < taken(&cluster), "{recovered} bytes recovered");
    writer.wait_for(100);
    writer.stop();
    let minute = Duration::from_secs(60);
    eventually_within(minute, "the target gets what it missed", || are_online(&cluster));
    // What it missed is sent, and no holes.
    let resynced = counted(&cluster, &["bytes.resynced"]);
    assert!(resynced > 0 && resynced < taken(&cluster), "{resynced} bytes sent to it");
    let count = writer.synced();
    let verify = |path: &Path| {
        let file = File::open(path).unwrap();
        for number in 0..count {
            let (place, expected) = sparse_block(number);
            let mut block = vec![0; BLOCK];
            file.read_exact_at(&mut block, place).unwrap();
            assert!(block == expected, "block {number}");
        }
    };
    verify(&path);
    // Each block of the file is a write, and there are holes on its sides. Parts of 1 MiB are
    // 800,000.
    let most = 12 * count + 20_000;
    let changes = ["op.write", "op.punch"];
    let before = counted(&cluster, &changes);
    cluster.weir(&["target", "drain", "2", "--wait"]).ok();
    let moved = counted(&cluster, &changes) - before;
    assert!(moved > 0 && moved < most, "{moved} changes for {count} blocks");
    let fsck = cluster.weir(&["fsck"]);
    assert_eq!(fsck.code, Some(0), "{}{}", fsck.out, fsck.err);
    cluster.weir(&["scrub"]).ok();
    let scrubbed = counted(&cluster, &["scrub.bytes"]);
    assert!(scrubbed > 0 && scrubbed < taken(&cluster), "{scrubbed} bytes scrubbed");
    remount(&cluster, &at);
    verify(&path);
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
    assert!(begin.elapsed() < SOON, "the wait is bounded");
    assert!(error.message.contains("target 2 on server 2"), "{error}");
    // The next sync reports what write-behind could not deliver.
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
