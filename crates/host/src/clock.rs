//! Clocks: monotonic time, time since boot, and wall-clock time.

use crate::simulated;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The present monotonic time, for intervals and deadlines. Do not call `Instant::elapsed` on it,
/// which would ask the operating system: see [`elapsed`].
pub fn now() -> Instant {
    match simulated::current() {
        Some(machine) => base() + machine.now(),
        None => Instant::now(),
    }
}

/// Time since `start`; zero if `start` is in the future.
pub fn elapsed(start: Instant) -> Duration {
    now().saturating_duration_since(start)
}

/// Time since a fixed moment before this process (or the simulation) began. That moment is at least
/// one hour in the past, so that a time of up to an hour ago can be expressed from the beginning.
pub fn uptime() -> Duration {
    HEAD_START + elapsed(base())
}

const HEAD_START: Duration = Duration::from_secs(3600);

/// Time since the machine started, including time asleep. A process that was stopped, or whose
/// machine slept, can tell from it how long that was.
pub fn since_boot() -> Duration {
    match simulated::current() {
        Some(machine) => machine.now(),
        None => {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
            Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
        }
    }
}

/// Wall-clock time since 1970, for people, files and capabilities.
pub fn unix_now() -> Duration {
    match simulated::current() {
        Some(machine) => machine.unix_now(),
        None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
    }
}

/// Where virtual time begins: `Instant` has no other origin to offer.
fn base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(Instant::now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_while_ago_can_be_said_from_the_beginning() {
        assert!(uptime().checked_sub(Duration::from_secs(3600)).is_some());
    }
}
