//! Options of a client: which cluster, and how to use it.

use crate::problem::{not_connected, value};
use pyo3::PyResult;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use weir_client::job::{Member, Partition, RANGES, job_named, parent_number};
use weir_client::{Consistency, ReadPolicy};
use weir_connect::Choice;
use weir_types::Rank;

/// Everything needed to connect, also again or in another process.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) choice: Choice,
    pub(crate) name: String,
    pub(crate) consistency: Consistency,
    pub(crate) read_policy: ReadPolicy,
    pub(crate) read_ahead: u64,
    pub(crate) write_behind: usize,
    pub(crate) verify: bool,
    pub(crate) timeout_ms: u64,
    /// The job that the program names; `None`: the job of the environment.
    pub(crate) job: Option<Job>,
}

/// A process of a job.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) shared: bool,
}

/// The job of this process, and the part of each file that it reads, if not all of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) member: Option<Member>,
    pub(crate) ranges: Option<Arc<Partition>>,
}

/// The cluster that the program or the environment chooses.
pub(crate) fn choice(
    cluster: Option<String>,
    credential: Option<PathBuf>,
    dir: Option<PathBuf>,
    config: Option<PathBuf>,
) -> PyResult<Choice> {
    let said = [cluster.is_some(), credential.is_some(), dir.is_some()];
    if said.iter().filter(|said| **said).count() > 1 {
        return Err(value("give one of cluster, credential and dir: each names a cluster"));
    }
    if said == [false; 3] {
        let found = Choice::from_environment();
        return Ok(Choice { config: config.or(found.config), ..found });
    }
    Ok(Choice { name: cluster, credential, dir, config })
}

/// Looks up one of several words.
pub(crate) fn word<T: Copy>(what: &str, said: &str, all: &[(&'static str, T)]) -> PyResult<T> {
    let found = all.iter().find(|(name, _)| *name == said);
    found.map(|(_, kind)| *kind).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        value(format!("{what}={said:?}: it is one of {}", names.join(", ")))
    })
}

/// The consistency with this name.
pub(crate) fn consistency(said: &str) -> PyResult<Consistency> {
    word("consistency", said, &Consistency::ALL.map(|kind| (kind.name(), kind)))
}

/// The read policy with this name.
pub(crate) fn read_policy(said: &str) -> PyResult<ReadPolicy> {
    let all: Vec<_> = ReadPolicy::ALL.iter().map(|kind| (kind.name(), *kind)).collect();
    word("read_policy", said, &all)
}

impl Options {
    /// Reads credential and configuration files, and connects.
    pub(crate) fn connect(&self) -> Result<weir_client::Client, weir_connect::Problem> {
        let credential = self.choice.credential()?;
        let mut config = credential.client_config(&self.name);
        config.consistency = self.consistency;
        config.read_policy = self.read_policy;
        config.read_ahead_bytes = self.read_ahead;
        config.write_behind_bytes = self.write_behind;
        config.verify = self.verify;
        config.request_timeout_ms = self.timeout_ms;
        config.connect_timeout_ms = config.connect_timeout_ms.min(self.timeout_ms);
        weir_client::Client::connect(config).map_err(|error| credential.not_connected(error))
    }

    /// The job of this process, and its part.
    pub(crate) fn part(&self) -> PyResult<Part> {
        let variables: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, text)| name.into_string().ok().zip(text.into_string().ok()))
            .collect();
        let environment: BTreeMap<&str, &str> =
            variables.iter().map(|(name, text)| (&**name, &**text)).collect();
        let uid = weir_connect::caller().uid;
        let member = match &self.job {
            None => Member::of(&environment, uid, parent()),
            Some(Job { name, rank, ranks, shared }) => Some(Member {
                job: job_named(name, uid),
                rank: Rank(*rank),
                ranks: *ranks,
                shared: *shared,
            }),
        };
        let ranges = environment.get(RANGES).filter(|ranges| !ranges.is_empty());
        let ranges = ranges.map(|ranges| ranges.parse().map(Arc::new)).transpose();
        let ranges = ranges.map_err(|error: String| value(format!("{RANGES}: {error}")))?;
        Ok(Part { member, ranges })
    }
}

/// An id that the processes of a job on one machine share, as for mounts.
fn parent() -> u64 {
    parent_number(std::os::unix::process::parent_id().into())
}

/// Connects; errors become Python exceptions.
pub(crate) fn connect(options: &Options) -> PyResult<weir_client::Client> {
    options.connect().map_err(not_connected)
}
