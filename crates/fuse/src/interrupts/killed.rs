//! Killed callers: a process that was sent SIGKILL (or any signal that kills it) waits in the
//! kernel for the reply to its request. It gets one here, so that it is gone at once. The work goes
//! on without it, because bytes of completed writes are not given up.
//!
//! The kernel reports a signal at most once, and not at all if it comes after another or while the
//! process closes its files. So this module checks by itself, but only requests that take long.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::interrupts::interrupt::InterruptTable;
use crate::protocol::answer::Answer;
use crate::protocol::errno::Errno;

/// Interval of checks.
const TICK: Duration = Duration::from_millis(100);
/// Younger requests are not checked: most are answered sooner.
const LONG: Duration = Duration::from_millis(300);
/// The most remembered killed processes; the oldest are forgotten.
const MAX_KILLED: usize = 256;

/// A request that is being served.
#[derive(Debug)]
struct Caller {
    unique: u64,
    /// The waiting thread.
    pid: u32,
    since: Instant,
    /// The descriptor for the reply.
    device: Arc<OwnedFd>,
    answered: bool,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Caller>,
    killed: VecDeque<u32>,
    closed: bool,
}

/// Callers that wait for a reply.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    state: Mutex<State>,
    end: Condvar,
}

impl Callers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request until the guard is dropped.
    pub(crate) fn begin(&self, unique: u64, pid: u32, device: &Arc<OwnedFd>) -> Waiting<'_> {
        // 0: work of the kernel's own, or a process that cannot be seen.
        if pid != 0 {
            let device = Arc::clone(device);
            let since = Instant::now();
            let caller = Caller { unique, pid, since, device, answered: false };
            self.lock().waiting.push(caller);
        }
        Waiting { callers: self, unique }
    }

    /// Whether this process was found killed before and is closing its files now, so that no
    /// program sees the results.
    pub(crate) fn is_dying(&self, pid: u32) -> bool {
        let known = self.lock().killed.contains(&pid);
        known && was_killed(pid)
    }

    /// Waits for the next check. Returns false at the end.
    pub(crate) fn next_look(&self) -> bool {
        let state = self.lock();
        if state.closed {
            return false;
        }
        let waited = self.end.wait_timeout(state, TICK);
        !waited.unwrap_or_else(PoisonError::into_inner).0.closed
    }

    /// Replies to killed callers.
    pub(crate) fn answer_killed(&self, interrupts: &InterruptTable) {
        let state = self.lock();
        let long: Vec<(u64, u32, Arc<OwnedFd>)> = state
            .waiting
            .iter()
            .filter(|caller| {
                let known = state.killed.contains(&caller.pid);
                !caller.answered && (known || caller.since.elapsed() >= LONG)
            })
            .map(|caller| (caller.unique, caller.pid, Arc::clone(&caller.device)))
            .collect();
        drop(state);
        for (unique, pid, device) in long {
            if was_killed(pid) {
                self.note_killed(unique, pid);
                // What can end early does.
                interrupts.raise(unique);
                Answer::new(&*device, unique).error(Errno::EINTR);
            }
        }
    }

    fn note_killed(&self, unique: u64, pid: u32) {
        let mut state = self.lock();
        for caller in state.waiting.iter_mut().filter(|caller| caller.unique == unique) {
            caller.answered = true;
        }
        if !state.killed.contains(&pid) {
            if state.killed.len() == MAX_KILLED {
                state.killed.pop_front();
            }
            state.killed.push_back(pid);
        }
    }

    /// Ends the checks.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.end.notify_all();
    }
}

/// A recorded request.
pub(crate) struct Waiting<'a> {
    callers: &'a Callers,
    unique: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.callers.lock().waiting.retain(|caller| caller.unique != self.unique);
    }
}

/// Whether a thread was sent a signal that kills it, or is exiting because of one. (A thread that
/// exits by itself is waited for: its writes have to be visible when it is gone.)
pub fn was_killed(pid: u32) -> bool {
    if pid == 0 {
        return false;
    }
    let read = |name| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    kill_pending(&read("status")) || ended_by_signal(&read("stat"))
}

/// Whether a pending SIGKILL is set: the kernel sets it for every thread of a process that a signal
/// kills.
fn kill_pending(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    pending.is_some_and(|mask| mask & 1 << (libc::SIGKILL - 1) != 0)
}

/// Whether `/proc/PID/stat` shows an exit because of a signal.
fn ended_by_signal(stat: &str) -> bool {
    const EXITING: u64 = 0x4;
    // The name, in parentheses, may hold anything; fields count from its end,
    // where the third begins.
    let fields = stat.rfind(')').map_or("", |end| &stat[end + 1..]);
    let field = |number: usize| -> Option<u64> {
        fields.split_ascii_whitespace().nth(number - 3)?.parse().ok()
    };
    let (flags, exit_code) = (field(9).unwrap_or(0), field(52).unwrap_or(0));
    flags & EXITING != 0 && exit_code & 0x7f != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_kill_is_seen_and_other_signals_are_not() {
        assert!(kill_pending("Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0\n"));
        assert!(!kill_pending("SigPnd:\t0000000000004000\nShdPnd:\t0000000000000100\n"));
        assert!(!kill_pending(""));
    }

    #[test]
    fn an_end_by_a_signal_is_told_from_one_of_its_own() {
        let stat = |flags: u64, code: u64| {
            let middle = "0 ".repeat(42);
            format!("12 (a ) b) D 1 1 1 0 -1 {flags} {middle}{code}\n")
        };
        assert!(ended_by_signal(&stat(0x0040_0004, 9)));
        assert!(!ended_by_signal(&stat(0x0040_0004, 1 << 8)), "exit(1)");
        assert!(!ended_by_signal(&stat(0x0040_0000, 9)), "alive");
        assert!(!ended_by_signal(""));
    }
}
