//! One call on several servers: which part to send, what each answer means,
//! when to try again and when to give up. Time comes in as milliseconds of any
//! clock that never goes back.
//!
//! Invariant: every part is sent to the server at most once at a time, and the
//! transfer ends, well or badly, at the latest at its deadline.

use weir_types::{Error, ErrorKind, Retry};

/// First wait before a repetition; doubled each time.
const FIRST_BACKOFF_MS: u64 = 10;
/// Longest wait before a repetition.
const MAX_BACKOFF_MS: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartState {
    Ready,
    InFlight,
    Waiting { until_ms: u64 },
    Done,
}

#[derive(Debug)]
struct Part {
    state: PartState,
    failures: u32,
    /// It was refused for something out of date before.
    refused: bool,
    /// Read again under the server's lock: a checksum did not match.
    locked: bool,
}

/// What the shell does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this part.
    Send(usize),
    /// Take the answer of this part, which was sent.
    Receive(usize),
    /// Nothing can be done before this time.
    Sleep {
        /// When.
        until_ms: u64,
    },
    /// Get layout, capability, map and tickets anew, then call [`Transfer::refreshed`].
    Refresh,
    /// All parts are done.
    Done,
    /// The call has failed.
    Fail(Error),
}

/// The state of one call.
#[derive(Debug)]
pub struct Transfer {
    parts: Vec<Part>,
    deadline_ms: u64,
    refresh: bool,
    failure: Option<Error>,
}

impl Transfer {
    /// A call of so many parts.
    pub fn new(parts: usize, deadline_ms: u64) -> Self {
        let parts = (0..parts)
            .map(|_| Part { state: PartState::Ready, failures: 0, refused: false, locked: false })
            .collect();
        Self { parts, deadline_ms, refresh: false, failure: None }
    }

    /// Whether a part is to be read under the server's lock.
    pub fn locked(&self, part: usize) -> bool {
        self.parts[part].locked
    }

    /// When the call gives up.
    pub fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Gives a call that waited (a read ahead of its reader) a new deadline.
    pub fn set_deadline_ms(&mut self, deadline_ms: u64) {
        self.deadline_ms = deadline_ms;
    }

    /// Whether a part's answer is awaited.
    pub fn in_flight(&self, part: usize) -> bool {
        self.parts[part].state == PartState::InFlight
    }

    /// What to do next. Sending comes first, so that all servers work at once.
    pub fn next(&mut self, now_ms: u64) -> Next {
        let receive = self.parts.iter().position(|p| p.state == PartState::InFlight);
        if let Some(error) = &self.failure {
            // Answers still on their way are not waited for: the shell drops
            // those connections.
            return Next::Fail(error.clone());
        }
        if let Some(part) = self.parts.iter().position(|p| match p.state {
            PartState::Ready => !self.refresh,
            PartState::Waiting { until_ms } => !self.refresh && until_ms <= now_ms,
            _ => false,
        }) {
            self.parts[part].state = PartState::InFlight;
            return Next::Send(part);
        }
        if let Some(part) = receive {
            return Next::Receive(part);
        }
        if self.refresh {
            return Next::Refresh;
        }
        let wake = self.parts.iter().filter_map(|p| match p.state {
            PartState::Waiting { until_ms } => Some(until_ms),
            _ => None,
        });
        match wake.min() {
            Some(until_ms) => Next::Sleep { until_ms },
            None => Next::Done,
        }
    }

    /// What came of sending or receiving a part.
    pub fn on_result(&mut self, part: usize, result: Result<(), Error>, now_ms: u64) {
        match result {
            Ok(()) => self.parts[part].state = PartState::Done,
            Err(error) => self.on_error(part, error, now_ms),
        }
    }

    fn on_error(&mut self, index: usize, error: Error, now_ms: u64) {
        let part = &mut self.parts[index];
        part.failures += 1;
        let backoff =
            (FIRST_BACKOFF_MS << part.failures.min(10).saturating_sub(2)).min(MAX_BACKOFF_MS);
        // The first repetition is at once: most often a pooled connection was
        // closed, or a writer was at work on the block.
        // So is the first with a new capability, however long the server was
        // away before.
        let refused = error.kind.retry() == Retry::Refresh;
        let first = part.failures == 1 || refused && !part.refused;
        part.refused |= refused;
        let until_ms = if first { now_ms } else { now_ms + backoff };
        let give_up = match error.kind {
            ErrorKind::ChecksumMismatch if part.locked => {
                self.failure = Some(Error { kind: ErrorKind::Corrupt, ..error });
                return;
            }
            ErrorKind::ChecksumMismatch => {
                part.locked = true;
                false
            }
            kind => kind.retry() == Retry::Never,
        };
        if give_up || until_ms >= self.deadline_ms {
            self.failure = Some(error);
            return;
        }
        part.state = PartState::Waiting { until_ms };
        self.refresh |= refused;
    }

    /// Layout, capability, map and tickets are new (or could not be had).
    pub fn refreshed(&mut self, result: Result<(), Error>) {
        self.refresh = false;
        if let Err(error) = result {
            self.failure = Some(error);
        }
    }

    /// Ends the call, because its waiter was interrupted.
    pub fn cancel(&mut self, error: Error) {
        self.failure = Some(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(kind: ErrorKind) -> Result<(), Error> {
        Err(kind.into())
    }

    #[test]
    fn all_parts_are_sent_before_the_first_answer_is_awaited() {
        let mut t = Transfer::new(2, 1000);
        assert_eq!(t.next(0), Next::Send(0));
        assert_eq!(t.next(0), Next::Send(1));
        assert_eq!(t.next(0), Next::Receive(0));
        t.on_result(0, Ok(()), 0);
        assert_eq!(t.next(0), Next::Receive(1));
        t.on_result(1, Ok(()), 0);
        assert_eq!(t.next(0), Next::Done);
    }

    #[test]
    fn a_new_capability_is_tried_at_once_though_the_server_was_away_for_long() {
        let mut t = Transfer::new(1, 10_000);
        let mut now = 0;
        for _ in 0..8 {
            while let Next::Sleep { until_ms } = t.next(now) {
                now = until_ms;
            }
            t.on_result(0, fail(ErrorKind::Unreachable), now);
        }
        while let Next::Sleep { until_ms } = t.next(now) {
            now = until_ms;
        }
        t.on_result(0, fail(ErrorKind::BadCapability), now);
        assert_eq!(t.next(now), Next::Refresh);
        t.refreshed(Ok(()));
        assert_eq!(t.next(now), Next::Send(0));
        t.on_result(0, fail(ErrorKind::BadCapability), now);
        assert_eq!(t.next(now), Next::Refresh);
        t.refreshed(Ok(()));
        assert!(matches!(t.next(now), Next::Sleep { .. }), "but not again and again");
    }

    #[test]
    fn a_lost_connection_is_tried_again_at_once_then_later_until_the_deadline() {
        let mut t = Transfer::new(1, 500);
        let mut now = 0;
        let mut sends = 0;
        let failure = loop {
            match t.next(now) {
                Next::Send(0) => {
                    sends += 1;
                    t.on_result(0, fail(ErrorKind::Unreachable), now);
                }
                Next::Sleep { until_ms } => now = until_ms,
                Next::Fail(error) => break error,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(failure.kind, ErrorKind::Unreachable);
        assert!(now < 500 && sends > 4, "{sends} sends until {now} ms");
    }

    #[test]
    fn a_mismatch_is_read_again_under_the_lock_and_only_then_called_rot() {
        let mut t = Transfer::new(1, 1000);
        assert_eq!(t.next(0), Next::Send(0));
        t.on_result(0, fail(ErrorKind::ChecksumMismatch), 0);
        assert_eq!(t.next(0), Next::Send(0));
        assert!(t.locked(0));
        t.on_result(0, fail(ErrorKind::ChecksumMismatch), 0);
        assert!(matches!(t.next(0), Next::Fail(e) if e.kind == ErrorKind::Corrupt));
    }

    #[test]
    fn a_refused_capability_is_refreshed_once_all_answers_are_in() {
        let mut t = Transfer::new(2, 1000);
        assert_eq!((t.next(0), t.next(0)), (Next::Send(0), Next::Send(1)));
        t.on_result(0, fail(ErrorKind::BadCapability), 0);
        assert_eq!(t.next(0), Next::Receive(1));
        t.on_result(1, Ok(()), 0);
        assert_eq!(t.next(0), Next::Refresh);
        t.refreshed(Ok(()));
        assert_eq!(t.next(0), Next::Send(0));
    }

    #[test]
    fn an_error_that_stays_fails_the_call() {
        let mut t = Transfer::new(2, 1000);
        assert_eq!((t.next(0), t.next(0)), (Next::Send(0), Next::Send(1)));
        t.on_result(0, fail(ErrorKind::NoSpace), 0);
        assert!(matches!(t.next(0), Next::Fail(e) if e.kind == ErrorKind::NoSpace));
    }
}
