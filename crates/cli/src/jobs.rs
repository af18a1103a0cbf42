//! `weir run`: runs a program as a job, whose processes should finish at the same time.

use crate::args::Run;
use crate::failure::{Done, Failure};
use crate::logging;
use crate::signals::Signals;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_client::job::{JOB, Member, RANGES, RANK, RANKS, SHARED};

/// Runs the program in place of this process, or as several processes.
///
/// # Errors
/// The program cannot be started, or one of its processes failed. The exit code is that of the
/// first that failed.
pub fn run(run: &Run) -> Done {
    if let Some((rank, ranks)) = run.rank.zip(run.ranks).filter(|(rank, ranks)| rank >= ranks) {
        let what =
            format!("--rank {rank}: of {ranks} processes the first is 0, the last {}", ranks - 1);
        return Err(Failure::new(what).code(2));
    }
    let Some(processes) = run.processes else {
        let mut command = command(run, run.rank.zip(run.ranks), &unique());
        return Err(not_started(run, command.exec()));
    };
    // Before the processes are started, so that a signal that ends this process also ends processes
    // which are just being started.
    let signals = Signals::hold()?;
    let mut children = Vec::new();
    let running = Arc::new(Mutex::new(Vec::new()));
    let unique = unique();
    for rank in 0..processes {
        let mut command = command(run, Some((rank, processes)), &unique);
        signals.let_go(&mut command);
        match command.spawn() {
            Ok(child) => {
                let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                running.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
                children.push(child);
            }
            Err(error) => {
                end(&running);
                children.into_iter().for_each(|mut child| _ = child.wait());
                return Err(not_started(run, error));
            }
        }
    }
    let all = running.clone();
    signals.on_signal(move || end(&all))?;
    let mut failed = None;
    for (rank, child) in children.iter_mut().enumerate() {
        let status = wait(child)?;
        running.lock().unwrap_or_else(PoisonError::into_inner)[rank] = None;
        if !status.success() {
            logging::say(&format!("weir: rank {rank}: {status}"));
            failed.get_or_insert(code(status));
        }
    }
    failed.map_or(Ok(()), |code| Err(Failure::new("").code(code)))
}

fn command(run: &Run, rank: Option<(u32, u32)>, unique: &str) -> Command {
    let mut command = Command::new(&run.command[0]);
    command.args(&run.command[1..]);
    match (&run.job, run.processes) {
        (Some(name), _) => _ = command.env(JOB, name),
        // A name that no other job has.
        (None, Some(_)) => _ = command.env(JOB, unique),
        // The launcher's name of the job stays.
        (None, None) => {}
    }
    command.env(SHARED, if run.shared { "1" } else { "0" });
    match &run.ranges {
        Some(ranges) => command.env(RANGES, ranges.to_string()),
        // Ranges in the environment of this process are not meant for these processes. (Ranges that
        // a launcher has set are for each of its processes, and stay.)
        None if run.processes.is_some() => command.env_remove(RANGES),
        None => &mut command,
    };
    if let Some((rank, ranks)) = rank {
        command.env(RANK, rank.to_string()).env(RANKS, ranks.to_string());
    }
    command
}

/// Makes a name that no other job has or will have on any machine.
fn unique() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("run-{}-{now}", std::process::id())
}

/// The job and rank of this process, from its environment: see [`Member::of`].
pub fn member(uid: u32, parent: u64) -> Option<Member> {
    let all: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let all: BTreeMap<&str, &str> =
        all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    Member::of(&all, uid, parent)
}

fn not_started(run: &Run, error: std::io::Error) -> Failure {
    Failure::file(run.command[0].as_ref(), error).code(127)
}

fn wait(child: &mut Child) -> Done<ExitStatus> {
    child.wait().map_err(|e| Failure::new(format!("wait for a process: {e}")))
}

/// The exit code as a shell reports it.
fn code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Asks all processes that are still running to end.
fn end(running: &Mutex<Vec<Option<Pid>>>) {
    let running = running.lock().unwrap_or_else(PoisonError::into_inner);
    for pid in running.iter().flatten() {
        if let Err(error) = kill_process(*pid, Signal::TERM) {
            tracing::debug!("process {pid:?}: {error}");
        }
    }
}
