//! The processor of a node: limits the CPU share of a group of processes.

use crate::group::Group;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// `cpu` of cgroup v1.
const ROOT: &str = "/sys/fs/cgroup/cpu";
const QUOTA: &str = "cpu.cfs_quota_us";
const PERIOD: &str = "cpu.cfs_period_us";
/// CPU time of the group in each period, the minimum that the kernel accepts. The length of periods
/// follows from the share.
const QUOTA_US: u64 = 1_000;
/// The longest period: one second.
const MAX_PERIOD_US: u64 = 1_000_000;
/// A whole core.
const CORE: u32 = 1_000;

/// What is missing to limit processors; `None`: nothing.
pub fn missing() -> Option<&'static str> {
    let found = Path::new(ROOT).join(PERIOD).exists();
    (!found).then_some("the cpu controller of cgroup v1")
}

/// A group of processes. When it is dropped, they are no longer limited.
#[derive(Debug)]
pub struct Processor {
    group: Group,
}

impl Processor {
    /// Makes a group with this name, without a limit.
    ///
    /// # Errors
    /// The group exists already; errors of the system.
    pub fn new(name: &str) -> Result<Self> {
        Ok(Self { group: Group::new(ROOT, name)? })
    }

    /// Limits the group to this many thousandths of a core; `None`: no limit.
    ///
    /// # Errors
    /// Not 1 to 1000; errors of the system.
    pub fn limit(&self, thousandths: Option<u32>) -> Result<()> {
        let Some(share) = thousandths else { return self.group.set(QUOTA, -1) };
        if !(1..=CORE).contains(&share) {
            return Err(Error::other(format!("{share} is no part of {CORE}")));
        }
        self.group.set(PERIOD, (QUOTA_US * u64::from(CORE / share)).min(MAX_PERIOD_US))?;
        self.group.set(QUOTA, QUOTA_US)
    }

    /// Adds a process with all of its threads.
    ///
    /// # Errors
    /// Those of the system.
    pub fn add(&self, process: i32) -> Result<()> {
        self.group.add(process)
    }

    /// The file to which a process writes 0 to join.
    pub fn members(&self) -> PathBuf {
        self.group.members()
    }

    /// Total time that threads of the group were runnable but had used up their share.
    ///
    /// # Errors
    /// Those of the system.
    pub fn waited_seconds(&self) -> Result<f64> {
        let said = self.group.get("cpu.stat")?;
        let nanoseconds = said.lines().find_map(|line| line.strip_prefix("throttled_time "));
        let nanoseconds = nanoseconds.and_then(|number| number.parse::<u64>().ok());
        let nanoseconds = nanoseconds.ok_or_else(|| Error::other(format!("cpu.stat: {said}")))?;
        Ok(nanoseconds as f64 / 1e9)
    }
}
