//! This program as one of many: reads a file, or perturbs a disk.

use crate::args::{Work, WorkKind};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{Error, Read, Result, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;
use weir_testbed::{
    Network, NfsClient, Reads, Worker, read_around, say_ready, send_through, wait_for_end,
    wait_for_go, write_again,
};

/// Readers say how far they are after so many bytes.
const STEP_BYTES: u64 = 1 << 20;
/// And who perturbs a disk so often, what it has had.
const PERTURBER_STEP: Duration = Duration::from_millis(10);
/// What a writer writes before each sync: 10 MB, in whole pages.
const WRITE_BYTES: usize = 10_002_432;

/// When somebody had so many bytes, by a clock that all processes share.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub at_us: u64,
    pub bytes: u64,
}

pub fn run(work: &Work) -> Result<()> {
    match &work.kind {
        WorkKind::Read { file, call_bytes, from, to } => read(file, *call_bytes, *from..*to),
        WorkKind::Perturb { file, bytes_per_s, turn_ms } => {
            let turn = Duration::from_millis(*turn_ms);
            wait_for_go()?;
            perturb(file, Reads { bytes_per_s: *bytes_per_s, turn })
        }
        WorkKind::Send { network, node, bytes_per_s } => {
            let network = Network::found(network, *node);
            wait_for_go()?;
            until_end(|stopped| send_through(&network, *node, *bytes_per_s, stopped))
        }
        WorkKind::Nfs { server, export, at, uncached } => {
            let client = NfsClient::mount(*server, export, at, !uncached)?;
            say_ready()?;
            wait_for_end();
            drop(client);
            Ok(())
        }
        WorkKind::Write { file } => {
            wait_for_go()?;
            until_end(|stopped| write_again(file, WRITE_BYTES, stopped))
        }
    }
}

/// Works until it is told to end, and says how many bytes that were.
fn until_end(work: impl FnOnce(&AtomicBool) -> Result<u64>) -> Result<()> {
    let stopped = AtomicBool::new(false);
    let bytes = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for_end();
            stopped.store(true, Relaxed);
        });
        work(&stopped)
    })?;
    println!("{bytes}");
    Ok(())
}

/// Reads until it is told to end, and says when it had had how much.
fn perturb(file: &Path, reads: Reads) -> Result<()> {
    let (had, steps) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let step = || Step { at_us: now_us(), bytes: had.load(Relaxed) };
    let note = || steps.lock().unwrap_or_else(PoisonError::into_inner).push(step());
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for_end();
            stopped.store(true, Relaxed);
        });
        scope.spawn(|| {
            while !stopped.load(Relaxed) {
                note();
                sleep(PERTURBER_STEP);
            }
        });
        let read = read_around(file, reads, &had, &stopped);
        // Who has failed is not told to end.
        stopped.store(true, Relaxed);
        read
    })?;
    note();
    print(&steps.into_inner().unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

fn print(steps: &[Step]) {
    steps.iter().for_each(|step| println!("{} {}", step.at_us, step.bytes));
}

/// A command that does such work.
pub fn command(kind: &WorkKind) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("worker");
    match kind {
        WorkKind::Read { file, call_bytes, from, to } => {
            command.arg("read").arg(file).args([call_bytes, from, to].map(u64::to_string));
        }
        WorkKind::Perturb { file, bytes_per_s, turn_ms } => {
            command.arg("perturb").arg(file).args([bytes_per_s, turn_ms].map(u64::to_string));
        }
        WorkKind::Send { network, node, bytes_per_s } => {
            command.args(["send", network]).args([node.to_string(), bytes_per_s.to_string()]);
        }
        WorkKind::Nfs { server, export, at, uncached } => {
            command.args(["nfs", &server.to_string()]).arg(export).arg(at);
            command.args(uncached.then_some("--uncached"));
        }
        WorkKind::Write { file } => {
            command.arg("write").arg(file);
        }
    }
    Ok(command)
}

/// A client of an NFS server, in the network of a node; returns when it is mounted.
pub fn nfs_client(network: &Network, node: u32, mount: WorkKind) -> Result<Worker> {
    let inner = command(&mount)?;
    let mut command = network.command(node, inner.get_program());
    command.args(inner.get_args());
    Worker::start(command)
}

/// The file is open before all begin: opening reads nothing of it.
fn read(path: &Path, call_bytes: u64, range: Range<u64>) -> Result<()> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(range.start))?;
    let mut file = file.take(range.end - range.start);
    let mut buffer = vec![0; call_bytes as usize];
    let mut steps = Vec::new();
    wait_for_go()?;
    let mut step = Step { at_us: now_us(), bytes: 0 };
    steps.push(step);
    let mut bytes = 0;
    loop {
        let n = file.read(&mut buffer)? as u64;
        bytes += n;
        if n == 0 || bytes - step.bytes >= STEP_BYTES {
            step = Step { at_us: now_us(), bytes };
            steps.push(step);
        }
        if n == 0 {
            break;
        }
    }
    print(&steps);
    Ok(())
}

/// What a reader, or who reads to perturb, has said.
pub fn steps(words: &str) -> Result<Vec<Step>> {
    let step = |line: &str| {
        let (at_us, bytes) = line.split_once(' ')?;
        Some(Step { at_us: at_us.parse().ok()?, bytes: bytes.parse().ok()? })
    };
    let steps: Option<Vec<Step>> = words.lines().map(step).collect();
    steps.filter(|steps| steps.len() > 1).ok_or_else(|| Error::other(format!("reader: {words}")))
}

pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}
