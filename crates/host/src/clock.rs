//! What time it is.

use crate::simulated;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Now, for intervals and deadlines. Do not call `elapsed` on it, which would
/// ask the operating system: see [`elapsed`].
pub fn now() -> Instant {
    match simulated::current() {
        Some(machine) => base() + machine.now(),
        None => Instant::now(),
    }
}

/// Time since `start`, zero if that is still to come.
pub fn elapsed(start: Instant) -> Duration {
    now().saturating_duration_since(start)
}

/// Time since some moment that stays the same as long as this process (or the
/// simulation) lasts; that was an hour ago or more, so that what was a while ago
/// can be said from the beginning.
pub fn uptime() -> Duration {
    HEAD_START + elapsed(base())
}

const HEAD_START: Duration = Duration::from_secs(3600);

/// Time since the machine started, asleep or not: a process that was stopped,
/// or whose machine slept, sees on it how long that was.
pub fn since_boot() -> Duration {
    match simulated::current() {
        Some(machine) => machine.now(),
        None => {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
            Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
        }
    }
}

/// Time since 1970, for people, files and capabilities.
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
