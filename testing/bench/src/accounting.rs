//! CPU time by group of processes: from own control groups if they can be made (nanoseconds in
//! version 1, microseconds in version 2), otherwise from the scheduler's figures in `/proc`.

use crate::failure::{Done, Failure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A group of processes whose CPU time is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Data servers.
    Data,
    /// The metadata server.
    Meta,
    /// Mounts.
    Mount,
    /// Load generators with the client library.
    Library,
    /// Load generators with POSIX calls.
    Posix,
    /// Raw servers.
    RawServer,
    /// Raw clients.
    RawClient,
    /// The trivial FUSE server.
    RawFuse,
}

impl Group {
    /// All groups.
    pub const ALL: [Group; 8] = [
        Group::Data,
        Group::Meta,
        Group::Mount,
        Group::Library,
        Group::Posix,
        Group::RawServer,
        Group::RawClient,
        Group::RawFuse,
    ];

    /// A short name.
    pub fn name(self) -> &'static str {
        match self {
            Group::Data => "data",
            Group::Meta => "meta",
            Group::Mount => "mount",
            Group::Library => "library",
            Group::Posix => "app",
            Group::RawServer => "server",
            Group::RawClient => "client",
            Group::RawFuse => "fuse",
        }
    }
}

#[derive(Debug)]
enum Source {
    /// `cpuacct.usage` below this directory.
    CpuAcct(PathBuf),
    /// `cpu.stat` below this directory.
    Unified(PathBuf),
    /// `/proc/PID/task/*/schedstat`.
    Proc,
}

/// Adds up CPU. Removes its control groups when it is dropped.
#[derive(Debug)]
pub struct Accounting {
    source: Source,
    pids: BTreeMap<Group, Vec<u32>>,
}

/// CPU seconds of each group up to a moment.
pub type Snapshot = BTreeMap<Group, f64>;

impl Accounting {
    /// Uses the best source of this machine.
    pub fn new() -> Self {
        let own = format!("weir-bench-{}", std::process::id());
        let cpuacct = Path::new("/sys/fs/cgroup/cpuacct").join(&own);
        let unified = Path::new("/sys/fs/cgroup").join(&own);
        let made = |dir: &Path, file: &str| {
            let all =
                Group::ALL.iter().all(|g| std::fs::create_dir_all(dir.join(g.name())).is_ok());
            let usable = all && dir.join(Group::Data.name()).join(file).is_file();
            if !usable {
                remove_groups(dir);
            }
            usable
        };
        let source =
            if Path::new("/sys/fs/cgroup/cpuacct").is_dir() && made(&cpuacct, "cpuacct.usage") {
                Source::CpuAcct(cpuacct)
            } else if Path::new("/sys/fs/cgroup/cgroup.controllers").is_file()
                && made(&unified, "cpu.stat")
            {
                Source::Unified(unified)
            } else {
                Source::Proc
            };
        Self { source, pids: BTreeMap::new() }
    }

    /// A description of the source.
    pub fn describe(&self) -> String {
        match &self.source {
            Source::CpuAcct(dir) => format!("CPU from cpuacct control groups {}", dir.display()),
            Source::Unified(dir) => format!("CPU from control groups {} (v2)", dir.display()),
            Source::Proc => "CPU from /proc/PID/task/*/schedstat (no control group can be made; \
                             threads that ended are missed)"
                .into(),
        }
    }

    /// A command that runs this program in a group.
    pub fn command(&self, group: Group, program: &Path) -> Done<Command> {
        let procs = match &self.source {
            Source::CpuAcct(dir) | Source::Unified(dir) => {
                dir.join(group.name()).join("cgroup.procs")
            }
            Source::Proc => return Ok(Command::new(program)),
        };
        let this =
            std::env::current_exe().map_err(|e| Failure::system("finding this program", e))?;
        let mut command = Command::new(this);
        command.arg("in-group").arg(procs).arg("--").arg(program);
        Ok(command)
    }

    /// Adds a process to a group.
    pub fn adopt(&mut self, group: Group, pid: u32) -> Done {
        self.pids.entry(group).or_default().push(pid);
        match &self.source {
            Source::CpuAcct(dir) | Source::Unified(dir) => {
                let procs = dir.join(group.name()).join("cgroup.procs");
                std::fs::write(&procs, pid.to_string()).map_err(|e| Failure::file(&procs, e))
            }
            Source::Proc => Ok(()),
        }
    }

    /// Removes a process that has ended.
    pub fn forget(&mut self, group: Group, pid: u32) {
        if let Some(pids) = self.pids.get_mut(&group) {
            pids.retain(|p| *p != pid);
        }
    }

    /// CPU seconds of each group so far.
    pub fn snapshot(&self) -> Snapshot {
        Group::ALL.iter().map(|group| (*group, self.cpu_s(*group))).collect()
    }

    fn cpu_s(&self, group: Group) -> f64 {
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        match &self.source {
            Source::CpuAcct(dir) => {
                let ns: f64 = read(dir.join(group.name()).join("cpuacct.usage"))
                    .trim()
                    .parse()
                    .unwrap_or(0.0);
                ns / 1e9
            }
            Source::Unified(dir) => {
                let table = read(dir.join(group.name()).join("cpu.stat"));
                let us = table.lines().find_map(|l| l.strip_prefix("usage_usec "));
                us.and_then(|us| us.trim().parse::<f64>().ok()).unwrap_or(0.0) / 1e6
            }
            Source::Proc => {
                let pids = self.pids.get(&group).map_or(&[][..], Vec::as_slice);
                pids.iter().map(|pid| process_cpu_ns(*pid)).sum::<u64>() as f64 / 1e9
            }
        }
    }
}

/// CPU time of all living threads of a process.
fn process_cpu_ns(pid: u32) -> u64 {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let times = tasks.flatten().map(|task| {
        let line = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        line.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0_u64)
    });
    times.sum()
}

fn remove_groups(dir: &Path) {
    // A group that still has processes cannot be removed, and stays.
    for group in Group::ALL {
        let _ = std::fs::remove_dir(dir.join(group.name()));
    }
    let _ = std::fs::remove_dir(dir);
}

impl Drop for Accounting {
    fn drop(&mut self) {
        if let Source::CpuAcct(dir) | Source::Unified(dir) = &self.source {
            remove_groups(dir);
        }
    }
}

/// Joins a control group and executes the command.
pub fn exec_in_group(group: &Path, command: &[OsString]) -> Done {
    std::fs::write(group, std::process::id().to_string()).map_err(|e| Failure::file(group, e))?;
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::other("no command"));
    };
    let error = Command::new(program).args(arguments).exec();
    Err(Failure::file(Path::new(program), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_this_process_is_counted() {
        let before = process_cpu_ns(std::process::id());
        let mut x = 1_u64;
        for i in 0..20_000_000_u64 {
            x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(i));
        }
        std::thread::yield_now();
        assert!(process_cpu_ns(std::process::id()) > before, "{x}");
    }
}
