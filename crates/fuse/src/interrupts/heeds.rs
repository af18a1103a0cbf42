//! Which signals interrupt an operation.
//!
//! On a local disk no signal does, and programs rely on that: they do not expect `open` or `stat`
//! to fail with `EINTR`. But a process that is being killed should not wait for servers. A wait for
//! a lock is different: any handled signal ends it, as POSIX says.

use crate::protocol::request::Op;

/// Signals that an operation reacts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heeds {
    /// Any signal.
    Any,
    /// A signal that kills this thread.
    Death(u32),
}

impl Heeds {
    /// The signals for an operation of a thread.
    pub(crate) fn of(op: &Op<'_>, thread: u32) -> Self {
        match op {
            Op::SetLk { wait: true, .. } => Self::Any,
            // It lives where we cannot see it.
            _ if thread == 0 => Self::Any,
            _ => Self::Death(thread),
        }
    }

    /// Whether a signal that came just now ends the operation. Reads `/proc`.
    pub(crate) fn now(self) -> bool {
        match self {
            Self::Any => true,
            Self::Death(thread) => std::fs::read_to_string(format!("/proc/{thread}/status"))
                // Gone already.
                .map_or(true, |status| dies(&status)),
        }
    }
}

/// Signals whose default action kills no process.
const HARMLESS: &[i32] = &[
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGURG,
    libc::SIGWINCH,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Whether a thread with this `/proc/PID/status` has a pending signal that kills it. (When one
/// kills its process, the kernel gives each thread `SIGKILL`, unless a core is dumped.)
fn dies(status: &str) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0)
    };
    let pending = mask("SigPnd") | mask("ShdPnd");
    let spared = mask("SigBlk") | mask("SigIgn") | mask("SigCgt");
    let harmless = HARMLESS.iter().fold(0, |all, signal| all | bit(*signal));
    pending & bit(libc::SIGKILL) != 0 || pending & !spared & !harmless != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(own: u64, shared: u64, caught: u64) -> String {
        format!(
            "Name:\tx\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{:016x}\n\
             SigIgn:\t{:016x}\nSigCgt:\t{caught:016x}\n",
            bit(libc::SIGUSR2),
            bit(libc::SIGPIPE)
        )
    }

    #[test]
    fn only_what_kills_is_heeded() {
        let (usr1, term, kill) = (bit(libc::SIGUSR1), bit(libc::SIGTERM), bit(libc::SIGKILL));
        assert!(dies(&status(kill, 0, usr1)));
        assert!(dies(&status(0, term, usr1)));
        assert!(dies(&status(0, usr1, 0)), "unhandled, it kills");
        assert!(!dies(&status(0, usr1, usr1)), "handled");
        assert!(!dies(&status(0, bit(libc::SIGUSR2), 0)), "blocked");
        assert!(!dies(&status(bit(libc::SIGPIPE), 0, 0)), "ignored");
        assert!(!dies(&status(0, bit(libc::SIGCHLD) | bit(libc::SIGWINCH), 0)));
        assert!(!dies(&status(0, 0, usr1)));
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(!dies(&own) && own.contains("SigCgt:"));
    }
}
