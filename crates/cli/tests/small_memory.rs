//! All daemons of a cluster in far less memory than the data: they neither
//! grow nor are killed, and the bytes come from the disks.

use crate::harness::{self, Cluster, Place, noise, root};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MEMORY_BYTES: u64 = 256 << 20;
const FILE_BYTES: u64 = 1 << 30;
const BLOCK_BYTES: usize = 1 << 20;

/// A memory cgroup (version 1 or 2); gone when dropped, once it is empty.
struct Group {
    dir: PathBuf,
    second: bool,
}

impl Group {
    /// Nothing where none can be made.
    fn new(name: &str, limit_bytes: u64) -> Option<Self> {
        let name = format!("weir-test-{}-{name}", std::process::id());
        for (root, second) in [("/sys/fs/cgroup/memory", false), ("/sys/fs/cgroup", true)] {
            let group = Self { dir: Path::new(root).join(&name), second };
            let limit = if second { "memory.max" } else { "memory.limit_in_bytes" };
            if Path::new(root).is_dir()
                && fs::create_dir(&group.dir).is_ok()
                && fs::write(group.dir.join(limit), limit_bytes.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        eprintln!("no memory cgroup can be made here: this test checks nothing");
        None
    }

    /// Runs a command, and all that it starts, in the group.
    fn run(&self, mut command: Command) {
        let processes = self.dir.join("cgroup.procs");
        let enter = move || fs::write(&processes, "0");
        // SAFETY: between fork and exec only one file is written; the path was
        // made before.
        unsafe { command.pre_exec(enter) };
        harness::said(command).ok();
    }

    fn number(&self, file: &str) -> u64 {
        fs::read_to_string(self.dir.join(file)).unwrap().trim().parse().unwrap()
    }

    /// The most that was ever used.
    fn most_bytes(&self) -> u64 {
        self.number(if self.second { "memory.peak" } else { "memory.max_usage_in_bytes" })
    }

    /// Processes that were killed for want of memory.
    fn killed(&self) -> u64 {
        let file = if self.second { "memory.events" } else { "memory.oom_control" };
        let text = fs::read_to_string(self.dir.join(file)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.unwrap().trim().parse().unwrap()
    }

    fn processes(&self) -> usize {
        fs::read_to_string(self.dir.join("cgroup.procs")).unwrap().lines().count()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Bytes that a process has had read from disks.
fn disk_bytes(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    line.unwrap().parse().unwrap()
}

fn servers(cluster: &Cluster<'_>) -> Vec<i32> {
    (1..=4).map(|server| cluster.pid(&format!("data-{server}"))).collect()
}

/// A block that is like no other.
fn block(number: u64, noise: &[u8]) -> Vec<u8> {
    let mut block = noise.to_vec();
    for part in block.chunks_exact_mut(4096) {
        part[..8].copy_from_slice(&number.to_le_bytes());
    }
    block
}

#[test]
fn a_gigabyte_goes_through_daemons_that_have_a_quarter_of_it() {
    if !root() {
        return;
    }
    let Some(group) = Group::new("gb", MEMORY_BYTES) else { return };
    let place = Place::new();
    let at = place.path("m");
    let cluster = place.cluster("small");
    let arguments = ["up", "--name", "small", "--targets", "4", "--mount", at.to_str().unwrap()];
    group.run(place.command(&arguments));
    assert!(group.processes() >= 6, "all daemons are in the group");
    let noise = noise(BLOCK_BYTES, 9);
    let blocks = FILE_BYTES / BLOCK_BYTES as u64;

    let begin = Instant::now();
    let mut file = File::create(at.join("big")).unwrap();
    for number in 0..blocks {
        file.write_all(&block(number, &noise)).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    eprintln!("written and synced: {:?}", begin.elapsed());

    // What this machine's memory still holds of the servers' files is let go,
    // and the mount's copy with it: what is read comes from the disks.
    let path = at.to_str().unwrap();
    cluster.weir(&["umount", path]).ok();
    for entry in walk(&cluster.dir().join("targets")) {
        let object = File::open(entry).unwrap();
        rustix::fs::fadvise(&object, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    group.run(cluster.command(&["mount", path]));
    let before: u64 = servers(&cluster).into_iter().map(disk_bytes).sum();
    let mut file = File::open(at.join("big")).unwrap();
    let mut read = vec![0; BLOCK_BYTES];
    for number in 0..blocks {
        file.read_exact(&mut read).unwrap();
        assert!(read == block(number, &noise), "block {number}");
    }
    assert_eq!(file.read(&mut read).unwrap(), 0);
    let from_disk = servers(&cluster).into_iter().map(disk_bytes).sum::<u64>() - before;
    eprintln!("and read: {:?}; {from_disk} bytes from disk", begin.elapsed());
    assert!(from_disk >= FILE_BYTES, "{from_disk} bytes came from the disks");
    assert_eq!(group.killed(), 0);
    assert!(group.most_bytes() <= MEMORY_BYTES);
    drop(file);
    cluster.weir(&["status"]).ok();
    cluster.weir(&["down"]).ok();
}

/// All files below a directory.
fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    let (dirs, mut files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| e.is_dir());
    files.extend(dirs.iter().flat_map(|dir| walk(dir)));
    files
}

/// Sockets and resident memory of a process.
fn holds(pid: i32) -> (usize, u64) {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(Result::ok);
    let links = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
    let sockets = links.filter(|to| to.to_string_lossy().starts_with("socket:")).count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    (sockets, kib << 10)
}

/// Buffers and connections are for as much as is done, and not for as much as ever was.
#[test]
fn a_mount_that_was_busy_gives_back_what_it_does_not_use() {
    if !root() {
        return;
    }
    const WRITERS: usize = 100;
    let place = Place::new();
    let cluster = place.up("idle", &["--targets", "4"]);
    let at = cluster.mount("m", "");
    let pid = cluster.mount_pid(&at);
    fs::write(at.join("first"), noise(100_000, 1)).unwrap();
    let before = holds(pid);
    let together = &std::sync::Barrier::new(WRITERS);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = at.join(format!("f{writer}"));
            scope.spawn(move || {
                let mut file = File::create(path);
                let block = noise(BLOCK_BYTES, writer as u64);
                // None ends before all have written, so that all are busy at once. One that fails
                // goes on to be waited for.
                for _ in 0..6 {
                    file = file.and_then(|mut file| file.write_all(&block).map(|()| file));
                    together.wait();
                }
                file.unwrap().sync_all().unwrap();
            });
        }
    });
    let busy = holds(pid);
    let (begin, mut idle) = (Instant::now(), busy);
    let most = (before.0 + 12, before.1 + (32 << 20));
    while (idle.0 > most.0 || idle.1 > most.1) && begin.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(200));
        idle = holds(pid);
    }
    println!("{before:?} before, {busy:?} busy, {idle:?} after {:?}", begin.elapsed());
    assert!(busy.0 > most.0 && busy.1 > most.1, "it was not busy: {busy:?}");
    assert!(idle.0 <= most.0 && idle.1 <= most.1, "{before:?} before, {idle:?} after");
    assert_eq!(fs::read(at.join("first")).unwrap(), noise(100_000, 1));
}
