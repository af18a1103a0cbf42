//! What threads of programs do, by what the kernel says of them.

use crate::kernel::names::Doing;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::io::ErrorKind;

/// What a thread does at this moment.
pub(crate) fn doing(thread: u32) -> Doing {
    match std::fs::read_to_string(format!("/proc/{thread}/stat")) {
        // The name of the program before the state may have any characters.
        Ok(stat) => match stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
            Some('S') => Doing::Sleeps,
            Some('Z' | 'X') => Doing::Gone,
            _ => Doing::Unknown,
        },
        // Threads of other users may be hidden.
        Err(error) if error.kind() == ErrorKind::NotFound && !is_there(thread) => Doing::Gone,
        Err(_) => Doing::Unknown,
    }
}

fn is_there(thread: u32) -> bool {
    let pid = i32::try_from(thread).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_sleeping_thread_a_running_one_and_one_that_is_gone_are_told_apart() {
        let own = || rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(doing(own()), Doing::Unknown, "it runs");
        let (send, receive) = mpsc::channel();
        let (end, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(own()).unwrap();
            wait.recv().unwrap();
        });
        let other = receive.recv().unwrap();
        let begin = std::time::Instant::now();
        while doing(other) != Doing::Sleeps {
            assert!(begin.elapsed().as_secs() < 60);
            std::thread::yield_now();
        }
        end.send(()).unwrap();
        thread.join().unwrap();
        while doing(other) != Doing::Gone {
            assert!(begin.elapsed().as_secs() < 60);
            std::thread::yield_now();
        }
    }
}
