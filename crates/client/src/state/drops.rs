//! What the layer above has to drop of its cache after leases were lost. The layer above the client has to
//! drop everything that it caches. Until then no call begins that would show that this client goes
//! on. A separate thread does it, since the threads that carry out events may be waiting for
//! servers.
//!
//! The same happens when the metadata server was silent for so long that leases may soon be
//! revoked. The layer above shows cached data without asking, so it drops the data before that
//! time.
//!
//! The write-back of pages of shared mappings does not wait here, because dropping pages waits for
//! it.

use crate::rpc::lease_clock::LeaseClock;
use std::collections::BTreeSet;
use std::time::Duration;
use weir_host::clock::since_boot;
use weir_host::sync::{Condvar, Mutex};
use weir_net::Wait;
use weir_types::{FileId, Result};

/// Longest wait between two looks at the caller's deadline.
const SLICE: Duration = Duration::from_millis(50);
/// With more files than this everything is dropped.
const MOST_FILES: usize = 1024;

#[derive(Debug, Default)]
struct State {
    /// Whether there is a layer above and a thread that tells it to drop.
    served: bool,
    /// Number of losses of leases in progress. Calls may still enter under these leases.
    losing: u32,
    /// Whether the layer above has to be told.
    wanted: bool,
    /// Whether the layer above is dropping.
    dropping: bool,
    /// Files with cached pages whose bytes could not be written. No call waits until they are
    /// dropped.
    unwritten: BTreeSet<FileId>,
}

/// What to drop.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ToDrop {
    Everything,
    /// All pages of these files.
    Files(BTreeSet<FileId>),
}

impl State {
    fn is_clean(&self) -> bool {
        !self.served || self.losing == 0 && !self.wanted && !self.dropping
    }
}

/// Longest wait between two looks at the clock, which goes on while the machine is suspended.
const LOOK: Duration = Duration::from_secs(1);

/// What the layer above still has to drop.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    state: Mutex<State>,
    changed: Condvar,
}

impl Drops {
    /// Announces the thread that carries out the drops.
    pub(crate) fn serve(&self) {
        self.state.lock().served = true;
    }

    /// Runs `lose`, which loses leases, and has everything dropped after it. What is read meanwhile
    /// is dropped too.
    pub(crate) fn after(&self, lose: impl FnOnce()) {
        self.state.lock().losing += 1;
        lose();
        let mut state = self.state.lock();
        (state.losing, state.wanted) = (state.losing - 1, true);
        drop(state);
        self.changed.notify_all();
    }

    /// Has the pages of a file dropped, because bytes in them could not be written. Does not wait.
    pub(crate) fn of(&self, file: FileId) {
        let mut state = self.state.lock();
        if !state.served || !state.unwritten.insert(file) {
            return;
        }
        if state.unwritten.len() > MOST_FILES {
            state.unwritten.clear();
            state.wanted = true;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the thread at the end of the client.
    pub(crate) fn stop(&self) {
        self.state.lock().served = false;
        self.changed.notify_all();
    }

    /// Whether nothing has to be dropped.
    pub(crate) fn is_clean(&self) -> bool {
        self.state.lock().is_clean()
    }

    /// Waits until nothing has to be dropped.
    ///
    /// # Errors
    /// `TimedOut`, `Interrupted`.
    pub(crate) fn wait(&self, wait: &Wait) -> Result<()> {
        let mut state = self.state.lock();
        while !state.is_clean() {
            wait.check().map_err(|e| {
                e.context("wait until pages are dropped that were kept under leases now lost")
            })?;
            state = self.changed.wait_timeout(state, SLICE);
        }
        Ok(())
    }

    /// Waits until something has to be dropped: after a loss, or at the end of the period in which
    /// cached data may be used (once for each end; `ended` is the last one). Returns `None` at the
    /// end of the client.
    pub(crate) fn next(&self, clock: &LeaseClock, ended: &mut Duration) -> Option<ToDrop> {
        let mut state = self.state.lock();
        while state.served && !state.wanted && state.unwritten.is_empty() {
            let until = clock.good_until();
            let left = until.saturating_sub(since_boot());
            if left.is_zero() && until > *ended {
                *ended = until;
                return Some(ToDrop::Everything);
            }
            let longest = if left.is_zero() { SLICE } else { left.min(LOOK) };
            state = self.changed.wait_timeout(state, longest);
        }
        let files = std::mem::take(&mut state.unwritten);
        if state.served && !state.wanted {
            return Some(ToDrop::Files(files));
        }
        (state.wanted, state.dropping) = (false, state.served);
        state.served.then_some(ToDrop::Everything)
    }

    /// The layer above has dropped everything.
    pub(crate) fn done(&self) {
        self.state.lock().dropping = false;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(drops: &Drops) -> bool {
        drops.wait(&Wait::for_ms(1)).is_ok()
    }

    #[test]
    fn calls_wait_until_everything_that_was_kept_under_lost_leases_is_dropped() {
        let (drops, clock, mut ended) = (Drops::default(), LeaseClock::default(), Duration::ZERO);
        drops.serve();
        assert!(is_open(&drops));
        drops.after(|| assert!(!is_open(&drops), "leases are being lost"));
        assert!(!is_open(&drops), "the layer above has not been told");
        assert_eq!(drops.next(&clock, &mut ended), Some(ToDrop::Everything));
        assert!(!is_open(&drops), "it is dropping");
        // Lost once more meanwhile: what was read since has to go, too.
        drops.after(|| ());
        drops.done();
        assert!(!is_open(&drops));
        assert_eq!(drops.next(&clock, &mut ended), Some(ToDrop::Everything));
        drops.done();
        assert!(is_open(&drops));
    }

    #[test]
    fn nobody_waits_until_pages_are_gone_that_could_not_be_written() {
        let (drops, clock, mut ended) = (Drops::default(), LeaseClock::default(), Duration::ZERO);
        drops.of(FileId(1));
        drops.serve();
        [3, 2, 3].into_iter().for_each(|file| drops.of(FileId(file)));
        assert!(is_open(&drops));
        let files = BTreeSet::from([FileId(2), FileId(3)]);
        assert_eq!(drops.next(&clock, &mut ended), Some(ToDrop::Files(files)));
        (0..=MOST_FILES as u64).for_each(|file| drops.of(FileId(file)));
        assert_eq!(drops.next(&clock, &mut ended), Some(ToDrop::Everything));
        drops.done();
        assert!(is_open(&drops));
    }

    #[test]
    fn everything_is_dropped_once_before_leases_may_be_taken_away() {
        let (drops, clock, mut ended) = (Drops::default(), LeaseClock::default(), Duration::ZERO);
        drops.serve();
        let sent = since_boot();
        clock.polled(sent, 1_000);
        assert_eq!(drops.next(&clock, &mut ended), Some(ToDrop::Everything));
        assert!(!clock.is_good() && since_boot() < sent + Duration::from_secs(1));
        drops.done();
        assert!(is_open(&drops), "calls wait for the clock, and for nothing else");
        let again = clock.good_until();
        assert_eq!(ended, again, "not again for this time");
        clock.polled(since_boot(), 1_000);
        assert_eq!(drops.next(&clock, &mut ended), Some(ToDrop::Everything));
        assert!(ended > again);
    }

    #[test]
    fn nobody_waits_without_a_layer_above_or_when_the_client_ends() {
        let (drops, clock, mut ended) = (Drops::default(), LeaseClock::default(), Duration::ZERO);
        drops.after(|| ());
        assert!(is_open(&drops));
        drops.serve();
        assert!(!is_open(&drops));
        drops.stop();
        assert!(is_open(&drops) && drops.next(&clock, &mut ended).is_none());
    }
}
