//! The mixed load of one mount while its cluster fails: a process of its own, this test
//! binary started again. It remembers all that was acknowledged, and verifies it.

mod files;
mod judge;
mod known;
mod policy;
mod shared;

pub use policy::Policy;

use crate::harness::again;
use files::Files;
use judge::Judge;
use shared::{Appender, BoardReader, BoardWriter};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A directory of the file system.
pub struct Directory {
    pub name: &'static str,
    /// How many copies its files have.
    pub copies: u64,
    /// Ways to keep them the same, one of which a run has.
    pub protocols: &'static [&'static str],
    /// How many copies what is acknowledged is on: what one copy alone has waits for that
    /// one, and is lost with it.
    pub safe: u64,
}

const SYNC: &[&str] = &["server-sync", "client-sync"];
const ASYNC: &[&str] = &["server-async", "client-async", "hybrid"];

/// Those where a failure of one machine is felt come first.
pub const DIRECTORIES: [Directory; 4] = [
    Directory { name: "one", copies: 1, protocols: SYNC, safe: 1 },
    Directory { name: "async", copies: 2, protocols: ASYNC, safe: 1 },
    Directory { name: "two", copies: 2, protocols: SYNC, safe: 2 },
    Directory { name: "three", copies: 3, protocols: SYNC, safe: 3 },
];
const BOARD_SLOTS: u64 = 8;
/// Between two calls: two cores serve all of this.
const PACE: Duration = Duration::from_millis(10);

/// A running load, as the test sees it.
pub struct MountLoad {
    child: Child,
    base: PathBuf,
}

/// Makes what the loads share.
pub fn prepare(mount: &Path) {
    let board = vec![0; BOARD_SLOTS as usize * 2 * 4096];
    fs::write(mount.join("two/board"), board).unwrap();
    fs::write(mount.join("three/log"), "").unwrap();
}

impl MountLoad {
    /// Starts that of a mount, the first or the second; `base` is a path for its files on
    /// the local disk.
    pub fn start(mount: &Path, number: u64, base: &Path, policy: &Path, seed: u64) -> Self {
        let base = base.join(format!("load-{number}"));
        let log = File::create(base.with_extension("log")).unwrap();
        let mut command = again("kills::load_process");
        command.env("WEIR_LOAD_MOUNT", mount).env("WEIR_LOAD_BASE", &base);
        command.env("WEIR_LOAD_POLICY", policy).env("WEIR_LOAD_NUMBER", number.to_string());
        command.env("WEIR_LOAD_SEED", seed.to_string());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Self { child, base }
    }

    /// How often each worker has done its step, and the pause that it has come to.
    pub fn done(&self) -> Vec<(u64, u64)> {
        let text = fs::read_to_string(self.base.with_extension("done")).unwrap_or_default();
        let pair = |line: &str| {
            let (steps, pause) = line.split_once(' ')?;
            Some((steps.parse().ok()?, pause.parse().ok()?))
        };
        text.lines().map_while(pair).collect()
    }

    /// What it has said, and what it waits for.
    pub fn log(&self) -> String {
        let read = |extension| fs::read_to_string(self.base.with_extension(extension));
        read("log").unwrap_or_default() + &read("stuck").unwrap_or_default()
    }

    /// Fails if it has ended.
    pub fn check(&mut self) {
        if self.child.try_wait().unwrap().is_some() {
            panic!("a load has failed:\n{}", self.log());
        }
    }

    /// What its workers had when they paused: path, length and checksum of each file.
    pub fn manifest(&self) -> Vec<String> {
        let text = fs::read_to_string(self.base.with_extension("manifest")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// After it was told to stop.
    pub fn finish(&mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "a load has failed:\n{}", self.log());
    }
}

impl Drop for MountLoad {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Step, and verify everything.
type Worker = (Box<dyn FnMut() + Send>, Box<dyn FnMut() -> Vec<String> + Send>);

struct Progress {
    steps: AtomicU64,
    paused: AtomicU64,
}

/// Runs as a load if this process was started as one.
pub fn run_if_asked() -> bool {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let Some(policy) = path("WEIR_LOAD_POLICY") else { return false };
    let (mount, base) = (path("WEIR_LOAD_MOUNT").unwrap(), path("WEIR_LOAD_BASE").unwrap());
    run(&mount, &base, &policy, number("WEIR_LOAD_NUMBER"), number("WEIR_LOAD_SEED"));
    true
}

fn run(mount: &Path, base: &Path, policy: &Path, number: u64, seed: u64) {
    let workers = workers(mount, base, policy, number, seed);
    let progress: Vec<Progress> =
        workers.iter().map(|_| Progress { steps: 0.into(), paused: 0.into() }).collect();
    let manifests = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        let run = |(worker, progress)| {
            let manifests = &manifests;
            scope.spawn(move || work(worker, progress, policy, manifests))
        };
        let running: Vec<_> = workers.into_iter().zip(&progress).map(run).collect();
        while !running.iter().any(thread::ScopedJoinHandle::is_finished) {
            report(base, &progress, &manifests.lock().unwrap());
            thread::sleep(Duration::from_millis(50));
        }
        // One that has failed ends them all, at once: it has said why.
        if !Policy::read(policy).stop {
            std::process::exit(1);
        }
    });
}

fn report(base: &Path, progress: &[Progress], manifest: &[String]) {
    let replace = |extension: &str, text: String| {
        let next = base.with_extension("next");
        fs::write(&next, text).unwrap();
        fs::rename(next, base.with_extension(extension)).unwrap();
    };
    let all = progress.iter().map(|p| {
        let paused = p.paused.load(Ordering::SeqCst);
        format!("{} {paused}", p.steps.load(Ordering::SeqCst))
    });
    let all = all.collect::<Vec<_>>().join("\n");
    replace("stuck", judge::stuck());
    replace("manifest", manifest.join("\n"));
    replace("done", all + "\n");
}

fn work(
    worker: Worker,
    progress: &Progress,
    policy: &Path,
    manifests: &std::sync::Mutex<Vec<String>>,
) {
    let (mut step, mut verify) = worker;
    loop {
        let now = Policy::read(policy);
        if now.stop {
            return;
        }
        let paused = progress.paused.load(Ordering::SeqCst);
        if now.pause > paused {
            let manifest = verify();
            manifests.lock().unwrap().extend(manifest);
            progress.paused.store(now.pause, Ordering::SeqCst);
        } else if now.pause == 0 {
            if paused > 0 {
                manifests.lock().unwrap().clear();
                progress.paused.store(0, Ordering::SeqCst);
            }
            step();
            progress.steps.fetch_add(1, Ordering::SeqCst);
        }
        thread::sleep(PACE);
    }
}

fn workers(mount: &Path, base: &Path, policy: &Path, number: u64, seed: u64) -> Vec<Worker> {
    let judge = |copies| Judge::new(policy.to_owned(), copies);
    let mut workers: Vec<Worker> = Vec::new();
    for (i, directory) in (1..).zip(DIRECTORIES) {
        let dir = mount.join(directory.name).join(format!("by-{number}"));
        fs::create_dir(&dir).unwrap();
        let files = Files::new(dir, judge(directory.safe), seed + 10 * number + i);
        let (files, again) = share(files);
        workers.push((
            Box::new(move || files.lock().unwrap().step()),
            Box::new(move || again.lock().unwrap().verify()),
        ));
    }
    let (board, mine) = (mount.join("two/board"), base.with_extension("board"));
    let other = base.with_file_name(format!("load-{}.board", 3 - number));
    let first = |number: u64| (number - 1) * BOARD_SLOTS;
    let mut writer = BoardWriter::new(&board, &mine, first(number), judge(2), seed + 5);
    workers.push((Box::new(move || writer.step()), Box::new(Vec::new)));
    let mut reader = BoardReader::new(&board, &other, first(3 - number), judge(2), seed + 6);
    workers.push((Box::new(move || reader.step()), Box::new(Vec::new)));
    let log = mount.join("three/log");
    let (appender, again) = share(Appender::new(&log, number, judge(3)));
    workers.push((
        Box::new(move || appender.lock().unwrap().step()),
        Box::new(move || {
            again.lock().unwrap().verify(&log);
            Vec::new()
        }),
    ));
    workers
}

fn share<T>(
    value: T,
) -> (std::sync::Arc<std::sync::Mutex<T>>, std::sync::Arc<std::sync::Mutex<T>>) {
    let shared = std::sync::Arc::new(std::sync::Mutex::new(value));
    (std::sync::Arc::clone(&shared), shared)
}
