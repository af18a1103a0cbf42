//! Time until everything has two copies again after a server is lost for good, and whether the
//! other servers share the work (`weir-bench redundancy`).

use crate::accounting::{Accounting, Group};
use crate::args::Redundancy;
use crate::cluster::Cluster;
use crate::failure::{Done, Failure};
use crate::files::Files;
use crate::library::Library;
use crate::machine::disk_read_bytes;
use crate::stop;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A server that is away for this long counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(2);
/// Maximum time of the whole measurement.
const PATIENCE: Duration = Duration::from_secs(3600);
const LOST: &str = "data-1";
const FILE_BYTES: u64 = 64 << 20;
const CALL_BYTES: usize = 4 << 20;
const SMALL_BYTES: usize = 4 << 10;
const THREADS: u64 = 4;
const CLIENT_BYTES: usize = 256 << 10;
const CLIENT_CALLS: u64 = 256;

/// The result for one kind of files.
#[derive(Debug, Serialize)]
struct Found {
    what: String,
    /// Seconds from the kill to the map that has the server offline.
    missed_after_s: f64,
    /// Seconds from the kill until all copies exist.
    redundant_after_s: f64,
    copies: u64,
    bytes: u64,
    bytes_per_s: f64,
    /// CPU time of data servers and metadata server for each 10^9 bytes.
    cpu_s_per_gb: f64,
    disk_read_bytes: u64,
    /// Rates of clients before the kill, and during the rebuild, if there are clients.
    clients_bytes_per_s: Option<(f64, f64)>,
    /// Bytes that each remaining server has sent and written.
    sent_bytes: BTreeMap<String, u64>,
    written_bytes: BTreeMap<String, u64>,
}

/// Measures it, and prints the result.
pub fn run(arguments: &Redundancy, weir: &Path, dir: &Path) -> Done {
    let mut all = Vec::new();
    if arguments.size > 0 {
        let what = format!("{} MiB in files of {} MiB", arguments.size >> 20, FILE_BYTES >> 20);
        all.push(measure(arguments, weir, dir, what, |library| {
            in_threads(arguments.size / FILE_BYTES, |n| {
                let data = vec![n as u8; CALL_BYTES];
                library.write_file(&format!("two/big-{n}"), &data, FILE_BYTES)
            })
        })?);
    }
    if arguments.files > 0 {
        let what = format!("{} files of {} KiB", arguments.files, SMALL_BYTES >> 10);
        all.push(measure(arguments, weir, dir, what, |library| {
            in_threads(arguments.files, |n| {
                let data = vec![n as u8; SMALL_BYTES];
                library.write_file(&format!("two/small-{n}"), &data, SMALL_BYTES as u64)
            })
        })?);
    }
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&all).map_err(|e| Failure::other(e.to_string()))?;
        std::fs::write(path, json).map_err(|e| Failure::file(path, e))?;
    }
    Ok(())
}

fn in_threads(count: u64, make: impl Fn(u64) -> Done + Sync) -> Done {
    std::thread::scope(|scope| {
        let work = |first| {
            let make = &make;
            scope.spawn(move || {
                (first..count).step_by(THREADS as usize).try_for_each(|n| {
                    stop::check()?;
                    make(n)
                })
            })
        };
        let all: Vec<_> = (0..THREADS).map(work).collect();
        all.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::other("a thread has panicked")))
        })
    })
}

fn measure(
    arguments: &Redundancy,
    weir: &Path,
    dir: &Path,
    what: String,
    fill: impl FnOnce(&Library) -> Done,
) -> Done<Found> {
    let place = tempfile::Builder::new()
        .prefix("weir-bench-")
        .tempdir_in(dir)
        .map_err(|e| Failure::file(dir, e))?;
    let mut accounting = Accounting::new();
    let mut cluster =
        Cluster::start(weir, place.path(), arguments.targets.into(), &mut accounting)?;
    let lost_after_ms = LOST_AFTER.as_millis().to_string();
    let mut settings = vec![("rebuild_after_ms", lost_after_ms)];
    settings.extend(arguments.busy_percent.map(|n| ("rebuild_busy_percent", n.to_string())));
    cluster.configure("meta", &settings, &mut accounting)?;
    cluster.make_mirrored("two", "server-sync")?;
    cluster.place("two", &arguments.placement)?;
    let Redundancy { targets, placement, .. } = arguments;
    println!("{what}, two copies each ({placement}), on {targets} servers");
    let library = Library::connect(&cluster.credential(), true)?;
    let begin = Instant::now();
    fill(&library)?;
    println!("  written within {:.1} s", begin.elapsed().as_secs_f64());
    // Writes dirty pages to disk first: the servers would otherwise share it with them.
    rustix::fs::sync();
    let clients = Clients::start(&library, arguments.clients)?;
    let rate_before = clients.rate(|| {
        // Any time will do while nothing fails.
        if arguments.clients > 0 {
            std::thread::sleep(Duration::from_secs(5));
        }
        Ok(())
    })?;
    let before = Counters::of(&cluster.status()?);
    let (cpu, read) = (cpu_s(&accounting), disk_read_bytes(cluster.data_pids()));
    cluster.kill(LOST)?;
    let begin = Instant::now();
    let mut copies = 0;
    // Until then requests for files of the server wait, with or without a rebuild.
    stop::wait_until("the server is missed", PATIENCE, || is_missed(&cluster))?;
    let missed_after_s = begin.elapsed().as_secs_f64();
    let rate_meanwhile = clients.rate(|| {
        stop::wait_until("all copies are there again", PATIENCE, || {
            let status = cluster.status().unwrap_or_default();
            let of = |name: &str| status["copies"][name].as_u64().unwrap_or(0);
            copies = copies.max(of("copies_done"));
            let looks = status["copies"]["looking"] == true;
            copies > 0 && !looks && of("filling") + of("copies_to_do") == 0
        })
    })?;
    let redundant_after_s = begin.elapsed().as_secs_f64();
    clients.end()?;
    let cpu_s = cpu_s(&accounting) - cpu;
    let disk_read_bytes = disk_read_bytes(cluster.data_pids()).saturating_sub(read);
    let after = Counters::of(&cluster.status()?);
    let (sent_bytes, written_bytes) = (after.sent(&before), after.written(&before));
    let bytes: u64 = sent_bytes.values().sum();
    let found = Found {
        what,
        missed_after_s,
        redundant_after_s,
        copies,
        bytes,
        bytes_per_s: bytes as f64 / (redundant_after_s - missed_after_s),
        cpu_s_per_gb: cpu_s * 1e9 / bytes.max(1) as f64,
        disk_read_bytes,
        clients_bytes_per_s: (arguments.clients > 0).then_some((rate_before, rate_meanwhile)),
        sent_bytes,
        written_bytes,
    };
    found.print();
    Ok(found)
}

fn is_missed(cluster: &Cluster) -> bool {
    let status = cluster.status().unwrap_or_default();
    let targets = status["targets"].as_array();
    targets.is_some_and(|all| all.iter().any(|target| target["state"] == "offline"))
}

/// Clients with files of their own: each writes and reads its file repeatedly.
struct Clients {
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Done>>,
}

impl Clients {
    fn start(library: &Library, count: u8) -> Done<Self> {
        let (stop, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let start = |n: u8| {
            let (library, stop, bytes) = (library.clone(), stop.clone(), bytes.clone());
            std::thread::spawn(move || use_file(&library, n, &stop, &bytes))
        };
        let threads = (0..count).map(start).collect();
        Ok(Self { stop, bytes, threads })
    }

    /// Bytes per second during a wait.
    fn rate(&self, wait: impl FnOnce() -> Done) -> Done<f64> {
        let (before, begin) = (self.bytes.load(Ordering::Relaxed), Instant::now());
        wait()?;
        let bytes = self.bytes.load(Ordering::Relaxed) - before;
        Ok(bytes as f64 / begin.elapsed().as_secs_f64())
    }

    fn end(self) -> Done {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::other("a client has panicked")))
        })
    }
}

fn use_file(library: &Library, n: u8, stop: &AtomicBool, bytes: &AtomicU64) -> Done {
    let file = library.open_write(&format!("two/used-{n}"))?;
    let mut data = vec![n; CLIENT_BYTES];
    let mut call = 0;
    while !stop.load(Ordering::Relaxed) {
        let offset = call / 2 % CLIENT_CALLS * data.len() as u64;
        match call % 2 {
            0 => library.write(&file, offset, &data)?,
            _ => drop(library.read(&file, offset, &mut data)?),
        }
        bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        call += 1;
    }
    library.close(file)
}

fn cpu_s(accounting: &Accounting) -> f64 {
    let all = accounting.snapshot();
    [Group::Data, Group::Meta].iter().filter_map(|group| all.get(group)).sum()
}

/// For each data server, the bytes that it has sent to others for their repair, and the bytes that
/// it has written.
struct Counters(BTreeMap<String, (u64, u64)>);

impl Counters {
    fn of(status: &Value) -> Self {
        let servers = status["servers"].as_object().into_iter().flatten();
        let data = servers.filter(|(name, _)| name.starts_with("data") && *name != LOST);
        let pair = |(name, server): (&String, &Value)| {
            let counter = |name: &str| server["counters"][name].as_u64().unwrap_or(0);
            (name.clone(), (counter("bytes.resynced"), counter("bytes.written")))
        };
        Self(data.map(pair).collect())
    }

    fn since(&self, before: &Self, of: impl Fn(&(u64, u64)) -> u64) -> BTreeMap<String, u64> {
        let old = |name: &String| before.0.get(name).map_or(0, &of);
        self.0.iter().map(|(name, now)| (name.clone(), of(now) - old(name))).collect()
    }

    fn sent(&self, before: &Self) -> BTreeMap<String, u64> {
        self.since(before, |pair| pair.0)
    }

    fn written(&self, before: &Self) -> BTreeMap<String, u64> {
        self.since(before, |pair| pair.1)
    }
}

impl Found {
    fn print(&self) {
        println!(
            "  missed after {:.1} s; redundant again {:.1} s after the kill: {} copies, {:.0} MB, \
             {:.0} MB/s, {:.2} CPU s/GB; {:.0} MB read from disks",
            self.missed_after_s,
            self.redundant_after_s,
            self.copies,
            self.bytes as f64 / 1e6,
            self.bytes_per_s / 1e6,
            self.cpu_s_per_gb,
            self.disk_read_bytes as f64 / 1e6,
        );
        if let Some((before, meanwhile)) = self.clients_bytes_per_s {
            println!(
                "  clients: {:.0} MB/s before, {:.0} MB/s while copies are made",
                before / 1e6,
                meanwhile / 1e6
            );
        }
        for (what, shares) in [("sent", &self.sent_bytes), ("written", &self.written_bytes)] {
            let text: Vec<String> = shares
                .iter()
                .map(|(name, bytes)| format!("{name} {:.0}", *bytes as f64 / 1e6))
                .collect();
            println!(
                "  {what} (MB): {}; from even by {:.1} % at the most",
                text.join(", "),
                100.0 * uneven(shares)
            );
        }
    }
}

/// The largest relative deviation from the mean.
fn uneven(shares: &BTreeMap<String, u64>) -> f64 {
    let mean = shares.values().sum::<u64>() as f64 / shares.len().max(1) as f64;
    let far = shares.values().map(|bytes| (*bytes as f64 - mean).abs()).fold(0.0, f64::max);
    if mean > 0.0 { far / mean } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_compared_with_their_mean() {
        let shares = |bytes: &[u64]| {
            let all = bytes.iter().enumerate();
            all.map(|(n, bytes)| (n.to_string(), *bytes)).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(uneven(&shares(&[])), 0.0);
        assert_eq!(uneven(&shares(&[0, 0])), 0.0);
        assert!((uneven(&shares(&[90, 100, 110])) - 0.1).abs() < 1e-9);
    }
}
