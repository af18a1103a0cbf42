//! Mounts that stop, for a while or for good, while they hold leases: others go
//! on within the lease time, and nothing that is out of date comes up again. A mount
//! that was killed and cannot end is ended.

use crate::coherence_io::{open, read_all};
use crate::harness::{self, Cluster, Place, SOON, Stopped, eventually, noise, root, state};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What a session may be silent for.
const LEASE: Duration = Duration::from_secs(2);

/// A cluster with a short lease, mounted twice.
fn impatient<'a>(place: &'a Place, name: &str) -> (Cluster<'a>, PathBuf, PathBuf) {
    let cluster = place.up(name, &["--targets", "2"]);
    let lease_ms = LEASE.as_millis() as u64;
    cluster.set_meta(&[("lease_ms", lease_ms), ("grace_ms", lease_ms)]);
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
    assert!(begin.elapsed() < SOON, "waited {:?}", begin.elapsed());
    // With nobody in the way it is quick again.
    let begin = Instant::now();
    file_a.write_all_at(&[4; 8192], 0).unwrap();
    assert!(begin.elapsed() < SOON, "waited {:?}", begin.elapsed());

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
    assert!(begin.elapsed() < SOON, "waited {:?}", begin.elapsed());
    assert!(seen.len() >= 10_000 && seen.len() <= 10_500, "{} bytes", seen.len());
    assert!(seen[..10_000].iter().all(|byte| *byte == 1));
    file_a.write_all_at(&[2; 10], 5).unwrap();
    assert_eq!(fs::metadata(a.join("f")).unwrap().len(), seen.len() as u64);
    drop(file_b);
}

const FILE_BYTES: usize = 8 << 20;
/// Far from what has been read of the file.
const ELSEWHERE: usize = 6 << 20;
const BLOCK_BYTES: usize = 4096;

/// One block, as dd copies it.
fn dd(input: Stdio, output: Stdio, options: &[String]) -> Child {
    let mut dd = Command::new("dd");
    dd.args([&format!("bs={BLOCK_BYTES}"), "count=1", "status=none"]).args(options);
    dd.stdin(input).stdout(output).stderr(Stdio::null()).spawn().unwrap()
}

/// Whether a process waits for a read of its standard input.
fn reads_input(pid: u32) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    call.starts_with(&format!("{} 0x0 ", libc::SYS_read))
}

/// A mount that was killed while one of its threads has the kernel drop a page that waits for a
/// read. Nobody will answer that read, so the thread, and the process, cannot end. All data servers
/// are stopped.
struct Stuck {
    at: PathBuf,
    pid: i32,
    process: OwnedFd,
    servers: Option<Stopped>,
    /// Waits for the page.
    reader: Child,
    /// Writes to it through another mount.
    writer: Child,
}

impl Stuck {
    /// `a` it is; what is to be in the file `f` at last.
    fn new(cluster: &Cluster<'_>, a: &Path, b: &Path) -> (Self, Vec<u8>) {
        let mut bytes = noise(FILE_BYTES, 1);
        let file_b = open(&b.join("f"));
        file_b.write_all_at(&bytes, 0).unwrap();
        file_b.sync_all().unwrap();
        let news = cluster.place.path("news");
        fs::write(&news, noise(BLOCK_BYTES, 2)).unwrap();
        bytes[ELSEWHERE..][..BLOCK_BYTES].copy_from_slice(&fs::read(&news).unwrap());

        let file_a = File::open(a.join("f")).unwrap();
        file_a.read_exact_at(&mut [0; BLOCK_BYTES], 0).unwrap();
        let (pid, servers) = (cluster.mount_pid(a), cluster.stopped(&["data-1", "data-2"]));
        let number = Pid::from_raw(pid).unwrap();
        let process = pidfd_open(number, PidfdFlags::empty()).unwrap();
        // Other processes, which can be left behind: this one has nothing open there.
        let elsewhere = ELSEWHERE / BLOCK_BYTES;
        let reader = dd(file_a.into(), Stdio::null(), &[format!("skip={elsewhere}")]);
        eventually("the reader waits for its page", || reads_input(reader.id()));
        // Without the metadata server it drops all pages when the lease time is over.
        let metadata = cluster.stopped(&["meta"]);
        // For long: others do so for a moment.
        let mut waits = BTreeMap::<PathBuf, u32>::new();
        eventually("a thread waits for that page", || {
            let waiting = waiting_threads(pid);
            waits.retain(|thread, _| waiting.contains(thread));
            waiting.into_iter().for_each(|thread| *waits.entry(thread).or_default() += 1);
            waits.values().any(|looks| *looks >= 15)
        });
        kill_process(number, Signal::KILL).unwrap();
        drop(metadata);

        let options = [format!("seek={elsewhere}"), "conv=notrunc,fsync".to_owned()];
        let writer = dd(File::open(news).unwrap().into(), file_b.into(), &options);
        let stuck = Self { at: a.to_owned(), pid, process, servers: Some(servers), reader, writer };
        eventually("it is dead", || state(&format!("/proc/{pid}")) == Some('Z'));
        assert!(!stuck.has_ended(2 * LEASE), "it was not stuck: nothing is shown");
        assert!(!waiting_threads(pid).is_empty());
        (stuck, bytes)
    }

    fn has_ended(&self, within: Duration) -> bool {
        let within = Timespec::try_from(within).unwrap();
        poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&within)).unwrap() > 0
    }

    /// The process ended as the command did, and the reader with it; when the data servers
    /// are back, so does the writer.
    fn is_over(&mut self) {
        assert!(self.has_ended(Duration::ZERO), "it is stuck still");
        assert!(!end_of(&mut self.reader).success(), "nobody can have answered the reader");
        self.servers = None;
        assert!(end_of(&mut self.writer).success());
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        if !self.has_ended(Duration::ZERO) {
            let _ = unmount(&self.at, UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
        self.servers = None;
        for child in [&mut self.reader, &mut self.writer] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Threads that wait in the kernel, where no signal reaches them.
fn waiting_threads(pid: i32) -> Vec<PathBuf> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let waits = |thread: &PathBuf| thread.to_str().and_then(state) == Some('D');
    threads.map(|thread| thread.path()).filter(waits).collect()
}

fn end_of(child: &mut Child) -> ExitStatus {
    let mut end = None;
    eventually("it ends", || {
        end = child.try_wait().unwrap();
        end.is_some()
    });
    end.unwrap()
}

#[test]
fn a_mount_that_was_killed_and_cannot_end_is_named_and_taken_over() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, a, b) = impatient(&place, "over");
    let (mut stuck, bytes) = Stuck::new(&cluster, &a, &b);

    let status = cluster.weir(&["status"]);
    assert_eq!(status.code, Some(1));
    let trouble = format!("TROUBLE: the process of the mount on {}, {},", a.display(), stuck.pid);
    let mut lines = status.out.lines().skip_while(|line| !line.starts_with(&trouble));
    let (named, what_to_do) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(named.contains("cannot end") && what_to_do.contains("weir mount"), "{named}");

    let begin = Instant::now();
    cluster.weir(&["mount", a.to_str().unwrap()]).ok();
    assert!(begin.elapsed() < SOON, "waited {:?}", begin.elapsed());
    assert_ne!(cluster.mount_pid(&a), stuck.pid);
    stuck.is_over();
    for mount in [&a, &b] {
        assert!(fs::read(mount.join("f")).unwrap() == bytes, "at {}", mount.display());
    }
}

#[test]
fn a_mount_that_was_killed_and_cannot_end_is_taken_away() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, a, b) = impatient(&place, "away");
    let (mut stuck, bytes) = Stuck::new(&cluster, &a, &b);
    let at = a.to_str().unwrap();
    let begin = Instant::now();
    cluster.weir(&["umount", at]).ok();
    assert!(begin.elapsed() < SOON, "waited {:?}", begin.elapsed());
    stuck.is_over();
    cluster.weir(&["umount", at]).fails(&["no Weir is mounted here"]);
    cluster.weir(&["mount", at]).ok();
    assert!(fs::read(a.join("f")).unwrap() == bytes);
}
