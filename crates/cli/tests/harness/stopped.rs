//! Processes that are stopped for a while.

use super::eventually;
use rustix::process::{Pid, Signal, kill_process};

/// Stopped processes, which go on when this is gone, however the test ends.
pub struct Stopped(Vec<Pid>);

impl Stopped {
    /// Returns when they are.
    pub fn these(pids: impl IntoIterator<Item = i32>) -> Self {
        let pids = pids.into_iter().map(|pid| Pid::from_raw(pid).unwrap()).collect();
        let stopped = Self(pids);
        for pid in &stopped.0 {
            kill_process(*pid, Signal::STOP).unwrap();
        }
        let state = |pid: &Pid| state(&format!("/proc/{}", pid.as_raw_nonzero()));
        eventually("they are stopped", || stopped.0.iter().all(|pid| state(pid) == Some('T')));
        stopped
    }
}

/// The state of a process, or of a thread of one, whose directory in `/proc` this is;
/// nothing if it has ended, and been collected. Never waits for the process.
pub fn state(of: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("{of}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill_process(*pid, Signal::CONT);
        }
    }
}
