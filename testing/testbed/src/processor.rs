//! The processor of a node: what a group of processes may have of one core.

use crate::group::Group;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// `cpu` of cgroup v1.
const ROOT: &str = "/sys/fs/cgroup/cpu";
const QUOTA: &str = "cpu.cfs_quota_us";
const PERIOD: &str = "cpu.cfs_period_us";
/// The group has this much in each period, the least that the kernel takes; periods are as long as
/// its share asks for.
const QUOTA_US: u64 = 1_000;
/// A second, which is the longest period.
const MAX_PERIOD_US: u64 = 1_000_000;
/// A whole core.
const CORE: u32 = 1_000;

/// What is missing to limit processors; `None`: nothing.
pub fn missing() -> Option<&'static str> {
    let found = Path::new(ROOT).join(PERIOD).exists();
    (!found).then_some("the cpu controller of cgroup v1")
}

/// A group of processes. Dropped, they are free again.
#[derive(Debug)]
pub struct Processor {
    group: Group,
}

impl Processor {
    /// A group of this name without a limit.
    ///
    /// # Errors
    /// There is one such group already; what the system says.
    pub fn new(name: &str) -> Result<Self> {
        Ok(Self { group: Group::new(ROOT, name)? })
    }

    /// From now on the group has so many thousandths of a core; `None`: as much as there is.
    ///
    /// # Errors
    /// Not 1 to 1000; what the system says.
    pub fn limit(&self, thousandths: Option<u32>) -> Result<()> {
        let Some(share) = thousandths else { return self.group.set(QUOTA, -1) };
        if !(1..=CORE).contains(&share) {
            return Err(Error::other(format!("{share} is no part of {CORE}")));
        }
        self.group.set(PERIOD, (QUOTA_US * u64::from(CORE / share)).min(MAX_PERIOD_US))?;
        self.group.set(QUOTA, QUOTA_US)
    }

    /// Takes a process in, with all its threads.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&self, process: i32) -> Result<()> {
        self.group.add(process)
    }

    /// The file to which a process writes 0 to get in.
    pub fn members(&self) -> PathBuf {
        self.group.members()
    }

    /// For how long so far threads of the group could have run, but had had their share.
    ///
    /// # Errors
    /// What the system says.
    pub fn waited_seconds(&self) -> Result<f64> {
        let said = self.group.get("cpu.stat")?;
        let nanoseconds = said.lines().find_map(|line| line.strip_prefix("throttled_time "));
        let nanoseconds = nanoseconds.and_then(|number| number.parse::<u64>().ok());
        let nanoseconds = nanoseconds.ok_or_else(|| Error::other(format!("cpu.stat: {said}")))?;
        Ok(nanoseconds as f64 / 1e9)
    }
}
