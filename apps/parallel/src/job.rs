//! The processes of a job. They tell each other things by files in a directory of their own, which
//! the last one removes: a launcher says who they are, and no library of MPI is needed.
//!
//! Invariants
//! - A process takes part once. Another one of the same rank and job is refused.
//! - Nobody waits for a process that has failed, nor longer than the timeout.

use crate::invalid;
use crate::tree::{Tree, join};
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_client::job::{Member, job_named, parent_number};
use weir_types::{Error, ErrorKind, JobId, Result};

/// The first part of the name of a job's directory.
pub const PREFIX: &str = ".weir-job-";
/// The most processes.
const MAX_RANKS: u32 = 4096;
/// Ranks that an error names.
const NAMED: usize = 8;
/// Names are looked at so often at first, and so often later.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// The longest message of a process that has failed.
const MAX_MESSAGE_CHARS: usize = 4096;

/// Who this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// The job.
    pub id: JobId,
    /// What launchers say; `None`: this process is alone.
    pub member: Option<Member>,
}

impl Who {
    /// By the environment: mpirun of Open MPI, MPICH and others with PMI, srun, torchrun, weir run.
    ///
    /// # Errors
    /// `InvalidArgument`: a rank or number of processes that cannot be.
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

/// This process in a job. Of a process that is alone, nothing is told to anybody.
pub struct Job {
    /// Who this process is.
    pub who: Who,
    /// Its number, from 0 on.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// The directory of the job.
    pub dir: String,
    tree: Tree,
    timeout: Duration,
    left: Cell<bool>,
}

impl Job {
    /// Joins a job, whose directory the first process makes.
    ///
    /// # Errors
    /// `Exists`: this process of the job has run before, and something went wrong.
    pub fn join(tree: &Tree, who: Who, dir: String, timeout: Duration) -> Result<Self> {
        let (rank, ranks) = who.member.map_or((0, 1), |m| (m.rank.0 as usize, m.ranks as usize));
        tree.make_dir(&dir)?;
        let job = Self { who, rank, ranks, dir, tree: tree.clone(), timeout, left: false.into() };
        // As a directory, since of two that make it one fails.
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

    /// Tells all others `mine`, waits until all have told theirs, and returns that of each. It is a
    /// barrier: what others wrote and finished before it is seen after it. All call it with the
    /// same names, in the same order.
    ///
    /// # Errors
    /// That of a process that has failed. `TimedOut`: with those that are missing.
    pub fn exchange(&self, name: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        if self.ranks == 1 {
            return Ok(vec![mine.to_vec()]);
        }
        self.tree.put(&self.path(&format!("{name}.{}", self.rank)), mine)?;
        self.wait(name)?;
        (0..self.ranks).map(|rank| self.tree.get(&self.path(&format!("{name}.{rank}")))).collect()
    }

    /// Ends this process's part well. The first process waits for all, and removes the directory.
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

    /// Says that this process has failed, so that nobody waits for it.
    pub fn fail(&self, error: &Error) {
        if self.left.replace(true) {
            return;
        }
        let message: String = error.to_string().chars().take(MAX_MESSAGE_CHARS).collect();
        // The error itself is more important than one of telling it.
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

    /// Waits until all have told something.
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
