//! The load of this machine: processors and network, from the kernel's counters.
//!
//! A simulated machine has no such counters.

use crate::{fs, simulated};
use std::path::Path;

/// Longest part of a file in `/proc` that is read. `/proc/net/dev` has a line for each interface.
const MAX_PROC_BYTES: usize = 256 << 10;

/// The kernel's counters since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineCounts {
    /// Busy time of all processors, ticks.
    pub busy_ticks: u64,
    /// Busy and idle time of all processors, ticks.
    pub ticks: u64,
    /// Bytes received through all interfaces except the loopback.
    pub received_bytes: u64,
    /// Bytes sent through all interfaces except the loopback.
    pub sent_bytes: u64,
}

impl MachineCounts {
    /// Reads the counters. `None` if the kernel does not tell, or the machine is simulated.
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

/// Busy and total ticks, from the first line of `/proc/stat`. Its fields are user, nice, system,
/// idle, waiting for disks, interrupts (two kinds), stolen by other virtual machines.
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

/// Bytes received and sent by all interfaces except the loopback.
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
