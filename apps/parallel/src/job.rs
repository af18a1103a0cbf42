//! The processes of a job. They exchange messages through files in a directory, which the first
//! process removes at the end. A launcher tells them their ranks; no MPI library is needed.
//!
//! Invariants
//! - A process takes part once. A second process with the same rank and job is refused.
//! - Nobody waits for a failed process, nor longer than the timeout.

use crate::invalid;
use crate::tree::{Tree, join};
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_client::job::{Member, job_named, parent_number};
use weir_types::{Error, ErrorKind, JobId, Result};

/// Prefix of the names of job directories.
pub const PREFIX: &str = ".weir-job-";
/// Maximum number of processes.
const MAX_RANKS: u32 = 4096;
/// Maximum number of ranks that an error names.
const NAMED: usize = 8;
/// First and longest interval between two looks for files.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// Longest error message of a failed process.
const MAX_MESSAGE_CHARS: usize = 4096;

/// The identity of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// The job.
    pub id: JobId,
    /// Rank and number of processes from the launcher; `None`: this process is alone.
    pub member: Option<Member>,
}

impl Who {
    /// From the environment: mpirun of Open MPI, MPICH and others with PMI, srun, torchrun, weir
    /// run.
    ///
    /// # Errors
    /// `InvalidArgument`: an impossible rank or number of processes.
    pub fn find(name: Option<&str>) -> Result<Self> {
        let uid = rustix::process::geteuid().as_raw();
        let all: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let all: BTreeMap<&str, &str> =
            all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let member =
            Member::of(&all, uid, parent_number(std::os::unix::process::parent_id().into()));
        let named = name.map(|name| job_named(name, uid));
        let Some(member) = member else {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
            let own = job_named(&format!("alone-{}-{now}", std::process::id()), uid);
            return Ok(Self { id: named.unwrap_or(own), member: None });
        };
        if member.ranks > MAX_RANKS || member.rank.0 >= member.ranks {
            let (rank, ranks) = (member.rank.0, member.ranks);
            return Err(invalid(format!(
                "process {rank} of {ranks}: at most {MAX_RANKS}, from 0 on"
            )));
        }
        let id = named.unwrap_or(member.job);
        Ok(Self { id, member: Some(Member { job: id, ..member }) })
    }
}

/// The membership of this process in a job. A process that is alone exchanges no messages.
pub struct Job {
    /// The identity of this process.
    pub who: Who,
    /// Its rank, from 0.
    pub rank: usize,
    /// Number of processes.
    pub ranks: usize,
    /// The directory of the job.
    pub dir: String,
    tree: Tree,
    timeout: Duration,
    left: Cell<bool>,
}

impl Job {
    /// Joins a job. The first process makes its directory.
    ///
    /// # Errors
    /// `Exists`: a process of this job and rank has run before and failed.
    pub fn join(tree: &Tree, who: Who, dir: String, timeout: Duration) -> Result<Self> {
        let (rank, ranks) = who.member.map_or((0, 1), |m| (m.rank.0 as usize, m.ranks as usize));
        tree.make_dir(&dir)?;
        let job = Self { who, rank, ranks, dir, tree: tree.clone(), timeout, left: false.into() };
        // A directory, because its creation fails for the second of two processes.
        if !tree.make_dir(&job.path(&format!("joined.{rank}")))? {
            let what = format!(
                "{}: process {rank} of this job has run before, and the job has not ended well: \
                 remove the directory, or give the job another name by --job",
                job.dir
            );
            job.left.set(true);
            return Err(Error::new(ErrorKind::Exists, what));
        }
        Ok(job)
    }

    /// The path of a file of the job.
    pub fn path(&self, name: &str) -> String {
        join(&self.dir, name)
    }

    /// Sends `mine` to all others, waits for the messages of all, and returns them. It is a
    /// barrier: data that others finished writing before it is visible after it. All processes must
    /// call it with the same names, in the same order.
    ///
    /// # Errors
    /// That of a failed process. `TimedOut`, with the missing ranks.
    pub fn exchange(&self, name: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        if self.ranks == 1 {
            return Ok(vec![mine.to_vec()]);
        }
        self.tree.put(&self.path(&format!("{name}.{}", self.rank)), mine)?;
        self.wait(name)?;
        (0..self.ranks).map(|rank| self.tree.get(&self.path(&format!("{name}.{rank}")))).collect()
    }

    /// Ends this process's part successfully. The first process waits for all, and removes the
    /// directory.
    ///
    /// # Errors
    /// As [`Job::exchange`].
    pub fn leave(&self) -> Result<()> {
        self.left.set(true);
        if self.ranks > 1 {
            self.tree.put(&self.path(&format!("end.{}", self.rank)), b"")?;
            if self.rank > 0 {
                return Ok(());
            }
            self.wait("end")?;
        }
        self.remove()
    }

    /// Reports that this process has failed, so that nobody waits for it.
    pub fn fail(&self, error: &Error) {
        if self.left.replace(true) {
            return;
        }
        let message: String = error.to_string().chars().take(MAX_MESSAGE_CHARS).collect();
        // The original error matters more than a failure to report it.
        drop(match self.ranks {
            1 => self.remove(),
            _ => self.tree.put(&self.path(&format!("failed.{}", self.rank)), message.as_bytes()),
        });
    }

    /// Removes the directory of the job and all in it.
    fn remove(&self) -> Result<()> {
        for name in self.tree.names(&self.dir)? {
            match name.starts_with("joined.") {
                true => self.tree.remove_dir(&self.path(&name))?,
                false => self.tree.remove(&self.path(&name))?,
            }
        }
        self.tree.remove_dir(&self.dir)
    }

    /// Waits for the messages of all processes.
    fn wait(&self, name: &str) -> Result<()> {
        let (begun, mut pause) = (Instant::now(), PAUSES.0);
        loop {
            let names: HashSet<String> = self.tree.names(&self.dir)?.into_iter().collect();
            let is_missing = |rank: &usize| !names.contains(&format!("{name}.{rank}"));
            let missing: Vec<usize> = (0..self.ranks).filter(is_missing).collect();
            if missing.is_empty() {
                return Ok(());
            }
            if let Some(rank) = names.iter().find_map(|name| name.strip_prefix("failed.")) {
                let said = self.tree.get(&self.path(&format!("failed.{rank}")))?;
                let said = String::from_utf8_lossy(&said);
                let what = format!("process {rank} of the job has failed: {said}");
                return Err(Error::new(ErrorKind::Io, what));
            }
            if begun.elapsed() >= self.timeout {
                let named: Vec<String> = missing.iter().take(NAMED).map(usize::to_string).collect();
                let what = format!(
                    "{} of {} processes have not come within {} s: {}. Do all have the same --job \
                     and --work?",
                    missing.len(),
                    self.ranks,
                    self.timeout.as_secs(),
                    named.join(", ")
                );
                return Err(Error::new(ErrorKind::TimedOut, what));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}
