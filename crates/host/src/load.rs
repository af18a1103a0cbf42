//! How busy this machine is: its processors and its network, by the kernel's counts.
//!
//! A simulated machine counts nothing.

use crate::{fs, simulated};
use std::path::Path;

/// `/proc/net/dev` has a line for each interface; what is beyond this is not looked at.
const MAX_PROC_BYTES: usize = 256 << 10;

/// What the kernel has counted since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineCounts {
    /// Time in which processors had something to do, ticks of all of them,
    pub busy_ticks: u64,
    /// and all time.
    pub ticks: u64,
    /// Bytes that came in through interfaces to elsewhere,
    pub received_bytes: u64,
    /// and that went out.
    pub sent_bytes: u64,
}

impl MachineCounts {
    /// What there is now; `None` if the kernel does not say, or the machine is simulated.
    pub fn now() -> Option<Self> {
        if simulated::current().is_some() {
            return None;
        }
        let read = |path| {
            let bytes = fs::read_file(Path::new(path), MAX_PROC_BYTES).ok()?;
            String::from_utf8(bytes).ok()
        };
        let (busy_ticks, ticks) = processors(&read("/proc/stat")?)?;
        let (received_bytes, sent_bytes) = network(&read("/proc/net/dev")?);
        Some(Self { busy_ticks, ticks, received_bytes, sent_bytes })
    }
}

/// Busy and all ticks, of the first line: user, nice, system, idle, waiting for disks,
/// interrupts (two kinds), stolen by other machines of this host.
fn processors(stat: &str) -> Option<(u64, u64)> {
    let mut words = stat.lines().next()?.split_ascii_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    let all: u64 = ticks.iter().sum();
    Some((all - idle, all))
}

/// Bytes in and out of all interfaces but the loopback.
fn network(dev: &str) -> (u64, u64) {
    let interface = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let mut counts = counts.split_ascii_whitespace();
        let received: u64 = counts.next()?.parse().ok()?;
        let sent: u64 = counts.nth(7)?.parse().ok()?;
        (name.trim() != "lo").then_some((received, sent))
    };
    let all = dev.lines().filter_map(interface);
    all.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_that_wait_for_disks_are_not_busy() {
        let stat = "cpu  100 1 40 1000 200 3 6 50 7 0\ncpu0 1 2 3 4 5 6 7 8\n";
        assert_eq!(processors(stat), Some((200, 1400)));
        assert_eq!(processors("cpu 1 2"), None);
        assert_eq!(processors(""), None);
    }

    #[test]
    fn what_goes_to_the_machine_itself_is_no_network() {
        let dev = "Inter-|   Receive                            |  Transmit\n \
                   face |bytes    packets errs drop fifo frame compressed multicast|bytes\n    \
                   lo: 900 9 0 0 0 0 0 0 900 9 0 0 0 0 0 0\n  \
                   eth0: 500 5 0 0 0 0 0 0 70 7 0 0 0 0 0 0\neth1:1 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0\n";
        assert_eq!(network(dev), (501, 72));
    }

    #[test]
    fn this_machine_counts() {
        let counts = MachineCounts::now().expect("the kernel says");
        assert!(counts.ticks > 0 && counts.busy_ticks <= counts.ticks, "{counts:?}");
    }
}
