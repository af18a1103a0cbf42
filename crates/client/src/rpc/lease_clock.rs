//! The time until which this client's cache may be used. The metadata server revokes the leases of
//! a client that was silent for the lease time. The client uses only four fifths of that time: the
//! layer above has to have dropped its data at the end, and clocks do not run alike.
//!
//! Invariant: the time counts from when a request was sent that was answered within the present
//! period. A poll counts in any case, because its reply says whether anything was revoked. The time
//! goes on while the machine is suspended or the process is stopped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_host::clock::since_boot;
use weir_host::plant::{Bug, planted};
use weir_host::sync::{Condvar, Mutex};
use weir_net::Wait;
use weir_types::Result;

/// Assumed lease time until the server has reported it, milliseconds.
const FIRST_LEASE_MS: u64 = 1_000;
/// The cache is not used in the last part of the lease time, one in this many.
const LAST_PART: u64 = 5;
/// Longest wait between two looks at the caller's deadline.
const SLICE: Duration = Duration::from_millis(50);

/// The clock of a client's leases.
#[derive(Debug, Default)]
pub(crate) struct LeaseClock {
    /// End of the present period, milliseconds since boot; 0 before the first reply.
    until_ms: AtomicU64,
    /// Lease time, milliseconds; 0 if unknown.
    lease_ms: AtomicU64,
    lock: Mutex<()>,
    renewed: Condvar,
}

fn ms(time: Duration) -> u64 {
    time.as_millis() as u64
}

impl LeaseClock {
    /// Whether the cache may be used now.
    pub(crate) fn is_good(&self) -> bool {
        since_boot() < self.good_until() || self.was_good() && planted(Bug::IgnoreLeaseClock)
    }

    fn was_good(&self) -> bool {
        self.until_ms.load(Ordering::Acquire) > 0
    }

    /// Time since boot until which the cache may be used if nothing more arrives; 0 if it never
    /// might.
    pub(crate) fn good_until(&self) -> Duration {
        let until_ms = self.until_ms.load(Ordering::Acquire);
        let lease_ms = self.lease_ms().unwrap_or(FIRST_LEASE_MS);
        Duration::from_millis(until_ms.saturating_sub(lease_ms / LAST_PART))
    }

    /// The lease time, if the server has reported it.
    pub(crate) fn lease_ms(&self) -> Option<u64> {
        Some(self.lease_ms.load(Ordering::Relaxed)).filter(|ms| *ms > 0)
    }

    /// Records that a request sent at this time was answered.
    pub(crate) fn answered(&self, sent: Duration) {
        let until = self.until_ms.load(Ordering::Acquire);
        // Late, the answer does not say what happened meanwhile. Before the
        // first one nothing was there to be taken away.
        if until == 0 || ms(since_boot()) < until {
            self.extend(sent);
        }
    }

    /// Records that a poll sent at this time was answered, after its report of revoked leases was
    /// carried out.
    pub(crate) fn polled(&self, sent: Duration, lease_ms: u64) {
        let before = self.lease_ms.swap(lease_ms.max(1), Ordering::Relaxed);
        if lease_ms < before {
            // The server was started with a shorter one.
            self.until_ms.fetch_min(ms(sent) + lease_ms, Ordering::AcqRel);
        }
        self.extend(sent);
    }

    fn extend(&self, sent: Duration) {
        let lease_ms = self.lease_ms().unwrap_or(FIRST_LEASE_MS);
        self.until_ms.fetch_max(ms(sent) + lease_ms, Ordering::AcqRel);
        drop(self.lock.lock());
        self.renewed.notify_all();
    }

    /// Waits until the cache may be used.
    ///
    /// # Errors
    /// `TimedOut`, `Interrupted`.
    pub(crate) fn wait(&self, wait: &Wait) -> Result<()> {
        let mut guard = self.lock.lock();
        while !self.is_good() {
            wait.check().map_err(|e| {
                e.context("wait for the metadata server, which has not been heard of for too long")
            })?;
            guard = self.renewed.wait_timeout(guard, SLICE);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_renews_from_when_it_was_asked_for_and_only_in_time() {
        let clock = LeaseClock::default();
        assert!(!clock.is_good());
        let now = since_boot();
        clock.answered(now);
        assert!(clock.is_good());
        clock.polled(now, 60_000);
        let until = clock.until_ms.load(Ordering::Acquire);
        assert_eq!(until, ms(now) + 60_000);
        clock.answered(now + Duration::from_secs(1));
        assert_eq!(clock.until_ms.load(Ordering::Acquire), until + 1_000);
    }

    #[test]
    fn a_lease_that_has_become_shorter_counts_at_once() {
        let (clock, now) = (LeaseClock::default(), since_boot());
        clock.polled(now, 60_000);
        clock.polled(now, 10_000);
        assert_eq!(clock.until_ms.load(Ordering::Acquire), ms(now) + 10_000);
    }

    #[test]
    fn in_the_last_part_nothing_is_used_and_any_answer_renews() {
        let clock = LeaseClock::default();
        assert_eq!(clock.good_until(), Duration::ZERO);
        let now = since_boot();
        clock.polled(now.saturating_sub(Duration::from_secs(9)), 10_000);
        assert!(!clock.is_good() && clock.good_until() < now);
        clock.answered(now);
        assert!(clock.is_good() && clock.good_until() > now);
    }

    #[test]
    fn after_too_long_only_a_poll_renews() {
        let clock = LeaseClock::default();
        clock.polled(since_boot().saturating_sub(Duration::from_secs(2)), 1_000);
        assert!(!clock.is_good());
        clock.answered(since_boot());
        assert!(!clock.is_good());
        assert!(clock.wait(&Wait::for_ms(1)).is_err());
        clock.polled(since_boot(), 1_000);
        assert!(clock.is_good());
        clock.wait(&Wait::for_ms(1)).unwrap();
    }
}
