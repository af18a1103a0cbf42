//! Whether a thread waits for a lock of an open file description (`F_OFD_SETLKW`) or of its process
//! (`F_SETLKW`). The kernel does not tell the file system, but only waits for process locks may
//! return a deadlock (`EDEADLK`): an open file has no thread of its own, and any process that
//! shares it may unlock it while another waits.

use std::time::{Duration, Instant};

/// A thread sleeps within this time after it has sent its call.
const FALLS_ASLEEP: Duration = Duration::from_millis(5);

/// Whether the thread is in a call of `F_OFD_SETLKW`. Also `false` if that is invisible: the thread
/// is in another pid namespace, or of another user.
pub(crate) fn waits_for_open_file(thread: u32) -> bool {
    let begin = Instant::now();
    loop {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{thread}/syscall")) else {
            return false;
        };
        match command(&text) {
            Some(command) => return command == libc::F_OFD_SETLKW as u64,
            None if begin.elapsed() > FALLS_ASLEEP => return false,
            None => std::thread::yield_now(),
        }
    }
}

/// The second argument of the call that a thread sleeps in, which for `fcntl` is the command.
fn command(text: &str) -> Option<u64> {
    let argument = text.split_whitespace().nth(2)?;
    u64::from_str_radix(argument.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_the_second_argument() {
        assert_eq!(command("72 0x3 0x26 0x7ffd12 0x0 0x0 0x0 0x7ffd10 0x7f12\n"), Some(38));
        assert_eq!(command("running\n"), None);
        assert_eq!(command("-1 0x7ffd10 0x7f12\n"), Some(0x7f12), "is not that of a lock");
        assert!(!waits_for_open_file(0));
    }
}
