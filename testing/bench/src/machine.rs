//! A description of the machine, and its load from other processes.

use crate::failure::{Done, Failure};
use crate::stop;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// The machine, in words.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model and number of processors.
    pub cpus: String,
    /// Kernel.
    pub kernel: String,
    /// Memory, GB.
    pub memory_gb: f64,
    /// The file system of the cluster.
    pub disk: String,
    /// Date and time, UTC.
    pub date: String,
}

impl Machine {
    /// Describes this machine.
    pub fn look(dir: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str| {
            let line = text.lines().find(|l| l.starts_with(key)).unwrap_or("");
            line.split_once(':').map_or(String::new(), |(_, v)| v.trim().to_owned())
        };
        let model = value(&read("/proc/cpuinfo"), "model name");
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = value(&read("/proc/meminfo"), "MemTotal");
        let kib: f64 = memory.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
        Self {
            cpus: format!("{count} × {model}"),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_gb: kib * 1024.0 / 1e9,
            disk: holding(&read("/proc/self/mountinfo"), dir),
            date: today(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpus, kernel, memory_gb, disk, date } = self;
        write!(f, "{cpus}, {memory_gb:.0} GB, Linux {kernel}, {disk}, {date}")
    }
}

/// A lock that keeps a second benchmark on the machine waiting while it is held.
pub fn alone() -> Done<File> {
    let path = std::env::temp_dir().join("weir-bench.lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|e| Failure::file(&path, e))?;
    let locked = || flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    if !locked() {
        eprintln!("weir-bench: another one runs: waiting for it to end");
        stop::wait_until("the other benchmark", Duration::from_secs(1200), locked)?;
    }
    Ok(file)
}

/// Type and device of the file system that contains a directory.
fn holding(table: &str, dir: &Path) -> String {
    let entries = table.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mountpoint = Path::new(left.split(' ').nth(4)?);
        let mut words = right.split(' ');
        let (kind, source) = (words.next()?, words.next()?);
        dir.starts_with(mountpoint)
            .then(|| (mountpoint.components().count(), format!("{kind} on {source}")))
    });
    entries.max_by_key(|(depth, _)| *depth).map_or("unknown disk".into(), |(_, text)| text)
}

fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let days = now.map_or(0, |d| d.as_secs() / 86_400) as i64;
    // Days to a civil date (H. Hinnant): years begin in March.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

/// Counters of the whole machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meters {
    /// CPU seconds of all processes.
    pub busy_s: f64,
    /// Bytes received on the loopback interface.
    pub loopback_bytes: u64,
}

impl Meters {
    /// Reads the counters.
    pub fn read() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks: Vec<u64> = stat
            .lines()
            .next()
            .unwrap_or("")
            .split_whitespace()
            .skip(1)
            .map(|n| n.parse().unwrap_or(0))
            .collect();
        // user, nice, system, irq, softirq; not idle, iowait, steal.
        let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|i| ticks.get(*i)).sum();
        let net = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
        let lo = net.lines().find_map(|l| l.trim_start().strip_prefix("lo:")).unwrap_or("");
        let per_s = rustix::param::clock_ticks_per_second().max(1);
        Self {
            busy_s: busy as f64 / per_s as f64,
            loopback_bytes: lo.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0),
        }
    }
}

/// Bytes that processes have read from disks so far.
pub fn disk_read_bytes(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let table = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        let line = table.lines().find_map(|l| l.strip_prefix("read_bytes: "));
        line.and_then(|n| n.parse().ok()).unwrap_or(0_u64)
    };
    pids.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_holds_a_directory() {
        let table = "1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 0:5 / /tmp rw - tmpfs none rw\n";
        assert_eq!(holding(table, Path::new("/tmp/x")), "tmpfs on none");
        assert_eq!(holding(table, Path::new("/var")), "ext4 on /dev/vda");
    }

    #[test]
    fn the_date_has_the_usual_form() {
        let date = today();
        assert_eq!(date.len(), 10, "{date}");
        assert!(date.as_str() > "2024-01-01", "{date}");
    }
}
