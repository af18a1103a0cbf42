//! `weir testbed perturb`: uses a share of a disk or link, and reports from the kernel's counters
//! how much that was.

use super::failed::failed;
use super::record::{Place, Record};
use crate::args::TestbedPerturb;
use crate::failure::{Done, Failure};
use crate::output::print;
use std::fs::File;
use std::io::{ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use weir_testbed::{Reads, Throttle, read_around, send_through};

/// The bytes of the file that is read again and again: more than any drive caches.
const FILE_BYTES: usize = 8 << 20;
const MB: f64 = 1e6;

/// What was used, and what everyone used.
struct Taken {
    bytes: u64,
    seconds: f64,
    /// The bytes that the kernel counted for all processes in this time.
    counted: u64,
}

/// The pid file of this process. While it exists `weir testbed down` finds the process and ends it.
struct Known(PathBuf);

/// Runs `weir testbed perturb`.
pub fn run(perturb: &TestbedPerturb) -> Done {
    let place = Place::of(&perturb.choice)?;
    let record = place.required()?;
    let _known = Known::to_down(&place)?;
    let text = match (perturb.disk, perturb.link) {
        (Some(node), _) => {
            let rate = record.node(node)?.disk_rate;
            let taken = disk(&place, &record, node, perturb, rate)?;
            let by = own_reads();
            taken.text(&format!("read from the disk of node {node}"), rate, by)
        }
        (None, Some(node)) => {
            record.require(node)?;
            let taken = link(&place, &record, node, perturb)?;
            taken.text(&format!("sent through the link of node {node}"), record.link_rate, None)
        }
        (None, None) => return Err(Failure::new("--disk or --link").code(2)),
    };
    print(&text)
}

impl Known {
    fn to_down(place: &Place) -> Done<Self> {
        let (stat, number) = (Path::new("/proc/self/stat"), std::process::id());
        let text = std::fs::read_to_string(stat).map_err(|e| Failure::file(stat, e))?;
        let since =
            start_ticks(&text).ok_or_else(|| Failure::new("not understood").about(&text))?;
        let file = place.perturber_file(number);
        let written = std::fs::write(&file, format!("{number} {since}\n"));
        written.map(|()| Self(file.clone())).map_err(|e| Failure::file(&file, e))
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        match std::fs::remove_file(&self.0) {
            // `weir testbed down` has removed the file.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => Failure::file(&self.0, e).say(),
            Ok(()) => {}
        }
    }
}

/// The start time of a process, field 22 of its stat. The name in field 2 may contain anything
/// within its parentheses.
fn start_ticks(stat: &str) -> Option<u64> {
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(22 - 3)?.parse().ok()
}

impl Taken {
    fn text(&self, what: &str, rate: u64, own: Option<u64>) -> String {
        let (mb, second) = (self.bytes as f64 / MB, self.bytes as f64 / self.seconds);
        let part = 100.0 * second / rate as f64;
        let own = own.map(|own| format!(", {:.1} MB of it to this process", own as f64 / MB));
        format!(
            "{mb:.1} MB {what} in {:.1} s: {:.2} MB/s, {part:.0} % of its rate\nthe kernel \
             counted {:.1} MB there meanwhile{}\n",
            self.seconds,
            second / MB,
            self.counted as f64 / MB,
            own.unwrap_or_default(),
        )
    }
}

/// Reads from a node's disk at a given rate: in the group of the data servers, or through the model
/// of the disk's head.
fn disk(
    place: &Place,
    record: &Record,
    node: u32,
    perturb: &TestbedPerturb,
    rate: u64,
) -> Done<Taken> {
    let path = place.disk(node).join("perturbed");
    make_file(&path).map_err(|e| Failure::file(&path, e))?;
    if record.node(node)?.drive.is_none() {
        let group = Throttle::found(&place.name()).map_err(failed)?;
        group.add(std::process::id().cast_signed()).map_err(failed)?;
    }
    let count = || Ok(record.disk_counts(place, node)?.read_bytes);
    let reads = Reads { bytes_per_s: part(rate, perturb.share), turn: Duration::ZERO };
    timed(perturb.seconds, count, |stopped| read_around(&path, reads, &AtomicU64::new(0), stopped))
}

fn link(place: &Place, record: &Record, node: u32, perturb: &TestbedPerturb) -> Done<Taken> {
    let network = record.network(place);
    let count = || Ok(network.counts(node).map_err(failed)?.out_bytes);
    let pace = part(record.link_rate, perturb.share);
    timed(perturb.seconds, count, |stopped| send_through(&network, node, pace, stopped))
}

fn part(rate: u64, percent: u64) -> u64 {
    rate * percent / 100
}

/// Does something for a number of seconds.
fn timed(
    seconds: u64,
    count: impl Fn() -> Done<u64>,
    work: impl FnOnce(&AtomicBool) -> Result<u64> + Send,
) -> Done<Taken> {
    let (before, begin) = (count()?, Instant::now());
    let stopped = AtomicBool::new(false);
    let bytes = scope(|scope| {
        let worker = scope.spawn(|| work(&stopped));
        while begin.elapsed() < Duration::from_secs(seconds) && !worker.is_finished() {
            sleep(Duration::from_millis(50));
        }
        stopped.store(true, Relaxed);
        worker.join()
    });
    let bytes = bytes.map_err(|_| Failure::new("a thread has panicked"))?.map_err(failed)?;
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Taken { bytes, seconds, counted: count()?.saturating_sub(before) })
}

/// Makes the file to read if it is missing. It is on the disk afterwards.
fn make_file(path: &Path) -> Result<()> {
    if path.metadata().is_ok_and(|file| file.len() == FILE_BYTES as u64) {
        return Ok(());
    }
    let mut file = File::create(path)?;
    file.write_all(&vec![0x5a; FILE_BYTES])?;
    file.sync_all()
}

/// The bytes that this process read from disks, if the kernel counts them.
fn own_reads() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")).and_then(|n| n.parse().ok())
}
