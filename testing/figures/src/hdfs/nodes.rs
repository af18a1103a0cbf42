//! Nodes with names of their own: schedulers know machines by these, and those of a testbed all
//! have the name of this one.

use crate::cluster::named;
use crate::lab::Lab;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::io::{Error, Result};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use weir_testbed::Network;

/// A server ends within so long.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// The name of a node.
pub fn name(node: u32) -> String {
    format!("node{node}")
}

/// A command on a node: in its network, and with its name.
pub fn command(network: &Network, node: u32, program: &OsStr) -> Command {
    named(&name(node), &network.command(node, program))
}

/// Starts all data servers anew, each on a machine of its node's name.
pub fn name_servers(lab: &Lab) -> Result<()> {
    for (number, pid) in (1..).zip(lab.cluster.data_pids(lab.disks.len())?) {
        end(pid)?;
        lab.cluster.weir_on(&name(number), &["up"])?;
    }
    // Those that are started anew are in no group yet.
    lab.cluster.data_pids(lab.disks.len())?.into_iter().try_for_each(|pid| lab.throttle.add(pid))
}

fn end(pid: i32) -> Result<()> {
    let none = || Error::other(format!("no process {pid}"));
    kill_process(Pid::from_raw(pid).ok_or_else(none)?, Signal::TERM)?;
    let (begin, process) = (Instant::now(), format!("/proc/{pid}"));
    while Path::new(&process).exists() {
        if begin.elapsed() > ENDS_WITHIN {
            return Err(Error::other(format!("process {pid} has not ended in {ENDS_WITHIN:?}")));
        }
        sleep(PAUSE);
    }
    Ok(())
}

/// Seconds of processor time of these processes.
pub fn cpu_seconds(pids: &[i32]) -> Result<f64> {
    pids.iter().map(|pid| cpu_of(*pid)).sum()
}

fn cpu_of(pid: i32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(|e| Error::other(format!("{path}: {e}")))?;
    let unknown = || Error::other(format!("{path}: not understood: {text}"));
    // The name of the program, in parentheses, may have anything in it.
    let rest = text.rsplit_once(')').ok_or_else(unknown)?.1;
    let ticks = |n: usize| rest.split_whitespace().nth(n).and_then(|word| word.parse::<u64>().ok());
    // Words 14 and 15 of all, of user and system.
    let ticks = ticks(11).zip(ticks(12)).ok_or_else(unknown)?;
    Ok((ticks.0 + ticks.1) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Seconds that this machine's processors were busy, whoever kept them so.
pub fn busy_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let unknown = || Error::other(format!("/proc/stat: not understood: {text}"));
    let first = text.lines().next().ok_or_else(unknown)?;
    let ticks: Vec<u64> =
        first.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq
    let [user, nice, system, _, _, irq, softirq, ..] = ticks[..] else { return Err(unknown()) };
    let busy = user + nice + system + irq + softirq;
    Ok(busy as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_has_used_the_processor() {
        let (own, all) = (std::process::id().cast_signed(), busy_seconds().unwrap());
        let before = cpu_seconds(&[own]).unwrap();
        let begin = Instant::now();
        while cpu_seconds(&[own]).unwrap() < before + 0.05 {
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
        assert!(busy_seconds().unwrap() > all);
        cpu_seconds(&[i32::MAX]).unwrap_err();
    }
}
