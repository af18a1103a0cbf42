//! Changes that arrive late. A client that loses a connection, or gives up waiting, sends its
//! change again, or another change of the same bytes. The first may still be on its way, or wait
//! for the disk. So the client numbers its attempts ([`Attempt`]), and the newest welcomed attempt
//! of a client is the valid one.
//!
//! Invariants, for each client and target:
//! - no change of an older attempt begins after a newer one was welcomed;
//! - a change of a newer attempt begins after those of older ones have ended.
//!
//! A server that was away may not know the newest attempt. So for columns with several copies it
//! refuses changes on connections from before ([`Sender::since`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use weir_host::plant::{Bug, planted};
use weir_host::sync::{Condvar, Mutex};
use weir_types::{ClientId, Epoch, Error, ErrorKind, Result, TargetId};
use weir_wire::handshake::Attempt;

/// A client and its run.
type Run = (ClientId, u64);

/// Clients with a connection, or with a change that has not ended.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    runs: Mutex<BTreeMap<Run, Weak<Sequence>>>,
}

impl Attempts {
    /// Records a welcomed connection. Connections of older attempts of its client change nothing
    /// any more.
    pub(crate) fn welcome(
        self: &Arc<Self>,
        client: ClientId,
        attempt: &Attempt,
        since: Epoch,
    ) -> Sender {
        let run = (client, attempt.run);
        let mut runs = self.runs.lock();
        let sequence = runs.get(&run).and_then(Weak::upgrade).unwrap_or_else(|| {
            let fresh =
                Sequence { run, all: self.clone(), state: Mutex::default(), ended: Condvar::new() };
            let fresh = Arc::new(fresh);
            runs.insert(run, Arc::downgrade(&fresh));
            fresh
        });
        drop(runs);
        let mut state = sequence.state.lock();
        state.newest = state.newest.max(attempt.number);
        drop(state);
        // Those that wait for their turn may have lost it.
        sequence.ended.notify_all();
        Sender { sequence, attempt: attempt.number, since }
    }
}

/// The attempts of one client.
#[derive(Debug)]
struct Sequence {
    run: Run,
    all: Arc<Attempts>,
    state: Mutex<State>,
    ended: Condvar,
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let mut runs = self.all.runs.lock();
        // It may have come back meanwhile.
        if runs.get(&self.run).is_some_and(|known| known.strong_count() == 0) {
            runs.remove(&self.run);
        }
    }
}

#[derive(Debug, Default)]
struct State {
    newest: u64,
    /// Number of changes being carried out, by target and attempt. Bounded by the threads that
    /// carry out changes.
    running: BTreeMap<(TargetId, u64), u32>,
}

/// Whether a change may begin.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Now,
    Later,
    Never,
}

impl State {
    fn turn(&self, target: TargetId, attempt: u64) -> Turn {
        if attempt < self.newest && !planted(Bug::DoLateChanges) {
            return Turn::Never;
        }
        match self.running.range((target, 0)..(target, attempt)).next() {
            Some(_) => Turn::Later,
            None => Turn::Now,
        }
    }

    fn begin(&mut self, target: TargetId, attempt: u64) {
        *self.running.entry((target, attempt)).or_default() += 1;
    }

    fn end(&mut self, target: TargetId, attempt: u64) {
        if let Some(count) = self.running.get_mut(&(target, attempt)) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(&(target, attempt));
            }
        }
    }
}

/// The client and attempt of a connection that sends changes.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    sequence: Arc<Sequence>,
    attempt: u64,
    since: Epoch,
}

impl Sender {
    /// The epoch under which this server acted when the connection was welcomed.
    pub(crate) fn since(&self) -> Epoch {
        self.since
    }

    /// Carries out a change in its turn, after the changes of older attempts have ended. Those wait
    /// for the disk, and for other copies until these are known to be away.
    ///
    /// Errors: `Unreachable` if the change comes too late; those of the change.
    pub(crate) fn in_turn<T>(
        &self,
        target: TargetId,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut state = self.sequence.state.lock();
        loop {
            match state.turn(target, self.attempt) {
                Turn::Now => break,
                Turn::Later => state = self.sequence.ended.wait(state),
                Turn::Never => {
                    let what = "the request came on a connection that its client has given up: nothing was \
                                changed";
                    return Err(Error::new(ErrorKind::Unreachable, what));
                }
            }
        }
        state.begin(target, self.attempt);
        drop(state);
        let result = change();
        self.sequence.state.lock().end(target, self.attempt);
        self.sequence.ended.notify_all();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: TargetId = TargetId(1);

    fn attempt(run: u64, number: u64) -> Attempt {
        Attempt { run, number }
    }

    #[test]
    fn a_newer_attempt_waits_for_older_changes_and_ends_their_time() {
        let mut state = State::default();
        assert_eq!(state.turn(TARGET, 0), Turn::Now);
        state.begin(TARGET, 0);
        assert_eq!(state.turn(TARGET, 0), Turn::Now, "changes of one attempt go side by side");
        state.newest = 2;
        assert_eq!(state.turn(TARGET, 1), Turn::Never);
        assert_eq!(state.turn(TARGET, 2), Turn::Later);
        assert_eq!(state.turn(TargetId(2), 2), Turn::Now, "another disk waits for nobody");
        state.end(TARGET, 0);
        assert_eq!(state.turn(TARGET, 2), Turn::Now);
        assert_eq!(state.turn(TARGET, 0), Turn::Never);
    }

    #[test]
    fn a_change_that_is_being_carried_out_ends_before_the_next_attempt_begins() {
        let attempts = Arc::new(Attempts::default());
        let old = attempts.welcome(ClientId(1), &attempt(7, 0), Epoch(0));
        let (began, has_begun) = std::sync::mpsc::channel();
        let (go, may_go) = std::sync::mpsc::channel::<()>();
        let order = Arc::new(Mutex::new(Vec::new()));
        let slow = {
            let (old, order) = (old.clone(), order.clone());
            let body = move || {
                let change = || {
                    began.send(()).unwrap();
                    may_go.recv().unwrap();
                    order.lock().push("old");
                    Ok(())
                };
                old.in_turn(TARGET, change).unwrap();
            };
            weir_host::thread::spawn("slow", body).unwrap()
        };
        has_begun.recv().unwrap();
        let new = attempts.welcome(ClientId(1), &attempt(7, 1), Epoch(0));
        let done = |sender: &Sender, what: &'static str| {
            let change = || {
                order.lock().push(what);
                Ok(())
            };
            sender.in_turn(TARGET, change)
        };
        assert_eq!(done(&old, "late").unwrap_err().kind, ErrorKind::Unreachable);
        done(&attempts.welcome(ClientId(1), &attempt(8, 0), Epoch(0)), "another run").unwrap();
        let next = {
            let order = order.clone();
            let body = move || {
                let change = || {
                    order.lock().push("new");
                    Ok(())
                };
                new.in_turn(TARGET, change).unwrap();
            };
            weir_host::thread::spawn("next", body).unwrap()
        };
        go.send(()).unwrap();
        slow.join().unwrap();
        next.join().unwrap();
        assert_eq!(*order.lock(), ["another run", "old", "new"]);
    }

    #[test]
    fn clients_that_are_gone_are_forgotten() {
        let attempts = Arc::new(Attempts::default());
        let first = attempts.welcome(ClientId(1), &attempt(7, 3), Epoch(0));
        let second = attempts.welcome(ClientId(1), &attempt(7, 2), Epoch(0));
        drop(first);
        assert!(second.in_turn(TARGET, || Ok(())).is_err(), "as long as there is one of them");
        drop(second);
        assert!(attempts.runs.lock().is_empty());
    }
}
