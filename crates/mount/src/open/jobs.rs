//! The job of a program, from its environment when it opens a file.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_client::job::{JobReader, Member, Partition, RANGES, parent_number};

/// A result is valid for this long: a program opens many files, and is seldom replaced by another
/// one.
const MAX_AGE: Duration = Duration::from_secs(1);
/// The result that a process has no job is valid for less: a shell may become another program in
/// the next moment.
const MAX_AGE_OF_NONE: Duration = Duration::from_millis(20);
/// The most remembered processes.
const MAX_KNOWN: usize = 1_024;
/// Longer environments are not searched.
const MAX_ENVIRONMENT_BYTES: u64 = 256 << 10;

/// The part of a process in a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Id of the process; `None` if it is invisible.
    pub(crate) process: Option<u64>,
    /// Its job and rank; `None` outside of jobs.
    pub(crate) member: Option<Member>,
    /// The ranges of a file that it reads; `None` for all of it, or its share.
    pub(crate) ranges: Option<Arc<Partition>>,
}

impl Part {
    /// A new reader of a file.
    pub(crate) fn reader(&self) -> Option<Arc<JobReader>> {
        self.member.map(|member| Arc::new(JobReader::of_ranges(member, self.ranges.clone())))
    }
}

/// Results for processes.
#[derive(Default)]
pub(crate) struct Jobs {
    known: Mutex<HashMap<u32, (Instant, Part)>>,
}

impl Jobs {
    /// The part of a process (0 if it is invisible) in a job.
    pub(crate) fn of(&self, pid: u32, uid: u32) -> Part {
        if pid == 0 {
            return Part::default();
        }
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_new = |(at, part): &(Instant, Part)| {
            let age = if part.member.is_some() { MAX_AGE } else { MAX_AGE_OF_NONE };
            now.duration_since(*at) < age
        };
        if let Some((_, part)) = lock().get(&pid).filter(|known| is_new(known)) {
            return part.clone();
        }
        let part = look(pid, uid);
        let mut known = lock();
        if known.len() >= MAX_KNOWN {
            known.retain(|_, known| is_new(known));
        }
        if known.len() < MAX_KNOWN {
            known.insert(pid, (now, part.clone()));
        }
        part
    }
}

/// Looks a process up. Nothing is known of a process that has ended, or whose environment cannot be
/// read.
fn look(pid: u32, uid: u32) -> Part {
    let nothing = Part { process: process(pid), ..Part::default() };
    let Some(environment) = environment(pid) else { return nothing };
    let variable = |text| std::str::from_utf8(text).ok()?.split_once('=');
    let environment: BTreeMap<&str, &str> =
        environment.split(|byte| *byte == 0).filter_map(variable).collect();
    let ranges = environment.get(RANGES).filter(|ranges| !ranges.is_empty());
    let ranges = ranges.map(|ranges| ranges.parse().map(Arc::new)).transpose();
    let ranges = ranges.unwrap_or_else(|error: String| {
        tracing::warn!("{RANGES} of process {pid}: {error}");
        None
    });
    Part { member: Member::of(&environment, uid, parent(pid)), ranges, ..nothing }
}

fn environment(pid: u32) -> Option<Vec<u8>> {
    let file = File::open(format!("/proc/{pid}/environ")).ok()?;
    let mut environment = Vec::new();
    // A program may say that it is as long as it likes.
    file.take(MAX_ENVIRONMENT_BYTES + 1).read_to_end(&mut environment).ok()?;
    (environment.len() as u64 <= MAX_ENVIRONMENT_BYTES).then_some(environment)
}

/// A number from its parent process and the boot, which it shares with others of its job.
fn parent(pid: u32) -> u64 {
    parent_number(status(pid, "PPid:").unwrap_or_default())
}

/// The process of a thread; `None` if it is invisible.
pub(crate) fn process(thread: u32) -> Option<u64> {
    status(thread, "Tgid:")
}

fn status(pid: u32, what: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = status.lines().find_map(|line| line.strip_prefix(what));
    number.and_then(|number| number.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use weir_types::Rank;

    #[test]
    fn a_process_is_known_by_its_environment() {
        let jobs = Jobs::default();
        let variables = [("PMI_RANK", "2"), ("PMI_SIZE", "3"), (RANGES, "0+1M,4M+1M")];
        // It has its environment when it has said something.
        let mut child = Command::new("sh")
            .args(["-c", "echo; read answer"])
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        let part = jobs.of(child.id(), 0);
        let member = part.member.unwrap();
        assert_eq!((member.rank, member.ranks), (Rank(2), 3));
        assert_eq!(part.ranges.as_ref().unwrap().to_string(), "0+1048576,4194304+1048576");
        assert_eq!(part.process, Some(child.id().into()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(jobs.of(child.id(), 0), part, "for a while");
        assert_eq!(Jobs::default().of(child.id(), 0), Part::default());
        assert_eq!(jobs.of(0, 0), Part::default());
    }
}
