//! Which job a program belongs to, as its environment says when it opens a file.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_client::job::Member;

/// What was found holds for so long: a program opens many files, and is seldom replaced
/// by another one.
const MAX_AGE: Duration = Duration::from_secs(1);
/// That it belongs to none holds for less: a shell may become another program in the next moment.
const MAX_AGE_OF_NONE: Duration = Duration::from_millis(20);
/// Processes that are remembered.
const MAX_KNOWN: usize = 1_024;
/// Longer environments are not looked through.
const MAX_ENVIRONMENT_BYTES: u64 = 256 << 10;

/// What was found of processes.
#[derive(Default)]
pub(crate) struct Jobs {
    known: Mutex<HashMap<u32, (Instant, Option<Member>)>>,
}

impl Jobs {
    /// The job of a process (0: it cannot be seen from here).
    pub(crate) fn of(&self, pid: u32, uid: u32) -> Option<Member> {
        if pid == 0 {
            return None;
        }
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_new = |(at, member): &(Instant, Option<Member>)| {
            let age = if member.is_some() { MAX_AGE } else { MAX_AGE_OF_NONE };
            now.duration_since(*at) < age
        };
        if let Some((_, member)) = lock().get(&pid).filter(|known| is_new(known)) {
            return *member;
        }
        let member = look(pid, uid);
        let mut known = lock();
        if known.len() >= MAX_KNOWN {
            known.retain(|_, known| is_new(known));
        }
        if known.len() < MAX_KNOWN {
            known.insert(pid, (now, member));
        }
        member
    }
}

/// Nothing is known of a process that has ended, or whose environment is not to be seen.
fn look(pid: u32, uid: u32) -> Option<Member> {
    let file = File::open(format!("/proc/{pid}/environ")).ok()?;
    let mut environment = Vec::new();
    // A program may say that it is as long as it likes.
    file.take(MAX_ENVIRONMENT_BYTES + 1).read_to_end(&mut environment).ok()?;
    if environment.len() as u64 > MAX_ENVIRONMENT_BYTES {
        return None;
    }
    let variable = |text| std::str::from_utf8(text).ok()?.split_once('=');
    let environment: BTreeMap<&str, &str> =
        environment.split(|byte| *byte == 0).filter_map(variable).collect();
    Member::of(&environment, uid, parent(pid))
}

/// The process that began it, and the boot in which: it has that in common with others of its
/// job.
fn parent(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let parent: u64 = parent.and_then(|pid| pid.trim().parse().ok()).unwrap_or_default();
    let boot = weir_host::boot_id().unwrap_or_default();
    parent ^ (boot as u64).rotate_left(32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use weir_types::Rank;

    #[test]
    fn a_process_is_known_by_its_environment() {
        let jobs = Jobs::default();
        let variables = [("PMI_RANK", "2"), ("PMI_SIZE", "3")];
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
        let member = jobs.of(child.id(), 0).unwrap();
        assert_eq!((member.rank, member.ranks), (Rank(2), 3));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(jobs.of(child.id(), 0), Some(member), "for a while");
        assert_eq!(Jobs::default().of(child.id(), 0), None);
        assert_eq!(jobs.of(0, 0), None);
    }
}
